#include "lab/noise/noise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "lab/ab/units.h"
#include "lab/stats/power.h"

namespace lockstep::lab::noise {
namespace {

constexpr int kPermutations = 999;  // fewer for long series: a permutation costs their square
constexpr size_t kMinSegment = 5;
constexpr size_t kMostForSteps = 2000;  // e_divisive is quadratic, and permuted

// Starts in the order in which their first rows appear, each with its rows.
struct Start {
  std::string name, arm, block;
  std::vector<const runs::Row*> rows;  // by order
};

std::vector<Start> starts_of(const runs::Runs& all) {
  std::vector<Start> out;
  std::map<std::pair<std::string, std::string>, size_t> place;
  for (const runs::Row& row : all.rows) {
    const auto [at, made] = place.try_emplace({row.arm, row.start}, out.size());
    if (made) out.push_back({row.start, row.arm, row.block, {}});
    out[at->second].rows.push_back(&row);
  }
  for (Start& start : out) {
    std::stable_sort(start.rows.begin(), start.rows.end(),
                     [](const runs::Row* a, const runs::Row* b) { return a->order < b->order; });
  }
  return out;
}

double level_of(const Start& start) {
  std::vector<double> logs;
  for (const runs::Row* row : start.rows) logs.push_back(std::log(row->tok_s));
  return stats::median(logs);
}

// First rows against later ones, each less what its prompt has in other places of a start.
WarmUpReport study_warm_up(const std::vector<Start>& starts, double level) {
  WarmUpReport out;
  std::map<std::string, std::vector<double>> later;  // log rates of a prompt that is not first
  for (const Start& start : starts) {
    for (size_t i = 1; i < start.rows.size(); ++i) {
      later[start.rows[i]->prompt].push_back(std::log(start.rows[i]->tok_s));
    }
  }
  if (later.empty()) {
    out.why_not = "no start has more than one row";
    return out;
  }
  std::vector<double> firsts, rests;
  for (const Start& start : starts) {
    const auto own = later.find(start.rows[0]->prompt);
    if (own == later.end() || start.rows.size() < 2) continue;
    if (static_cast<int64_t>(firsts.size()) == ab::kMostUnits) break;
    firsts.push_back(std::log(start.rows[0]->tok_s) - stats::median(own->second));
    std::vector<double> rest;
    for (size_t i = 1; i < start.rows.size(); ++i) {
      rest.push_back(std::log(start.rows[i]->tok_s) - stats::median(later[start.rows[i]->prompt]));
    }
    rests.push_back(stats::median(rest));
  }
  if (firsts.empty()) {
    out.why_not =
        "first rows have prompts that no later row has: a slow first row and a slow prompt "
        "can't be told apart";
    return out;
  }
  out.warm_up = stats::warm_up(firsts, rests, level);
  return out;
}

}  // namespace

std::vector<Provable> provable_effects(double sd, double sd_high, const Options& options) {
  std::vector<Provable> out;
  for (const int64_t n : {6, 8, 10, 12, 16, 20, 30, 40, 50}) {
    out.push_back({n, stats::smallest_effect_normal(n, sd, options.alpha, options.power),
                   stats::smallest_effect_signed_rank(n, sd, options.alpha, options.power),
                   stats::smallest_effect_signed_rank(n, sd_high, options.alpha, options.power)});
  }
  return out;
}

SeriesReport study_series(std::vector<double> values, std::vector<std::string> names,
                          const Options& options) {
  SeriesReport out;
  out.outliers = stats::tukey_outliers(values);
  // Slopes of all pairs, too, are quadratic.
  const std::span<const double> studied(values.data(), std::min(values.size(), kMostForSteps));
  out.drift = stats::theil_sen(studied, 1 - options.alpha);
  out.steps = stats::e_divisive(studied, options.alpha, kMinSegment, kPermutations, options.seed);
  out.cut_at_start = static_cast<int64_t>(stats::mser_truncation(studied));
  out.values = std::move(values);
  out.names = std::move(names);
  return out;
}

Report study_runs(std::span<const runs::Runs> files, const Options& options) {
  // Files of one arm each are the sides of one experiment, and their blocks pair by name. Otherwise
  // they are sessions of their own, where equal names mean nothing.
  std::set<std::string> seen;
  bool sides = true;
  for (const runs::Runs& file : files) {
    std::set<std::string> own;
    for (const runs::Row& row : file.rows) own.insert(row.arm);
    for (const std::string& arm : own) sides &= seen.insert(arm).second;
  }
  runs::Runs all;
  all.source = files[0].source;
  all.metric = files[0].metric;
  for (const runs::Runs& file : files) {
    if (file.metric != all.metric) {
      throw Error(
          ExitCode::bad_file,
          fmt::format("{}: its metric is \"{}\", that of {} \"{}\" (V7)", shorten(file.source),
                      shorten(file.metric), shorten(all.source), shorten(all.metric)));
    }
    for (runs::Row row : file.rows) {
      if (!sides) {
        const std::string session = fmt::format("file {} ", &file - files.data() + 1);
        row.block = fmt::format("{}{}", session, row.block);
        row.start = fmt::format("{}{}", session, row.start);
      }
      all.rows.push_back(std::move(row));
    }
  }
  const std::vector<Start> starts = starts_of(all);
  if (starts.size() > static_cast<size_t>(2 * ab::kMostUnits)) {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: {} server starts; more than {} are not studied at once",
                            shorten(all.source), starts.size(), 2 * ab::kMostUnits));
  }
  std::set<std::string> arms;
  for (const Start& start : starts) arms.insert(start.arm);

  Report out;
  out.rows = static_cast<int64_t>(all.rows.size());
  out.starts = static_cast<int64_t>(starts.size());
  runs::Runs a, b;
  if (arms.size() == 2) {
    for (const runs::Row& row : all.rows) {
      (row.arm == starts[0].arm ? a : b).rows.push_back(row);
    }
    out.pairing = fmt::format("arms \"{}\" and \"{}\" of each block", escape(*arms.begin(), 80),
                              escape(*arms.rbegin(), 80));
  } else if (arms.size() == 1) {
    for (size_t i = 0; i + 1 < starts.size(); i += 2) {
      for (const bool second : {false, true}) {
        for (const runs::Row* row : starts[i + (second ? 1 : 0)].rows) {
          runs::Row copy = *row;
          copy.block = fmt::format("starts {} and {}", i + 1, i + 2);
          (second ? b : a).rows.push_back(std::move(copy));
        }
      }
    }
    out.pairing = "one arm: its server starts in order, first with second, third with fourth, ...";
  } else {
    throw Error(
        ExitCode::bad_file,
        fmt::format("{}: {} arms; the floor needs one thing measured twice: two arms of it, or "
                    "one arm alone",
                    shorten(all.source), arms.size()));
  }
  const ab::Paired paired = ab::pair_blocks(a, b);
  if (!paired.unequal_prompts.empty()) {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: {}: the two sides did not run the same prompts",
                            shorten(all.source), shorten(paired.unequal_prompts)));
  }
  if (paired.units.size() < 2) {
    throw Error(
        ExitCode::bad_file,
        fmt::format("{}: {} independent block{}; an SD takes two at least, on fresh servers",
                    shorten(all.source), paired.units.size(), paired.units.size() == 1 ? "" : "s"));
  }
  if (static_cast<int64_t>(paired.units.size()) > ab::kMostUnits) {
    throw Error(ExitCode::bad_file, fmt::format("{}: more than {} blocks are not studied at once",
                                                shorten(all.source), ab::kMostUnits));
  }
  for (const ab::Unit& unit : paired.units) {
    out.names.push_back(unit.name);
    out.log_ratios.push_back(unit.log_ratio);
  }
  const double level = 1 - options.alpha;
  out.outliers = stats::tukey_outliers(out.log_ratios);
  out.sd = stats::standard_deviation(out.log_ratios);
  out.sd_interval =
      stats::sd_interval(out.sd, static_cast<double>(out.log_ratios.size() - 1), level);
  out.centre = stats::signed_rank_interval(out.log_ratios, level);
  if (out.sd > 0) out.provable = provable_effects(out.sd, out.sd_interval.high, options);
  std::vector<double> levels;
  std::vector<std::string> names;
  for (const Start& start : starts) {
    levels.push_back(level_of(start));
    names.push_back(start.name);
  }
  out.controls = study_series(std::move(levels), std::move(names), options);
  out.warm_up = study_warm_up(starts, level);
  return out;
}

