// What a whole speculative step costs, beside a plain token, at an acceptance that is chosen:
// drafts come from a recording of the plain answer in which each position is right with the given
// probability (draft/replay.h). Drafting, the verify pass, sampling and committing are all in it.
// Runs take turns, plain, replay, replay, plain, over the same positions; the answers must be the
// same, else it ends with 1.
//
//   bench_replay -m MODEL [--device cuda] [-t N] [--rate 0.8] [--depth 7] [--steps 200] [--rounds
//   4]
//
// A JSON line a pair of runs, then one of the medians.
#include "draft/replay.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "decode/session.h"
#include "kernels/backend.h"
#include "synth/synth.h"

using namespace lockstep;

namespace {

struct Options {
  std::string model, device = "cpu", isa;
  int threads = 1, depth = 7, steps = 200, rounds = 4;
  double rate = 0.8;
};

struct Run {
  std::vector<int32_t> tokens;
  double ms = 0;  // of all steps but the first, which computes the prompt
  int64_t steps = 0, timed_tokens = 0;
  decode::Phases phases;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

Run run(decode::Session& session, const std::vector<int32_t>& prompt) {
  session.begin(prompt);
  Run made;
  const auto keep = [&](const decode::Step& step) {
    made.tokens.insert(made.tokens.end(), step.tokens.begin(), step.tokens.end());
  };
  keep(session.step());
  const size_t first = made.tokens.size();
  const auto start = std::chrono::steady_clock::now();
  while (!session.finished()) {
    keep(session.step());
    ++made.steps;
  }
  const auto end = std::chrono::steady_clock::now();
  made.ms = std::chrono::duration<double, std::milli>(end - start).count();
  made.timed_tokens = static_cast<int64_t>(made.tokens.size() - first);
  made.phases = session.phases();
  return made;
}

int measure(const Options& options) {
  const auto model = model::Model::load(
      options.model.starts_with("synth:") ? synth::make_in_memory(synth::parse_synth(options.model))
                                          : gguf::File::open(options.model));
  const std::shared_ptr<kernels::Backend> backend =
      options.device == "cpu" ? kernels::make_cpu_backend(options.isa, options.threads)
                              : kernels::make_cuda_backend(0, kernels::CudaCode::own);
  backend->prepare(model->graph());
  std::mt19937_64 random(1);
  std::vector<int32_t> prompt(32);
  const int64_t n_vocab = model->graph().n_vocab;
  for (int32_t& id : prompt) {
    id = static_cast<int32_t>(random() % static_cast<uint64_t>(n_vocab));
  }
  // As many tokens as the steps will commit, and some to spare for luck.
  double a_step = 0, right = 1;
  for (int i = 0; i <= options.depth; ++i, right *= options.rate) a_step += right;
  const auto tokens = static_cast<int64_t>(1.15 * options.steps * a_step) + 8;

  decode::SessionOptions plain;
  plain.max_tokens = tokens;
  plain.context = static_cast<int64_t>(prompt.size()) + tokens + options.depth + 2;
  plain.sampling.temperature = 0.0f;
  draft::ReplayOptions replay;
  replay.rates = {options.rate};
  replay.n_vocab = n_vocab;
  replay.recording = prompt;
  {
    decode::Session session(model, backend, plain);
    const Run first = run(session, prompt);
    replay.recording.insert(replay.recording.end(), first.tokens.begin(), first.tokens.end());
  }
  std::vector<double> token_ms, step_ms, ratios;
  int64_t all_steps = 0, all_tokens = 0;
  for (int round = 0; round < options.rounds; ++round) {
    Run runs[2];  // plain, replay
    for (const int arm : {round % 2, 1 - round % 2}) {
      decode::SessionOptions own = plain;
      if (arm == 1) {
        replay.seed = static_cast<uint64_t>(round) + 1;
        own.source = std::make_shared<draft::ReplaySource>(replay);
        own.depth = {.n_max = options.depth};
      }
      decode::Session session(model, backend, own);
      runs[arm] = run(session, prompt);
      if (!std::equal(runs[arm].tokens.begin(), runs[arm].tokens.end(),
                      replay.recording.begin() + static_cast<std::ptrdiff_t>(prompt.size()))) {
        fmt::print(stderr, "round {}: another answer\n", round);
        return 1;
      }
    }
    token_ms.push_back(runs[0].ms / static_cast<double>(runs[0].timed_tokens));
    step_ms.push_back(runs[1].ms / static_cast<double>(runs[1].steps));
    ratios.push_back(step_ms.back() / token_ms.back());
    all_steps += runs[1].steps;
    all_tokens += runs[1].timed_tokens;
    const decode::Phases& phases = runs[1].phases;
    const auto each = [&](double ms) { return ms / static_cast<double>(runs[1].steps); };
    fmt::print("{}\n", nlohmann::json{{"token_ms", token_ms.back()},
                                      {"step_ms", step_ms.back()},
                                      {"ratio", ratios.back()},
                                      {"steps", runs[1].steps},
                                      {"draft_ms", each(phases.draft)},
                                      {"verify_ms", each(phases.verify)},
                                      {"sample_ms", each(phases.sample)},
                                      {"commit_ms", each(phases.commit)}}
                           .dump());
    std::fflush(stdout);
  }
  fmt::print("{}\n", nlohmann::json{{"schema", "lockstep.bench-replay/1"},
                                    {"model", options.model},
                                    {"device", backend->info().text()},
                                    {"rate", options.rate},
                                    {"depth", options.depth},
                                    {"steps", all_steps},
                                    {"tokens_per_step", static_cast<double>(all_tokens) /
                                                            static_cast<double>(all_steps)},
                                    {"token_ms", median(token_ms)},
                                    {"step_ms", median(step_ms)},
                                    {"step_over_token", median(ratios)}}
                         .dump());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("What a speculative step costs beside a plain token");
  app.add_option("-m", options.model, "GGUF file, or synth:…")->required();
  app.add_option("--device", options.device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--isa", options.isa, "as lockstep run has it");
  app.add_option("-t", options.threads)->check(CLI::Range(1, 1024));
  app.add_option("--rate", options.rate)->check(CLI::Range(0.0, 1.0));
  app.add_option("--depth", options.depth)->check(CLI::Range(1, 64));
  app.add_option("--steps", options.steps, "about so many a run")->check(CLI::Range(1, 100000));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  CLI11_PARSE(app, argc, argv);
  try {
    return measure(options);
  } catch (const Error& error) {
    fmt::print(stderr, "bench_replay: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
