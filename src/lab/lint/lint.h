// Whether a result may be quoted: the lab's validity rules V1 to V12, row by row.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/results/catalog.h"

namespace lockstep::lab {

enum class Outcome : uint8_t {
  holds,
  fails,
  unknown,  // the facts that would decide it are not there. Never taken for holds
};
std::string_view name_of(Outcome outcome);

struct Rule {
  std::string_view id, name, text;
};
inline constexpr std::array<Rule, 12> kRules = {{
    {"V1", "first", "the headline is the first row after start, or the median of a cold suite"},
    {"V2", "fresh", "two witnesses agree that nothing was reused, and none contradicts"},
    {"V3", "canaries", "all pass, and they went the ways that the speed rows went"},
    {"V4", "identity", "complete, effective as requested, the control's but for what is changed"},
    {"V5", "exact", "the tokens are the oracle's"},
    {"V6", "closed", "the counts add up"},
    {"V7", "metric", "one definition of the rate, and it is known which"},
    {"V8", "whole", "the requested length and the whole suite, with a known end"},
    {"V9", "alone", "no other slot, process, profiler or made-up acceptance"},
    {"V10", "treated", "something shows that what was changed ran"},
    {"V11", "possible", "below the memory's limit and above its floor"},
    {"V12", "new", "not rejected before under this lane, or its retry condition holds"},
}};

struct Finding {
  Outcome outcome = Outcome::unknown;
  std::string sentence;  // what is so
  std::string advice;    // what to do, or "" where it holds
};

struct LintedRow {
  std::string id;                    // of the row, or of a run that has no rows
  std::string name;                  // for people
  std::array<Finding, 12> findings;  // in the order of kRules
};

struct LintOptions {
  std::optional<double> bandwidth_gb_s;  // 1e9 bytes a second; else the result's own
  std::optional<double> bytes_per_pass;  // of a pass of one row; else the result's own
  const Catalog* oracle = nullptr;       // a result with drafting off
  const Catalog* control = nullptr;      // what it is compared with
  const Catalog::Item* control_item = nullptr;
  const Catalog* ledger = nullptr;  // for V10 and V12
  std::string artifact;             // verdicts on runs of this artifact are its own
  std::string lane;
};

// Every row of the catalog, and every run without rows; or the one item asked for.
std::vector<LintedRow> lint(const Catalog& catalog, const LintOptions& options,
                            const Catalog::Item* only = nullptr);

}  // namespace lockstep::lab
