// What was read in a server's log: lives, requests, intervals, contradictions.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::lab::log {

// A whole number of which only bounds are known; known when both are equal.
struct Range {
  int64_t low = 0;
  int64_t high = 0;
  bool known() const { return low == high; }
  bool operator==(const Range&) const = default;
};

// By what a printed decode rate was divided: all n tokens (older servers), or the n - 1 that took a
// decode step, the first being the prompt's (newer ones). Found by arithmetic.
enum class Denominator : uint8_t {
  unknown,  // no rate was printed, or no token
  all,      // n / t gives what is printed, (n - 1) / t does not
  steps,    // (n - 1) / t does, n / t does not
  either,   // both round to it
  neither,  // none does: the line contradicts itself
};

// The words of llama-server's draft line (docs/lab-log.md shows each).
enum class DraftLine : uint8_t { none, gen1, gen2, gen2b, gen3 };

// Where cached_tokens comes from.
enum class CachedFrom : uint8_t {
  nowhere,  // not known: no zero
  log,      // a line says it
  prompt,   // prompt length less the tokens that were evaluated
  end,      // context at the end less what was generated and evaluated
};

// Signs that a request reused the work of earlier ones, or that it did not.
enum class Witness : uint8_t {
  cached_tokens,  // a line says that prompt tokens were taken over
  similarity,     // its slot was chosen because its prompt begins alike
  checkpoint,     // a context checkpoint was restored
  context_end,    // its context ended longer than prompt, output and a cut draft can make it
  cached_zero,    // a line says that none was
  lru,            // its slot was chosen as the least recently used
  reprocessed,    // the whole prompt was forced through again
};

struct Drafting {
  DraftLine line = DraftLine::none;
  int64_t accepted = 0;
  int64_t drafted = 0;
  std::optional<double> printed_ratio;
  double ratio_half_unit = 0.000005;   // half of the ratio's last place
  std::optional<double> printed_mean;  // 2 decimals
  std::vector<double> per_position;    // share of the verify steps with the i-th token accepted
  // Verify steps (passes with a draft); bounds from all that the request itself says.
  Range steps;
  std::optional<int64_t> counted_steps;  // the cumulative statistics lines count them
};

struct Request {
  int64_t line = 0;     // of its decode timing
  int64_t life = 0;     // index
  int64_t ordinal = 0;  // in its life, from 1
  int64_t slot = -1, task = -1;
  std::optional<int64_t> prompt_tokens, cached_tokens;
  CachedFrom cached_from = CachedFrom::nowhere;
  std::optional<int64_t> evaluated_tokens;  // of the prompt
  std::optional<double> prompt_ms, prompt_rate_printed;
  std::optional<int64_t> generated_tokens;
  std::optional<double> decode_ms, decode_rate_printed, decode_per_token_printed;
  std::optional<double> total_ms;
  std::optional<int64_t> total_tokens;
  std::optional<int64_t> end_tokens;  // in the slot when it was released
  std::optional<bool> truncated;
  std::optional<int64_t> graphs_reused;
  Denominator denominator = Denominator::unknown;
  std::optional<double> similarity;
  std::vector<Witness> witnesses;
  std::optional<bool>
      other_slot;  // another slot worked at some time beside it; unknown without launch lines
  bool after_fault = false;       // a fault was printed before it ended
  std::optional<Drafting> draft;  // absent where no draft line was printed: no draft token
  // Milliseconds of drafting in this request, where statistics lines frame it.
  std::optional<double> draft_ms;
};

// One line of vLLM's metrics: an interval over all requests.
struct Interval {
  int64_t line = 0;
  int64_t life = 0;
  Drafting draft;
  double accepted_per_s = 0, drafted_per_s = 0;
};

struct Speculation {
  std::string type;                     // "draft-mtp"
  std::optional<int64_t> n_max, n_min;  // as requested
  std::optional<double> p_min;
  std::optional<int64_t> clamped_to;  // the server says so
};

// One server from start to end, as far as the file shows it.
struct Life {
  std::string source;  // of which of several servers in the file, or ""
  std::string engine;  // "llama-server", "ik_llama.cpp", "vllm"
  std::string build;   // as printed, or ""
  int64_t first_line = 0;
  bool started_here = false;  // its start is in the file
  int64_t requests = 0;
  std::optional<int64_t> n_slots;
  std::vector<Speculation> speculation;
  std::array<int64_t, 5> draft_lines{};         // by DraftLine
  std::array<int64_t, 5> denominators{};        // by Denominator
  std::optional<double> generation_tok_s_mean;  // vLLM's engine lines with a generation under way
  int64_t generation_lines = 0;
  // Effective draft length (accounting.h).
  std::optional<int64_t> draft_length;
  bool draft_length_proved = false;
  std::string draft_length_how;
};

// Something that does not fit together. Never fatal.
struct Contradiction {
  std::string id;  // docs/lab-log.md lists them
  int64_t line = 0;
  int64_t request = -1;  // index among all requests, or -1
  std::string text;
};

// Something the log says that decides what its figures are worth.
struct Notice {
  std::string id;
  int64_t line = 0;
  std::string text;
};

}  // namespace lockstep::lab::log
