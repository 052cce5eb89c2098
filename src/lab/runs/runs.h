// Rows of speed, as lab ab and lab noise read them: lockstep.lab.runs/1 (docs/lab-statistics.md) or
// a CSV table. The numbers may come from any engine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/stats/effect.h"

namespace lockstep::lab::runs {

// One request.
struct Row {
  std::string block, arm, start;  // start: one life of a server; the same name is the same life
  std::string prompt, prompt_class;
  int64_t order = 0;  // since the server's start, from 0
  double tok_s = 0;   // above 0, finite
  std::optional<int64_t> prompt_tokens, cached_tokens, generated_tokens;
  std::optional<double> decode_ms;
  std::optional<int64_t> steps, drafted, accepted;
  std::string token_sha256;  // "" where it is not there

  // Tokens a step and ms a step, where decode_ms and steps are known: their ratio is tok_s.
  stats::Speed speed() const;
};

// What the printed rate divides, as far as generated_tokens and decode_ms tell (within 0.02 %).
enum class Denominator { unknown, all_tokens, after_first, other };
Denominator denominator(const Row& row);
std::string_view denominator_name(Denominator denominator);

struct Runs {
  std::string source;  // path or name, for messages
  std::string metric;  // id of the metric's definition; "" where it is not said
  std::string
      exactness;  // V5's class: bits, tokens, repeatable, canary, quality; "" where not said
  std::vector<Row> rows;      // in the file's order
  int64_t skipped = 0;        // rows of a table that could not be read
  std::string first_skipped;  // why, and where
};

// Throws Error(bad_file), naming source and place, for what cannot be read at all. A table's bad
// rows are counted and left out; JSON is refused as a whole.
Runs parse_runs_json(std::string_view text, std::string_view source);
Runs parse_runs_csv(std::string_view text, std::string_view source);
// By what the text begins with: '{' is JSON.
Runs parse_runs(std::string_view text, std::string_view source);

// The whole file, at most 64 MiB. Throws Error(bad_file).
std::string read_file(const std::filesystem::path& path);

}  // namespace lockstep::lab::runs