TableReport study_table(Table table, const std::vector<double>& reported, const Options& options) {
  TableReport out;
  out.placements = place_rows(table);
  out.groups = group_rows(table, out.placements);
  std::vector<std::vector<double>> rates;
  double sum = 0, count = 0;
  for (const Group& group : out.groups) {
    if (group.rates.size() < 2) continue;
    rates.push_back(group.rates);
    for (const double rate : group.rates) sum += rate, count += 1;
  }
  out.pooled = stats::pooled_sd(rates);
  const double level = 1 - options.alpha;
  out.pooled_interval = stats::sd_interval(out.pooled.sd, out.pooled.df, level);
  out.limit = threshold(out.pooled.sd, out.pooled.df, options.alpha);
  if (count > 0 && out.pooled.sd > 0) {
    out.relative_sd = out.pooled.sd / (sum / count);
    const double pair = out.relative_sd * std::sqrt(2.0);
    out.provable = provable_effects(pair, pair * out.pooled_interval.high / out.pooled.sd, options);
  }
  std::vector<double> named_rates, logs;
  std::vector<std::string> names;
  for (const size_t i : in_time(table)) {
    out.placed += out.placements[i].placed;
    if (!out.placements[i].named_control) continue;
    out.named.push_back(i);
    named_rates.push_back(table.rows[i].tok_s);
    logs.push_back(std::log(table.rows[i].tok_s));
    names.push_back(table.rows[i].run);
  }
  out.named_outliers = stats::tukey_outliers(named_rates);
  if (!logs.empty()) out.controls = study_series(std::move(logs), std::move(names), options);
  out.promoted = promoted_ladder(table, out.limit);
  out.reported = reported_ladder(reported, out.limit);
  out.table = std::move(table);
  return out;
}

}  // namespace lockstep::lab::noise
