// Runs sessions and compares what they did with what plain decoding did.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "decode/session.h"
#include "draft/chain.h"
#include "draft/factory.h"
#include "hooked_backend.h"
#include "sanitized.h"
#include "synth/synth.h"

namespace lockstep::decode::test {

using Tokens = std::vector<int32_t>;

using lockstep::test::kSanitized;

// Small enough for thousands of runs: one block of each kind of layer, a window shorter than a
// page.
inline std::shared_ptr<const model::Model> tiny_model(const std::string& spec) {
  static std::map<std::string, std::shared_ptr<const model::Model>> made;
  auto& model = made[spec];
  if (!model) model = model::Model::load(synth::make_in_memory(synth::parse_synth(spec)));
  return model;
}

inline constexpr int32_t kVocab = 300;
inline const char* const kLlama =
    "llama-tiny,layers=2,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=128,vocab=300,ctx=512@q8_0,"
    "seed=1";
inline const char* const kLlamaOther =
    "llama-tiny,layers=1,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=300,ctx=512@q8_0,seed="
    "2";
inline const char* const kGemma =
    "gemma3-tiny,layers=7,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=300,ctx=512,window="
    "24@"
    "q8_0,seed=1";

struct Trace {
  Tokens tokens;                     // generated
  std::map<int64_t, Digest> rows;    // position: hash of the logits row that chose it
  bool looks_at_rows = true;         // otherwise there are none
  std::map<int64_t, Digest> states;  // size: hash of the state after a pass
  Finish finish = Finish::none;
  std::string fault;
  Digest state{};  // at the end
  DraftCounts draft;
  std::map<int64_t, int64_t> widths;  // rows of a pass: passes
  int64_t cached = 0;
};

class Recorder final : public Inspector {
 public:
  explicit Recorder(Trace& trace) : trace_(trace) {}
  void on_logits(int64_t position, std::span<const float> row) override {
    trace_.rows[position] = sha256(std::as_bytes(row));
  }
  bool wants_rows() const override { return trace_.looks_at_rows; }
  void on_pass(int64_t rows, const state::KvCache& kv) override {
    ++trace_.widths[rows];
    trace_.states[kv.size()] = kv.hash();
  }

