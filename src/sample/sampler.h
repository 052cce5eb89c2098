// The token at a position as a pure function of its logits row, the history, the parameters, and
// noise keyed by (seed, position, token id, choice index). Law: docs/numerics.md "Sampling".
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep::sample {

enum class Stage : uint8_t { penalties, top_k, top_p, min_p, temperature };

// Defaults are llama.cpp b11434's. Floats are decimal -> binary64 -> binary32 (law).
struct Parameters {
  float temperature = 0.8f;
  int32_t top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  int32_t repeat_last_n = 64;      // 0: off, -1: the whole context
  float repeat_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  uint64_t seed = 0;
  uint32_t choice_index = 0;       // `n` of the OpenAI surface
  std::vector<std::pair<int32_t, float>> logit_bias;   // -inf removes the id
  std::vector<Stage> stages = {Stage::penalties, Stage::top_k, Stage::top_p, Stage::min_p,
                               Stage::temperature};

  // Throws Error(bad_use) naming the parameter, its value and the accepted range.
  void validate(int64_t n_vocab) const;
};

// "penalties;top_k;top_p;min_p;temperature" (llama.cpp's --samplers). Unknown names are refused.
std::vector<Stage> parse_stages(std::string_view text);

struct Choice {
  int32_t token = -1;
  bool fault = false;         // the raw row holds a non-finite element: nothing was chosen
};

class Sampler {
 public:
  Sampler(Parameters parameters, int64_t n_vocab);
  const Parameters& parameters() const { return parameters_; }

  // logits: raw row [n_vocab]; history: every token before the chosen one (prompt, accepted, and the
  // draft tokens of this pass before this row); position = history.size() unless the caller's
  // history is cut. Const in effect: same arguments, same choice.
  Choice choose(std::span<const float> logits, std::span<const int32_t> history, int64_t position);

 private:
  Parameters parameters_;
  int64_t n_vocab_;
  std::vector<float> row_;          // work space
  std::vector<int32_t> order_;
};

struct TokenLogprob {
  int32_t id = -1;
  double logprob = 0;
};
// Log-probabilities of the raw row (law: Reported log-probabilities), W over the whole row.
double logprob_of(std::span<const float> logits, int32_t id);
// The n most probable, by (logit descending, id ascending).
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n);

}  // namespace lockstep::sample
