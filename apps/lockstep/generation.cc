#include "generation.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "decode/result.h"
#include "draft/auto_depth.h"
#include "draft/factory.h"
#include "engine.h"
#include "output.h"
#include "text/stop_strings.h"
#include "text/utf8_stream.h"

namespace lockstep::app {
namespace {

constexpr double kFloatMax = std::numeric_limits<float>::max();

void set(float& target, const std::optional<double>& value) {
  if (value) target = static_cast<float>(*value);
}
void set(int32_t& target, const std::optional<int64_t>& value) {
  if (value) target = static_cast<int32_t>(*value);
}

// "15043+1", "15043-1.5", "15043-inf".
std::pair<int32_t, float> parse_bias(const std::string& text) {
  const size_t sign = text.find_first_of("+-");
  if (sign != std::string::npos && sign > 0) {
    const std::optional<int64_t> id = parse_integer(text.substr(0, sign));
    const std::optional<double> bias = parse_number(text.substr(sign));
    if (id && *id >= 0 && *id <= INT32_MAX && bias) {
      return {static_cast<int32_t>(*id), static_cast<float>(*bias)};
    }
  }
  bad_use(fmt::format("-l {}: not a token id and a bias; write 15043+1, 15043-1 or 15043-inf",
                      shorten(text)));
}

std::vector<draft::SourceChain> parse_types(const Given& types) {
  try {
    return draft::parse_spec_types(types.value);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", types.name, error.what()));
  }
}

uint64_t draw_seed() {
  uint32_t seed = 0;  // 32 bits, so that llama.cpp takes it too
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed) {
    throw Error(ExitCode::resource, "the system gives no random seed; name one with -s");
  }
  return seed;
}

}  // namespace

void SamplingOptions::bind(Flags& flags) {
  flags.integer("--seed", seed, -1, std::numeric_limits<int64_t>::max());
  flags.number("--temp", temperature, -kFloatMax, kFloatMax);
  flags.integer("--top-k", top_k, std::numeric_limits<int32_t>::min(), INT32_MAX);
  flags.number("--top-p", top_p, -kFloatMax, kFloatMax);
  flags.number("--min-p", min_p, -kFloatMax, kFloatMax);
  flags.integer("--repeat-last-n", repeat_last_n, -1, INT32_MAX);
  flags.number("--repeat-penalty", repeat_penalty, -kFloatMax, kFloatMax);
  flags.number("--presence-penalty", presence_penalty, -kFloatMax, kFloatMax);
  flags.number("--frequency-penalty", frequency_penalty, -kFloatMax, kFloatMax);
  flags.texts("--logit-bias", logit_bias);
  flags.text("--samplers", samplers);
  flags.toggle("--ignore-eos", ignore_eos);
}

sample::Parameters SamplingOptions::make(const text::Tokenizer& tokenizer) const {
  sample::Parameters parameters;
  set(parameters.temperature, temperature);
  set(parameters.top_k, top_k);
  set(parameters.top_p, top_p);
  set(parameters.min_p, min_p);
  set(parameters.repeat_last_n, repeat_last_n);
  set(parameters.repeat_penalty, repeat_penalty);
  set(parameters.presence_penalty, presence_penalty);
  set(parameters.frequency_penalty, frequency_penalty);
  if (samplers) parameters.stages = sample::parse_stages(*samplers);
  for (const std::string& bias : logit_bias) parameters.logit_bias.push_back(parse_bias(bias));
  if (ignore_eos) {
    for (const int32_t id : tokenizer.eog_tokens()) {
      parameters.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
    }
  }
  parameters.seed = seed.value_or(-1) < 0 ? draw_seed() : static_cast<uint64_t>(*seed);
  return parameters;
}

void DraftOptions::bind(Flags& flags) {
  flags.text("--model-draft", model);
  flags.text("--spec-type", types);
  flags.integer_or("auto", "--spec-draft-n-max", n_max, 0, 511);
  flags.integer("--spec-draft-n-min", n_min, 0, 511);
  flags.number("--spec-draft-p-min", p_min, 0, 1);
}

decode::DepthPolicy DraftOptions::depth() const {
  decode::DepthPolicy depth;
  depth.automatic = !n_max;
  depth.n_max = static_cast<int>(n_max.value_or(draft::AutoDepth::kMaxDepth));
  depth.n_min = static_cast<int>(n_min.value_or(0));
  depth.p_min = static_cast<float>(p_min.value_or(0));
  if (depth.n_min > depth.n_max) {
    bad_use(fmt::format("--spec-draft-n-min {} is more than --spec-draft-n-max {}", depth.n_min,
                        depth.automatic ? fmt::format("auto, at most {}", depth.n_max)
                                        : std::to_string(depth.n_max)));
  }
  return depth;
}

std::shared_ptr<draft::Source> DraftOptions::open(const model::Model& target,
                                                  const text::Tokenizer& tokenizer,
                                                  std::shared_ptr<kernels::Backend> backend) const {
  return open_each(target, tokenizer, std::move(backend), 64)(nullptr);
}

