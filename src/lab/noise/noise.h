// The noise floor: what the same thing measured twice shows, and what a campaign over such noise
// can prove.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lab/noise/ladder.h"
#include "lab/noise/recipe.h"
#include "lab/runs/runs.h"
#include "lab/stats/change_points.h"
#include "lab/stats/series.h"
#include "lab/stats/signed_rank.h"
#include "lab/stats/summary.h"

namespace lockstep::lab::noise {

struct Options {
  double alpha = 0.05, power = 0.8;
  uint64_t seed = 1;  // of the permutations
};

// Smallest effects that n blocks prove with the power asked for, as log ratios.
struct Provable {
  int64_t blocks = 0;
  double normal = 0, signed_rank = 0;
  double at_upper_sd = 0;  // signed_rank with the upper end of the SD's interval
};
std::vector<Provable> provable_effects(double sd, double sd_high, const Options& options);

// A series of levels in time: outliers, drift over the whole, steps.
struct SeriesReport {
  std::vector<double> values;      // log rates
  std::vector<std::string> names;  // of the values
  std::vector<stats::Outlier> outliers;
  std::optional<stats::Drift> drift;  // of 5 and more; slope a value
  std::vector<stats::ChangePoint> steps;
  int64_t cut_at_start = 0;  // values that MSER would leave out
};
SeriesReport study_series(std::vector<double> values, std::vector<std::string> names,
                          const Options& options);

struct WarmUpReport {
  stats::WarmUp warm_up;
  // Why it could not be judged: no start has two rows, or first rows have prompts of their own.
  std::string why_not;
};

// A/A runs: blocks with two arms of the same thing; or one arm, whose starts are paired in order.
struct Report {
  std::string pairing;             // in words
  std::vector<std::string> names;  // of the blocks
  std::vector<double> log_ratios;  // of the blocks
  std::vector<stats::Outlier> outliers;
  double sd = 0;
  stats::Interval sd_interval;       // of level 1 - alpha
  stats::SignedRankInterval centre;  // of the ratios: off 0 means the arms are not the same
  std::vector<Provable> provable;
  SeriesReport controls;  // one value a server start, in the file's order
  WarmUpReport warm_up;
  int64_t starts = 0, rows = 0;
};
// Throws Error(bad_file) where there are fewer than two blocks (or four starts of one arm), blocks
// of other prompts, or more than one metric.
Report study_runs(std::span<const runs::Runs> files, const Options& options);

// A table of runs with no recipe column.
struct TableReport {
  Table table;
  std::vector<Placement> placements;
  std::vector<Group> groups;
  int64_t placed = 0;
  stats::PooledSd pooled;           // over all groups with two rows and more, tok/s
  stats::Interval pooled_interval;  // of level 1 - alpha
  double relative_sd = 0;           // pooled, of the mean rate of those rows: a log SD of one row
  std::vector<size_t> named;        // named controls in time
  std::vector<stats::Outlier> named_outliers;
  SeriesReport controls;  // the named controls in time
  Threshold limit;
  Ladder promoted, reported;
  std::vector<Provable> provable;  // of blocks of two such rows: SD * sqrt(2)
};
TableReport study_table(Table table, const std::vector<double>& reported, const Options& options);

}  // namespace lockstep::lab::noise
