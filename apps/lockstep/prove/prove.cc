// lockstep prove: shows that drafts, widths, threads and chunks change no bit.
#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "cli.h"
#include "engine.h"
#include "output.h"
#include "prove/corrupt.h"
#include "prove/plan.h"
#include "prove/prompts.h"
#include "synth/synth.h"
#include "text/tokenizer.h"

namespace lockstep::app {
namespace {

struct ProveOptions {
  EngineOptions engine;
  std::optional<Given> drafter, against;
  std::optional<std::string> prompt, file, only;
  std::optional<int64_t> tokens, seed;
  bool quick = false, corrupt = false, json = false;
};

std::string widths_text(const std::map<int64_t, int64_t>& widths) {
  std::string out;
  for (const auto& [width, passes] : widths) {
    out += fmt::format("{}{}", out.empty() ? "" : " ", width);
    if (passes > 1) out += fmt::format("x{}", passes);
  }
  return out;
}

Json difference_json(const std::optional<Difference>& first, const std::string& where) {
  if (!first) return nullptr;
  return {{"kind", difference_kind_name(first->kind)},
          {"case", where},
          {"position", first->position},
          {"plain", first->plain},
          {"other", first->other}};
}

Json line_json(const Line& line) {
  Json widths = Json::object();
  for (const auto& [width, passes] : line.widths) widths[std::to_string(width)] = passes;
  return {{"name", line.name},
          {"identical", line.identical()},
          {"proposed", line.proposed},
          {"accepted", line.accepted},
          {"rejected", line.proposed - line.accepted},
          {"widths", widths},
          {"pages_reused", line.pages_reused},
          {"tokens", line.tokens},
          {"logits_rows", line.rows},
          {"kv_states", line.states},
          {"seconds", line.seconds},
          {"unexercised", line.unexercised},
          {"first_difference", difference_json(line.first, line.first_case)}};
}

std::string line_text(const Line& line) {
  std::string verdict = "identical";
  if (line.first) {
    verdict = fmt::format("DIFFERS: {} at position {} ({}): plain {}, here {}",
                          difference_kind_name(line.first->kind), line.first->position,
                          line.first_case, line.first->plain, line.first->other);
  } else if (!line.unexercised.empty()) {
    verdict = "NOT EXERCISED: " + line.unexercised;
  }
  return fmt::format("{:<36} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5} {:>5}  {}  {}\n", line.name,
                     line.proposed, line.accepted, line.proposed - line.accepted, line.pages_reused,
                     line.tokens, line.rows, line.states, verdict, widths_text(line.widths));
}

const char kHeader[] =
    "configuration                         prop   acc   rej pages   tok  rows    kv  result     "
    "widths run (rows of a pass x passes)\n";

std::vector<int32_t> prompt_ids(const text::Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids = tokenizer.encode(text, true, false);
  if (ids.empty()) bad_use("the prompt has no token; give another");
  return ids;
}

PlanInputs make_inputs(const ProveOptions& options, const model::Model& model) {
  PlanInputs inputs;
  inputs.quick = options.quick;
  inputs.seed = static_cast<uint64_t>(options.seed.value_or(1));
  inputs.k_type = parse_kv_type(options.engine.k_type);
  inputs.v_type = parse_kv_type(options.engine.v_type);
  const auto tokenizer = text::Tokenizer::load(model.file());
  inputs.repetitive = prompt_ids(tokenizer, kRepetitive);
  inputs.prose = prompt_ids(tokenizer, kProse);
  inputs.code = prompt_ids(tokenizer, kCode);
  if (options.prompt || options.file) {
    inputs.prose = inputs.code =
        prompt_ids(tokenizer, options.prompt ? *options.prompt : read_text_file(*options.file));
  }
  if (options.drafter) inputs.drafter = open_drafter(*options.drafter, tokenizer);
  // As many ids, weights of its own (a seed that a synthetic target hardly has). Only ids matter
  // here, so the words behind them need not agree.
  inputs.wrong_drafter = model::Model::load(synth::make_in_memory(synth::parse_synth(
      fmt::format("llama-tiny,vocab={},seed={}", std::max<int64_t>(256, model.graph().n_vocab),
                  inputs.seed + 1000003))));
  return inputs;
}

ExitCode prove_plan(const ProveOptions& options, Prover& prover, const PlanInputs& inputs) {
  std::vector<Configuration> plan = make_plan(prover, inputs);
  if (options.only) {
    std::erase_if(plan, [&](const Configuration& c) {
      return c.name.find(*options.only) == std::string::npos;
    });
    if (plan.empty())
      bad_use(
          fmt::format("--only {}: no configuration's name contains it", shorten(*options.only)));
  }
  Progress progress;
  Json lines = Json::array();
  size_t identical = 0;
  std::string first_failure;
  for (size_t i = 0; i < plan.size(); ++i) {
    progress.show(fmt::format("{}/{} {}", i + 1, plan.size(), plan[i].name));
    Line line;
    line.name = plan[i].name;
    const auto start = std::chrono::steady_clock::now();
    plan[i].run(prover, line);
    line.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    check_needs(line, plan[i].needs);
    progress.clear();
    identical += line.identical();
    if (options.json) {
      lines.push_back(line_json(line));
    } else {
      if (i == 0) print(kHeader);
      print(line_text(line));
    }
  }
  prover.model().file().refuse_if_changed();
  if (options.json) {
    print_json({{"schema", "lockstep.prove/1"},
                {"model_sha256", to_hex(prover.model().file_sha256())},
                {"law", kernels::kLaw},
                {"isa", prover.backend()->info().isa},
                {"threads", prover.backend()->info().threads},
                {"device", prover.backend()->info().text()},
                {"plain_device", prover.plain_backend()->info().text()},
                {"seed", inputs.seed},
                {"identical", identical},
                {"configurations", plan.size()},
                {"lines", lines}});
  } else {
    print(fmt::format("{}/{} identical\n", identical, plan.size()));
    if (prover.backend() != prover.plain_backend()) {
      print(fmt::format("computed by {}, compared with {}\n", prover.backend()->info().text(),
                        prover.plain_backend()->info().text()));
    }
  }
  return identical == plan.size() ? ExitCode::ok : ExitCode::check_failed;
}

ExitCode prove_corrupt(const ProveOptions& options, Prover& prover, const PlanInputs& inputs) {
  sample::Parameters greedy;
  greedy.temperature = 0;
  const Case of{"prose T=0", inputs.prose, greedy, inputs.k_type, inputs.v_type};
  if (!options.json) print("kind       op                 layer position   element bit  result\n");
  Progress progress;
  int place[3] = {}, found[3] = {}, missed = 0;
  Json list = Json::array();
  run_plants(prover, of, inputs.seed, [&](const PlantResult& result) {
    const auto kind = static_cast<size_t>(result.kind);
    ++place[kind];
    found[kind] += result.found();
    missed += result.missed();
    std::string verdict = "absorbed by rounding: nothing differs";
    if (!result.applied) {
      verdict = "MISSED: was never applied";
    } else if (result.missed()) {
      verdict = "MISSED: " + (result.first ? fmt::format("found elsewhere: {} at position {}",
                                                         difference_kind_name(result.first->kind),
                                                         result.first->position)
                                           : std::string("nothing differs"));
    } else if (result.first) {
      verdict = fmt::format("found: {} at position {}", difference_kind_name(result.first->kind),
                            result.first->position);
    }
    if (options.json) {
      list.push_back({{"kind", plant_kind_name(result.kind)},
                      {"op", result.op},
                      {"layer", result.layer},
                      {"position", result.plant.position},
                      {"element", result.plant.element},
                      {"bit", result.plant.bit},
                      {"applied", result.applied},
                      {"found", result.found()},
                      {"missed", result.missed()},
                      {"first_difference", difference_json(result.first, of.name)}});
      return;
    }
    progress.clear();
    print(fmt::format("{:<10} {:<18} {:>5} {:>8} {:>9} {:>3}  {}\n", plant_kind_name(result.kind),
                      result.op, result.layer, result.plant.position, result.plant.element,
                      result.plant.bit, verdict));
  });
  if (options.json) {
    print_json({{"schema", "lockstep.prove-corrupt/1"},
                {"model_sha256", to_hex(prover.model().file_sha256())},
                {"seed", inputs.seed},
                {"planted", kPlants},
                {"missed", missed},
                {"absorbed", place[2] - found[2]},
                {"plants", list}});
  } else {
    print(fmt::format(
        "{} faults planted: logits rows {}/{} found, KV pages {}/{} found; elsewhere {} of {} "
        "found, {} absorbed by rounding\n{}\n",
        kPlants, found[0], place[0], found[1], place[1], found[2], place[2], place[2] - found[2],
        missed ? fmt::format("{} MISSED: the comparison cannot be trusted", missed)
               : "the comparison finds what it must (exit code 1)"));
  }
  return missed ? ExitCode::control_failed : ExitCode::check_failed;
}

ExitCode prove(const ProveOptions& options) {
  if (options.prompt && options.file) bad_use("-p and -f contradict each other; give one");
  if (options.corrupt && options.only) bad_use("--only chooses configurations; --corrupt has none");
  const auto model = open_model(options.engine);
  const PlanInputs inputs = make_inputs(options, *model);
  std::shared_ptr<kernels::Backend> plain;
  if (options.against) {
    EngineOptions engine = options.engine;
    engine.device = options.against;
    if (engine.device->value == "cpu") engine.kernels.reset();
    plain = open_backend(engine);
  }
  Prover prover(model, open_backend(options.engine),
                options.tokens.value_or(options.quick ? 16 : 24), plain);
  return options.corrupt ? prove_corrupt(options, prover, inputs)
                         : prove_plan(options, prover, inputs);
}

}  // namespace

Runner set_up_prove(Flags& flags) {
  const auto options = std::make_shared<ProveOptions>();
  options->engine.bind_model(flags);
  options->engine.bind_backend(flags);
  options->engine.bind_kv_types(flags);
  flags.text("--against", options->against);
  flags.text("--model-draft", options->drafter);
  flags.text("--prompt", options->prompt);
  flags.text("--file", options->file);
  flags.integer("--predict", options->tokens, 4, 4096);
  flags.integer("--seed", options->seed, 0, INT64_MAX);
  flags.toggle("--quick", options->quick);
  flags.text("--only", options->only);
  flags.toggle("--corrupt", options->corrupt);
  flags.toggle("--json", options->json);
  flags.describe(
      "Decodes plainly and under every configuration, and compares token ids, a hash of every "
      "logits "
      "row, and a hash of the KV pages after each pass. Exit code 1 at any difference, and when a "
      "configuration exercised none of what it names. --corrupt plants 20 faults: 1 when all that "
      "must "
      "be found were found, 5 when one was missed.",
      "lockstep prove -m model.gguf --quick");
  return [options] {
    if (options->engine.isa == "all") options->engine.isa.reset();
    return prove(*options);
  };
}

}  // namespace lockstep::app
