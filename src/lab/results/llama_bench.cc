// llama-bench: its JSON and JSONL (one object a test, with samples) and its CSV (without). What it
// prints of its settings is what it was asked for; the build, the model and the device are what
// ran.
#include "lab/csv/csv.h"
#include "lab/results/read_context.h"

namespace lockstep::lab {
namespace {

struct Mapped {
  std::string_view from, key;
};
constexpr Mapped kEffective[] = {{"build_commit", "engine.commit"},
                                 {"build_number", "engine.build"},
                                 {"backends", "backends"},
                                 {"model_filename", "model.file"},
                                 {"model_type", "model.type"},
                                 {"model_size", "model.bytes"},
                                 {"cpu_info", "cpu"},
                                 {"gpu_info", "gpu"}};
constexpr Mapped kRequested[] = {{"n_batch", "batch"},
                                 {"n_ubatch", "ubatch"},
                                 {"n_threads", "threads"},
                                 {"poll", "poll"},
                                 {"type_k", "kv.k_type"},
                                 {"type_v", "kv.v_type"},
                                 {"n_gpu_layers", "gpu_layers"},
                                 {"flash_attn", "flash_attn"},
                                 {"split_mode", "split_mode"},
                                 {"use_mmap", "use_mmap"},
                                 {"n_depth", "depth"}};

// A CSV's cells are text; numbers among them are read as such.
void copy_any(Object& object, const Origin& origin, const Json& test, std::string_view from,
              std::string_view name) {
  const Json* value = at_path(test, from);
  if (!value) {
    object.absent(origin, name, "not in the file");
  } else {
    object.text(origin, name, plain(*value));
  }
}

}  // namespace

void read_llama_bench(Reading& reading, const Json& test, std::string_view place) {
  const Origin logged = origin_in(reading, Provenance::logged, place);
  const Origin inferred = origin_in(reading, Provenance::inferred, place);
  Object identity(Kind::identity);
  identity.text(logged, "effective.engine.name", "llama.cpp");
  identity.text(logged, "receipt.effective", "printed by llama-bench");
  for (const Mapped& mapped : kEffective) {
    copy_any(identity, logged, test, mapped.from, fmt::format("effective.{}", mapped.key));
  }
  const std::string gpu = identity.value("effective.gpu"), cpu = identity.value("effective.cpu");
  if (!gpu.empty() || !cpu.empty()) {
    identity.text(logged, "effective.device", gpu.empty() ? cpu : gpu);
  }
  identity.absent(logged, "effective.model.sha256", "llama-bench prints the file's name alone");
  identity.absent(logged, "effective.engine.binary_sha256", "llama-bench prints commit and number");
  // It decodes forced tokens: no draft, no sampler.
  identity.text(inferred, "effective.draft.source", "");
  identity.text(inferred, "effective.sampling", "none");
  for (const Mapped& mapped : kRequested) {
    copy_any(identity, logged, test, mapped.from, fmt::format("requested.{}", mapped.key));
  }

  Object run(Kind::run);
  set_place(run, reading, place);
  run.text(logged, "engine", "llama.cpp");
  run.ref(logged, "identity", identity.id());
  copy_fact(run, logged, test, "test_time", "started_at", Want::text);
  run.text(inferred, "lane",
           fmt::format("{} {}", identity.value("effective.model.type"),
                       identity.value("effective.device")));
  run.integer(inferred, "slots", 1);

  Object row(Kind::row);
  set_place(row, reading, place);
  row.ref(logged, "run", run.id());
  row.ref(logged, "identity", identity.id());
  copy_fact(row, logged, test, "n_prompt", "prompt_tokens", Want::integer);
  copy_fact(row, logged, test, "n_gen", "generated_tokens", Want::integer);
  copy_fact(row, logged, test, "n_depth", "depth", Want::integer);
  const int64_t n_prompt = row.find("prompt_tokens")->integer().value_or(0);
  const int64_t n_gen = row.find("generated_tokens")->integer().value_or(0);
  row.text(inferred, "test",
           n_gen == 0      ? fmt::format("pp{}", n_prompt)
           : n_prompt == 0 ? fmt::format("tg{}", n_gen)
                           : fmt::format("pp{}+tg{}", n_prompt, n_gen));
  const bool decode = n_gen > 0 && n_prompt == 0;
  copy_fact(row, logged, test, "avg_ts", decode ? "decode_tok_s" : "tok_s", Want::real);
  copy_fact(row, logged, test, "stddev_ts", "stddev_tok_s", Want::real);
  if (const Json* ns = at_path(test, "avg_ns"); ns && ns->is_number()) {
    row.real(logged, decode ? "decode_ms" : "ms", ns->get<double>() / 1e6);
  } else {
    row.absent(logged, decode ? "decode_ms" : "ms", "not in the file");
  }
  copy_fact(row, logged, test, "samples_ts", "samples_tok_s", Want::json);
  if (const Json* samples = at_path(test, "samples_ts"); samples && samples->is_array()) {
    row.integer(logged, "repetitions", static_cast<int64_t>(samples->size()));
  } else {
    row.absent(logged, "repetitions", "not in the file");
  }
  row.boolean(inferred, "warmed",
              true);  // one untimed run before the repetitions, unless told not to
  row.text(inferred, "denominator", "n");
  reading.objects.push_back(std::move(identity));
  reading.objects.push_back(std::move(run));
  reading.objects.push_back(std::move(row));
}

void read_llama_bench_csv(Reading& reading, std::string_view bytes) {
  const std::vector<CsvRow> rows = read_csv(bytes);
  const std::vector<std::string>& header = rows.front().cells;
  for (size_t i = 1; i < rows.size(); ++i) {
    if (!rows[i].fault.empty() || rows[i].cells.size() != header.size()) {
      skip(reading, fmt::format("line {}: {} cells where the header has {}", rows[i].line,
                                rows[i].cells.size(), header.size()));
      continue;
    }
    Json test = Json::object();
    for (size_t k = 0; k < header.size(); ++k) {
      const std::string cell = clean_text(rows[i].cells[k]);
      // Names and hashes stay text, even where they look like numbers.
      if (header[k] == "build_commit" || header[k].ends_with("_info")) {
        test[header[k]] = cell;
      } else if (const auto integer = read_integer(cell)) {
        test[header[k]] = *integer;
      } else if (const auto number = read_number(cell)) {
        test[header[k]] = *number;
      } else {
        test[header[k]] = cell;
      }
    }
    if (!test.contains("avg_ts") || !test["avg_ts"].is_number()) {
      skip(reading, fmt::format("line {}: no avg_ts", rows[i].line));
      continue;
    }
    read_llama_bench(reading, test, fmt::format("line {}", rows[i].line));
  }
}

}  // namespace lockstep::lab
