// A row with all that is known around it, for the rules.
#pragma once

#include <fmt/format.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lab/lint/lint.h"

namespace lockstep::lab {

// No engine counted so far: sums and products of counts below it fit.
inline constexpr int64_t kMostCount = 1'000'000'000'000;

// What the rows of one result say together, worked out once.
struct ResultFacts {
  size_t rows = 0;
  size_t cold_suite = 0;  // its prompts, where it is one
  bool all = false;       // some rates divide all n tokens
  bool steps = false;     // some divide n - 1
  std::map<std::string, std::set<std::string>, std::less<>> tokens;  // token hashes by exact_key
};

struct RowContext {
  const Catalog& catalog;
  const LintOptions& options;
  const Catalog::Item& row;
  const Catalog::Item* run;  // null: not known, as the next two
  const Catalog::Item* identity;
  const Catalog::Item* candidate;
  const ResultFacts& result;  // the rows of the same result, this one too

  // A fact that is known, of the row, else of its run; null where neither knows it.
  const Fact* fact(std::string_view name) const;
  std::optional<double> number(std::string_view name) const;
  // A count; not known where it is beyond kMostCount, which V6 calls wrong.
  std::optional<int64_t> integer(std::string_view name) const;
  std::optional<bool> boolean(std::string_view name) const;
  std::string text(std::string_view name) const;
  // A known value of the identity, "effective." or "requested." and a key; "" where not known.
  std::string effective(std::string_view key) const;
  std::string requested(std::string_view key) const;
  // What was drafted with: "" where nothing, or nothing is known.
  std::string drafter() const;
  std::vector<double> numbers(std::string_view name) const;  // a JSON list of numbers
};

inline Finding holds(std::string sentence) {
  return {Outcome::holds, std::move(sentence), ""};
}
inline Finding fails(std::string sentence, std::string advice) {
  return {Outcome::fails, std::move(sentence), std::move(advice)};
}
inline Finding unknown(std::string sentence, std::string advice) {
  return {Outcome::unknown, std::move(sentence), std::move(advice)};
}

Finding check_first(const RowContext& row);
Finding check_fresh(const RowContext& row);
Finding check_canaries(const RowContext& row);
Finding check_identity(const RowContext& row);
Finding check_exact(const RowContext& row);
Finding check_closed(const RowContext& row);
Finding check_metric(const RowContext& row);
Finding check_whole(const RowContext& row);
Finding check_alone(const RowContext& row);
Finding check_treated(const RowContext& row);
Finding check_possible(const RowContext& row);
Finding check_new(const RowContext& row);

// Which tokens a printed rate divides by the time: all n, or the n - 1 after the first. `loose`:
// the rate is a mean over repetitions, and need not be that of the mean time to the last digit.
enum class Denominator : uint8_t { all, steps, either, neither, not_known };
Denominator denominator_of(int64_t n, double ms, double rate, bool loose);
Denominator denominator_of(const RowContext& row);

// Rows with the same key have to give the same tokens; "" where a part of it is not known.
std::string exact_key(const Object& row);

}  // namespace lockstep::lab
