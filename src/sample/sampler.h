// The token at a position as a pure function of its logits row, the history, the parameters, and
// noise keyed by (seed, position, token id, choice index). Law: docs/numerics/sampling.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sample/noise.h"
#include "sample/row.h"

namespace lockstep::sample {

enum class Stage : uint8_t { penalties, top_k, top_p, min_p, temperature };
const char* stage_name(Stage stage);  // "penalties", "top_k", …
std::vector<Stage> default_stages();  // all, in the order above

// Defaults are llama.cpp b11434's. Floats are decimal -> binary64 -> binary32 (law).
struct Parameters {
  float temperature = 0.8f;    // <= 0: the first candidate, without noise
  int32_t top_k = 40;          // <= 0: off
  float top_p = 0.95f;         // >= 1: off
  float min_p = 0.05f;         // <= 0: off
  int32_t repeat_last_n = 64;  // 0: off, -1: the whole history
  float repeat_penalty = 1.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  uint64_t seed = 0;
  uint32_t choice_index = 0;                               // `n` of the OpenAI surface
  std::vector<std::pair<int32_t, float>> logit_bias = {};  // -inf removes the id
  std::vector<Stage> stages = default_stages();

  // Throws Error(bad_use) naming the parameter, its value and the accepted range.
  void validate(int64_t n_vocab) const;
  // Whether the penalties stage does anything.
  bool has_penalties() const;
  bool operator==(const Parameters&) const = default;
};

// "penalties;top_k;top_p;min_p;temperature" (llama.cpp's --samplers, its other spellings of these
// names included). Throws Error(bad_use) for unknown names, names of llama.cpp's samplers that are
// not here, and names that stand twice.
std::vector<Stage> parse_stages(std::string_view text);

// A decimal number as the law reads parameters: decimal -> binary64 -> binary32, each rounded to
// nearest even. nullopt: not a number, or something after it.
std::optional<float> parse_parameter(std::string_view text);

enum class ChoiceFault : uint8_t {
  none,
  non_finite_logit,  // the raw row holds an element whose exponent bits are all set
  no_candidate,      // every id was removed
};
const char* choice_fault_name(ChoiceFault fault);

struct Choice {
  int32_t token = -1;
  bool fault = false;  // nothing was chosen
  ChoiceFault reason = ChoiceFault::none;
};

// One per thread: choose() uses work space of the object. Otherwise without state.
class Sampler {
 public:
  // Throws as Parameters::validate.
  Sampler(Parameters parameters, int64_t n_vocab);
  const Parameters& parameters() const { return parameters_; }
  int64_t n_vocab() const { return n_vocab_; }

  // logits: raw row [n_vocab], only read; history: every token before the chosen one (prompt,
  // accepted, and the draft tokens of this pass before this row); position: 0-based index of the
  // token being chosen, history.size() unless the caller's history is cut. Same arguments, same
  // choice, whatever was chosen before.
  Choice choose(std::span<const float> logits, std::span<const int32_t> history, int64_t position);

  // How many of a row's greatest elements decide the choice, where the rest can't matter: 1 without
  // noise, top_k where it comes before what weighs the whole row. None: the row is needed.
  std::optional<int64_t> candidates_needed() const;
  // The choice of a finite row of which these are the elements from some bound on, each id once, at
  // least candidates_needed() of them or all (std::logic_error where it says none, or there is
  // none).
  Choice choose_among(std::span<const Candidate> greatest, std::span<const int32_t> history,
                      int64_t position);

 private:
  struct Weighted {
    Candidate candidate;
    uint64_t weight;
  };
  struct Best;

  Choice decide(std::span<const int32_t> history, int64_t position);
  Choice decide_row(std::span<const int32_t> history, int64_t position);
  void apply_bias();
  void apply_penalties(std::span<const int32_t> history);
  void divide_by_temperature();
  float penalised(float x, int32_t count) const;
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  void keep_first();
  int32_t draw(int64_t position);
  void offer(Best& best, float x, int32_t id, uint32_t word) const;
  void offer_block(Best& best, const NoiseKey& key, int64_t block) const;

  void own_row();
  void set_element(int32_t id, float x);
  float greatest() const;
  int64_t survivors() const;
  double scaled(float x, float x_max) const;
  float top_bound(int64_t k);
  uint64_t weigh_list(float x_max);
  uint64_t row_weight(float x_max);
  template <typename Keep>
  void list_from_row(Keep keep);

  Parameters parameters_;
  int64_t n_vocab_;

  // Of the row at hand. The survivors are the whole row but its removed ids, then, once a stage has
  // thinned them, a list.
  const float* x_ = nullptr;  // the caller's row, or row_ once an element had to change
  int64_t removed_ = 0;       // elements of row_ that are kRemoved
  bool dense_ = true;
  double t_ = 1.0;  // the temperature, once its stage was passed
  std::vector<float> row_;
  std::vector<float> block_max_;
  std::vector<float> scratch_;
  std::vector<uint64_t> weights_;
  std::vector<Candidate> list_;
  std::vector<Weighted> weighted_;
  std::vector<int32_t> count_;  // [n_vocab], zero between calls
  std::vector<int32_t> counted_;
};

struct TokenLogprob {
  int32_t id = -1;
  double logprob = 0;
};
// Log-probabilities of the raw row (law: Reported log-probabilities), W over the whole row. The row
// must be finite: NaN for an id (or rows) where it is not.
double logprob_of(std::span<const float> logits, int32_t id);
// The n most probable, by (logit descending, id ascending).
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n);

}  // namespace lockstep::sample