 private:
  Trace& trace_;
};

// Begins and goes on to the end (or for so many steps).
inline Trace run(Session& session, std::span<const int32_t> history, int steps = 1 << 30,
                 bool looks_at_rows = true) {
  Trace trace;
  trace.looks_at_rows = looks_at_rows;
  Recorder recorder(trace);
  session.set_inspector(&recorder);
  session.begin(history);
  trace.cached = session.cached_tokens();
  for (int i = 0; i < steps && !session.finished(); ++i) {
    const Step step = session.step();
    trace.tokens.insert(trace.tokens.end(), step.tokens.begin(), step.tokens.end());
    if (step.finish != session.finish()) trace.fault = "step and session finish differently";
  }
  session.set_inspector(nullptr);
  trace.finish = session.finish();
  trace.fault += session.fault();
  trace.state = session.kv().hash();
  trace.draft = session.draft_counts();
  return trace;
}

// What differs first, or nothing. Every row and state of `other` must be one that `plain` has, byte
// for byte; with `whole`, both ended alike.
inline std::optional<std::string> difference(const Trace& plain, const Trace& other,
                                             bool whole = true) {
  const size_t n = std::min(plain.tokens.size(), other.tokens.size());
  for (size_t i = 0; i < n; ++i) {
    if (plain.tokens[i] != other.tokens[i]) {
      return fmt::format("token {}: plain {}, other {}", i, plain.tokens[i], other.tokens[i]);
    }
  }
  if (other.tokens.size() > plain.tokens.size()) return "more tokens than plain";
  if (other.rows.size() != (other.looks_at_rows ? other.tokens.size() : 0)) {
    return "not one logits row a token";
  }
  for (const auto& [position, row] : other.rows) {
    const auto mine = plain.rows.find(position);
    if (mine == plain.rows.end()) return fmt::format("a row at {} that plain has not", position);
    if (mine->second != row) return fmt::format("logits row at {}", position);
  }
  for (const auto& [size, state] : other.states) {
    const auto mine = plain.states.find(size);
    if (mine == plain.states.end()) return fmt::format("a state of {} that plain has not", size);
    if (mine->second != state) return fmt::format("state of {} tokens", size);
  }
  if (!whole) return std::nullopt;
  if (other.tokens.size() != plain.tokens.size()) return "fewer tokens than plain";
  if (other.finish != plain.finish) {
    return fmt::format("plain finishes by {}, other by {}", finish_name(plain.finish),
                       finish_name(other.finish));
  }
  if (other.fault != plain.fault) {
    return fmt::format("plain faults \"{}\", other \"{}\"", plain.fault, other.fault);
  }
  if (other.state != plain.state) return "state at the end";
  return std::nullopt;
}

// Random ids with pieces that come again, so that lookups find something.
inline Tokens random_prompt(std::mt19937_64& rng, size_t length) {
  Tokens tokens;
  while (tokens.size() < length) {
    if (tokens.size() > 8 && rng() % 2 == 0) {
      const size_t from = rng() % (tokens.size() - 5);
      for (size_t i = 0; i < 5; ++i) tokens.push_back(tokens[from + i]);
    } else {
      tokens.push_back(static_cast<int32_t>(rng() % kVocab));
    }
  }
  tokens.resize(length);
  return tokens;
}

inline Tokens joined(const Tokens& a, std::span<const int32_t> b) {
  Tokens both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

// Junk of every kind: wrong ids, ids outside the vocabulary, more than was asked for.
class JunkSource final : public draft::Source {
 public:
  explicit JunkSource(uint64_t seed) : rng_(seed) {}
  std::string name() const override { return "junk"; }
  draft::Proposal extend(std::span<const int32_t> history, std::span<const int32_t>,
                         int n_max) override {
    draft::Proposal proposal;
    const size_t n = rng_() % (2 * static_cast<size_t>(n_max) + 2);
    for (size_t i = 0; i < n; ++i) {
      switch (rng_() % 8) {
        case 0:
          proposal.tokens.push_back(-1 - static_cast<int32_t>(rng_() % 5));
          break;
        case 1:
          proposal.tokens.push_back(kVocab + static_cast<int32_t>(rng_() % 5));
          break;
        case 2:
          proposal.tokens.push_back(history[rng_() % history.size()]);
          break;
        default:
          proposal.tokens.push_back(static_cast<int32_t>(rng_() % kVocab));
      }
    }
    return proposal;
  }
  void observe(std::span<const int32_t>, int) override {}
  void truncate(int64_t) override {}

 private:
  std::mt19937_64 rng_;
};

// Two sources, of which the second drafts on from the first.
inline std::shared_ptr<draft::Source> chained(std::shared_ptr<draft::Source> first,
                                              std::shared_ptr<draft::Source> second) {
  return std::make_shared<draft::ChainSource>(draft::Sources{std::move(first), std::move(second)});
}

// Time that jumps, back too, by amounts of every size.
inline std::function<double()> wild_clock(uint64_t seed) {
  return [now = 0.0, rng = std::mt19937_64(seed)]() mutable {
    constexpr double kJumps[] = {0.0, 1e-9, 1e-3, 1.0, 30.0, 1e6, -1.0, -1e6, 1e300, NAN, INFINITY};
    const double jump = kJumps[rng() % std::size(kJumps)];
    if (!std::isfinite(now) || !std::isfinite(now + jump)) return now = 0.0, jump;
    return now += jump;
  };
}

inline std::shared_ptr<draft::Source> replay_source(const Tokens& recording, double rate,
                                                    uint64_t seed = 3) {
  draft::ReplayOptions options;
  options.recording = recording;
  options.rates = {rate};
  options.seed = seed;
  options.n_vocab = kVocab;
  return std::make_shared<draft::ReplaySource>(options);
}

}  // namespace lockstep::decode::test
