// lockstep bench: how long passes of a model take, and how near that is to the memory limit.
#include <fmt/format.h>

#include <memory>

#include "bench/plan.h"
#include "bench/report.h"
#include "bench/runner.h"
#include "cli.h"
#include "decode/result.h"
#include "engine.h"
#include "generation.h"
#include "output.h"
#include "program.h"
#include "text/utf8_stream.h"

namespace lockstep::app {
namespace {

constexpr int64_t kDefaultRepetitions = 5;

struct BenchOptions {
  EngineOptions engine;
  std::optional<std::vector<int64_t>> prompts, generations, widths, depths;
  std::optional<std::vector<int64_t>> threads;  // one a backend, as EngineOptions has it
  std::optional<int64_t> batch, repetitions;
  std::optional<Given> format, trace;
  std::optional<double> slow_below;
  bool ops = false, json = false;
};

enum class Format : uint8_t { md, csv, json, jsonl };

Format choose_format(const BenchOptions& options) {
  static constexpr std::string_view kNames[] = {"md", "csv", "json", "jsonl"};
  if (!options.format) return options.json ? Format::json : Format::md;
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (options.format->value != kNames[i]) continue;
    const auto format = static_cast<Format>(i);
    if (options.json && format != Format::json) {
      bad_use(fmt::format("--json and -o {} contradict each other; give one", kNames[i]));
    }
    return format;
  }
  bad_use(fmt::format("{}: not a format; give md, csv, json or jsonl", options.format->shown));
}

// What the other commands' identity has, less what no pass depends on: drafts and sampling.
Json identity_json(const model::Model& model, const kernels::BackendInfo& backend,
                   const state::KvSpec& spec, int64_t batch) {
  decode::Identity identity;
  identity.law = kernels::kLaw;
  identity.engine = this_program();
  identity.model_sha256 = to_hex(model.file_sha256());
  identity.model_name =
      text::well_formed_utf8(model.file().string("general.name").value_or(model.file().name()));
  identity.device = backend.text();
  identity.isa = backend.isa;
  identity.threads = backend.threads;
  identity.k_type = kernels::kv_type_name(spec.k_type);
  identity.v_type = kernels::kv_type_name(spec.v_type);
  identity.context = spec.context;
  identity.chunk = batch;
  Json json = decode::to_json(identity);
  for (const char* key : {"draft", "depth", "sampling"}) json.erase(key);
  return json;
}

Json buffer_json(const BenchRunner& runner) {
  if (!runner.meter()) return {{"bytes", nullptr}, {"huge_pages", nullptr}};
  const BandwidthMeter& meter = *runner.meter();
  const double share = meter.huge_page_share();
  return {{"bytes", meter.buffer_bytes()}, {"huge_pages", share}};
}

std::string buffer_text(const BenchRunner& runner) {
  if (!runner.meter()) return "read GB/s: the device's own, over a buffer larger than its caches";
  const BandwidthMeter& meter = *runner.meter();
  const double share = meter.huge_page_share();
  return fmt::format("read GB/s: over a buffer of {}, {} of it in huge pages",
                     human_bytes(static_cast<double>(meter.buffer_bytes())),
                     fmt::format("{:.0f} %", 100 * share));
}

// "avx512", "cuda: NVIDIA H200, driver for CUDA 13.0, sm_90"
std::string device_text(const kernels::BackendInfo& info) {
  return info.name.empty() ? info.isa : info.text() + ", " + info.isa;
}

std::string load_text(const kernels::LoadReport& load, bool on_device) {
  if (load.packed_bytes == 0) return "weights: read as the file has them";
  if (on_device) {
    return fmt::format("weights: {} packed and copied to the device in {:.0f} ms",
                       human_bytes(static_cast<double>(load.packed_bytes)), load.milliseconds);
  }
  return fmt::format(
      "weights: {} packed for these kernels in {:.0f} ms, {:.0f} % of it in huge pages",
      human_bytes(static_cast<double>(load.packed_bytes)), load.milliseconds,
      100.0 * std::min(1.0, static_cast<double>(load.huge_bytes) /
                                static_cast<double>(load.packed_bytes)));
}

ExitCode bench(const BenchOptions& options) {
  const Format format = choose_format(options);
  if (options.ops && format == Format::csv) {
    bad_use("--ops and -o csv: a table within a row has no place there; use md, json or jsonl");
  }
  const kernels::KvType k_type = parse_kv_type(options.engine.k_type);
  const kernels::KvType v_type = parse_kv_type(options.engine.v_type);
  if (options.trace) OpTrace::check_path(options.trace->value);

  BenchLists lists;
  if (options.prompts) lists.prompts = *options.prompts;
  if (options.generations) lists.generations = *options.generations;
  if (options.widths) lists.widths = *options.widths;
  if (options.depths) lists.depths = *options.depths;
  lists.batch = options.batch.value_or(lists.batch);
  const int64_t repetitions = options.repetitions.value_or(kDefaultRepetitions);

  const auto model = open_model(options.engine);
  const std::vector<BenchTest> tests =
      make_bench_tests(lists, model->hyperparameters().n_ctx_train);
  int64_t context = 1;
  for (const BenchTest& test : tests) context = std::max(context, test.depth + test.tokens);
  const state::KvSpec spec = model->kv_spec(k_type, v_type, context);

  const BenchReport report{options.slow_below};
  std::optional<OpTrace> trace;
  if (options.trace) trace.emplace();
  Progress progress;
  Json rows = Json::array(), identity, buffer;
  kernels::LoadReport first_load;
  std::string tables;
  size_t done = 0;
  const std::vector<int64_t> threads = options.threads.value_or(std::vector<int64_t>{-1});
  for (const int64_t count : threads) {
    EngineOptions engine = options.engine;
    engine.threads = count;
    const std::shared_ptr<kernels::Backend> backend = open_backend(engine);
    const kernels::LoadReport load = load_weights(*backend, *model);
    if (done == 0) first_load = load;
    BenchRunner runner(model, backend, spec);
    // Of the whole file: md has no place for it, and need not wait.
    if (format != Format::md || trace) {
      identity = identity_json(*model, backend->info(), spec, lists.batch);
    }
    buffer = buffer_json(runner);
    if (format == Format::md && done == 0) {
      print(fmt::format(
          "{}{}, {}, KV {} and {}\n{}\n{}\n\n{}", escape(options.engine.model->value, 200),
          model->synthetic() ? " (synthetic weights)" : "", device_text(backend->info()),
          kernels::kv_type_name(k_type), kernels::kv_type_name(v_type),
          load_text(load, !runner.meter()), buffer_text(runner), report.md_header()));
    }
    for (const BenchTest& test : tests) {
      const auto show = [&](const std::string& what) {
        progress.show(fmt::format("{}/{} {}", done + 1, tests.size() * threads.size(), what));
      };
      BenchRow row;
      try {
        row = runner.measure(test, repetitions, show);
      } catch (const Error&) {
        model->file().refuse_if_changed();  // then that is the cause
        throw;
      }
      model->file().refuse_if_changed();
      if (options.ops || trace) {
        OpProfile profile =
            runner.profile(test, options.ops ? repetitions : 1, trace ? &*trace : nullptr, show);
        if (options.ops) row.profile = std::move(profile);
      }
      progress.clear();
      const auto json = [&] { return report.json_row(row, identity, model->synthetic()); };
      switch (format) {
        case Format::md:
          print(report.md_row(row));
          if (options.ops) tables += BenchReport::md_ops(row);
          break;
        case Format::csv:
          print((done == 0 ? BenchReport::csv_header(json()) : "") + BenchReport::csv_row(json()));
          break;
        case Format::json:
          rows.push_back(json());
          break;
        case Format::jsonl: {
          Json line{{"schema", "lockstep.bench-row/1"}};
          line.update(json());
          print(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
          break;
        }
      }
      ++done;
    }
  }
  if (format == Format::md) print(tables);
  if (format == Format::json) {
    print_json({{"schema", "lockstep.bench/1"},
                {"seed", BenchRunner::kSeed},
                {"slow_below_gb_s", options.slow_below ? Json(*options.slow_below) : Json()},
                {"load", load_json(first_load)},
                {"read_buffer", buffer},
                {"rows", rows}});
  }
  if (trace) {
    identity.erase("threads");  // each pass of the trace has its own
    std::move(*trace).write(options.trace->value, identity);
  }
  return ExitCode::ok;
}

}  // namespace

Runner set_up_bench(Flags& flags) {
  constexpr int64_t kMost = model::kMaxContext;
  const auto options = std::make_shared<BenchOptions>();
  options->engine.bind_model(flags);
  flags.integers("--n-prompt", options->prompts, 0, kMost, true);
  flags.integers("--n-gen", options->generations, 0, kMost, true);
  flags.integers("--widths", options->widths, 1, kMaxChunk, true);
  flags.integers("--n-depth", options->depths, 0, kMost);
  flags.integer("--repetitions", options->repetitions, 1, 10000);
  flags.integers("--threads", options->threads, -1, 1024);
  flags.text("--isa", options->engine.isa);
  flags.text("--device", options->engine.device);
  flags.text("--kernels", options->engine.kernels);
  flags.integer("--batch-size", options->batch, 1, kMaxChunk);
  options->engine.bind_kv_types(flags);
  flags.text("--output", options->format);
  flags.toggle("--json", options->json);
  flags.toggle("--ops", options->ops);
  flags.text("--trace", options->trace);
  flags.number("--slow-below", options->slow_below, 1e-3, 1e9);
  flags.describe(
      "Times passes of random tokens: prompts (pp), one token at a time (tg), and verify widths "
      "(w), "
      "passes of N rows that all want logits and are forgotten afterwards, as rejected drafts are. "
      "A device leaves of the logits what `run` needs by default, the greatest 40 of a row. "
      "Every test has one warm-up pass that is not counted; before and after every repetition the "
      "read bandwidth of the same number of threads is measured for 30 ms over a buffer larger "
      "than "
      "the caches, and \"of read\" is the median of bytes / time / the mean of the two readings "
      "beside it. Bytes are the weights, once a pass, and the keys and values, once for each 8 "
      "rows "
      "that attend to them; what passes leave in caches is not counted. Sampling is no part of it. "
      "The defaults take minutes for a large model: -p 64 -n 16 -r 3 are quick.",
      "lockstep bench -m model.gguf -p 512 -n 32 -w 1,2,4,8,16 -d 0,4096");
  return [options] { return bench(*options); };
}

}  // namespace lockstep::app