std::function<std::shared_ptr<draft::Source>(std::shared_ptr<state::PagePool>)>
DraftOptions::open_each(const model::Model& target, const text::Tokenizer& tokenizer,
                        std::shared_ptr<kernels::Backend> backend, int64_t chunk) const {
  std::vector<draft::SourceChain> chains;
  if (types) {
    chains = parse_types(*types);
  } else if (model) {
    chains = {{draft::SourceKind::model}};
  }
  std::vector<draft::SourceKind> kinds;
  for (const draft::SourceChain& chain : chains) {
    kinds.insert(kinds.end(), chain.begin(), chain.end());
  }
  for (const draft::SourceKind kind : kinds) {
    if (kind == draft::SourceKind::replay) {
      bad_use(fmt::format(
          "{}: drafts from a recording are for lockstep prove; use ngram, suffix or model",
          types->shown));
    }
    if (kind == draft::SourceKind::model && !model) {
      bad_use(fmt::format("{}: model needs a draft model; give one with -md", types->shown));
    }
  }
  if (model && std::find(kinds.begin(), kinds.end(), draft::SourceKind::model) == kinds.end()) {
    bad_use(fmt::format("{} and {} contradict each other; add model to the list", model->shown,
                        types->shown));
  }
  draft::SourceConfig config;
  if (model) config.draft_model = open_drafter(*model, tokenizer);
  config.backend = std::move(backend);
  config.target_n_vocab = target.graph().n_vocab;
  config.model.p_min = static_cast<float>(p_min.value_or(0));
  return [chains, config, chunk](std::shared_ptr<state::PagePool> pool) mutable {
    draft::ModelSourceOptions& of_model = config.model;
    if (pool && config.draft_model && !of_model.kv_pool) {
      of_model.kv_pool = pool;
      of_model.chunk = of_model.read_at_most = chunk;
      of_model.prefixes = std::make_shared<state::PrefixTree>(
          pool, draft::kv_spec_of(*config.draft_model, of_model));
    }
    return draft::make_source(chains, config);
  };
}

std::string Answer::finish_name() const {
  return stop.empty() ? decode::finish_name(finish) : "stop";
}

Answer answer(decode::Session& session, const text::Tokenizer& tokenizer,
              const std::vector<int32_t>& history, const AnswerOptions& options) {
  Answer result;
  text::Utf8Stream characters;
  text::StopStrings stops(options.stops);
  const auto emit = [&](const std::string& text) {
    if (text.empty()) return;
    result.text += text;
    const auto start = std::chrono::steady_clock::now();
    options.print(text);
    session.add_emit_ms(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
            .count());
  };
  const auto interrupted = [&] { return options.interrupted && *options.interrupted != 0; };

  Progress progress;
  std::string heading = options.heading;
  session.begin(history, [&](int64_t done, int64_t total) {
    if (!heading.empty()) options.print(std::exchange(heading, ""));
    // A short prompt is done before anyone could read of it.
    if (total > 256) progress.show(fmt::format("prompt {}/{}", done, total));
    return !interrupted();
  });
  progress.clear();
  while (!session.finished()) {
    if (interrupted()) {
      session.stop();
      break;
    }
    for (const int32_t token : session.step().tokens) {
      result.ids.push_back(token);
      emit(stops.push(characters.push(tokenizer.piece(token, options.special))));
      if (stops.stopped()) break;
    }
    if (stops.stopped()) {
      // A draft may have brought tokens beyond the stop string; without it they would not be there.
      session.truncate(session.prompt_tokens() + static_cast<int64_t>(result.ids.size()));
      session.stop();
    }
  }
  if (!stops.stopped()) {
    emit(stops.push(characters.flush()));
    emit(stops.flush());
  }
  if (const auto& source = session.options().source) {
    const std::string fault = source->take_fault();
    if (!fault.empty()) {
      note(
          fmt::format("the draft model: {}; drafts end there, the answer stays what it is", fault));
    }
  }
  result.finish = session.finish();
  result.stop = std::string(stops.stop());
  return result;
}

void print_closing_line(const decode::Session& session) {
  // Not by make_result: that hashes the whole model file, which a closing line need not wait for.
  const decode::Timing timing = session.timing();
  const decode::DraftCounts& drafts = session.draft_counts();
  const int64_t tokens = session.generated_tokens();
  std::string line = fmt::format("{} prompt tokens ({} cached), {} generated",
                                 session.prompt_tokens(), session.cached_tokens(), tokens);
  if (tokens > timing.first_tokens && timing.decode_ms > 0) {
    line += fmt::format(", {:.2f} tok/s after the first",
                        static_cast<double>(tokens - timing.first_tokens) * 1e3 / timing.decode_ms);
  }
  line += fmt::format(", {:.0f} ms to the first", timing.ttft_ms);
  if (!drafts.source.empty() && drafts.drafted == 0) {
    line += fmt::format(", {}: nothing drafted", drafts.source);
  } else if (!drafts.source.empty()) {
    line += fmt::format(", {}: {}/{} drafted tokens accepted, mean length {:.2f}", drafts.source,
                        drafts.accepted, drafts.drafted,
                        static_cast<double>(drafts.accepted + drafts.steps) /
                            static_cast<double>(std::max<int64_t>(1, drafts.steps)));
  }
  line += fmt::format(", seed {}, token sha256 {}", session.options().sampling.seed,
                      decode::token_sha256(session.generated()).substr(0, 16));
  if (session.model().synthetic()) line += ", synthetic weights";
  if (session.finish() == decode::Finish::context_full) line += "; the context is full";
  if (session.finish() == decode::Finish::fault) line += "; fault: " + session.fault();
  note(line);
}

}  // namespace lockstep::app
