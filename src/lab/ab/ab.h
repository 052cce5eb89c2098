// The verdict on B against A: refusals first, then exactness, then statistics over blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/runs/runs.h"
#include "lab/stats/bootstrap.h"
#include "lab/stats/distributions.h"
#include "lab/stats/equivalence.h"

namespace lockstep::lab::ab {

enum class Verdict { better, not_better, unknown, inexact, invalid };
std::string_view verdict_name(Verdict verdict);

enum class Method { signed_rank, group_sequential, always_valid };
std::string_view method_name(Method method);

struct Options {
  double alpha = 0.05;         // two-sided
  double min_effect = 0;       // log ratio: better means the whole interval lies above it
  double no_worse_margin = 0;  // log ratio > 0 for "no worse than"; 0: not asked
  Method method = Method::signed_rank;
  std::vector<int64_t> looks;  // of group_sequential
  std::optional<double> gain;  // log ratio hoped for: futility stops of group_sequential
  double tau = 1;              // of always_valid, in SDs
  uint64_t seed = 1;           // of the bootstrap
};

// More units than this are refused: Walsh averages are their square in number.
inline constexpr int64_t kMostUnits = 4000;

// A refusal: the rule and what was found.
struct Reason {
  std::string rule;  // "V7 metric"
  std::string text;
};

// One unit of inference: a block, or blocks that share a server.
struct Unit {
  std::string name;
  double log_ratio = 0;                                // of rates, B to A
  std::optional<double> tokens_per_step, ms_per_step;  // log ratios
};

struct Look {
  int64_t n = 0;
  stats::Interval interval;
  std::string says;  // "", or why it stopped here
};

struct Exactness {
  std::string cls;               // V5's class
  bool judged = false;           // hashes were there and the class asks for equality
  int64_t compared = 0;          // prompts whose hashes were compared
  int64_t without_hash = 0;      // rows
  int64_t different = 0;         // prompts
  std::string first_difference;  // prompt and both hashes
};

struct Result {
  Verdict verdict = Verdict::unknown;
  std::vector<Reason> reasons;  // of invalid, inexact and unknown
  std::vector<std::string> notes;
  Exactness exactness;
  std::string arm_a, arm_b, metric;
  int64_t starts_a = 0, starts_b = 0, rows_a = 0, rows_b = 0, prompts = 0;
  int64_t unpaired_blocks = 0;
  std::vector<Unit> units;  // those that count: up to the look that stopped
  int64_t units_given = 0;
  // Of the units; not set where the verdict is inexact or invalid, or nothing can be computed.
  bool has_effect = false;
  double estimate = 0;  // log ratio: Hodges–Lehmann, or the mean of a sequential method
  stats::Interval interval;
  double level = 0;                                    // that the interval attains
  std::optional<double> sd;                            // of the units
  std::optional<double> tokens_per_step, ms_per_step;  // medians over units
  bool same_tokens_per_step = false;                   // equal in every unit
  std::optional<stats::BootstrapIntervals> bootstrap;  // of fixed data with enough units
  std::vector<Look> looks;
  std::optional<double> sign_e_value;  // of always_valid: distribution-free, beside the interval
  std::optional<stats::Answer> no_worse;
  double no_worse_level = 0;                // of the one-sided statement
  std::optional<double> smallest_provable;  // log ratio, at 80 % power with these units and SD
};

// a and b: an arm each; or one file with two arms, split by split_arms. Throws nothing: what cannot
// be compared is the verdict `invalid` with its reasons.
Result judge(const runs::Runs& a, const runs::Runs& b, const Options& options);

// The two arms of one file: A is the one called control, a or baseline, otherwise the first to
// appear. Throws Error(bad_use) unless there are exactly two.
std::pair<runs::Runs, runs::Runs> split_arms(const runs::Runs& both);

}  // namespace lockstep::lab::ab
