#include "lab/ab/ab.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "lab/ab/exactness.h"
#include "lab/ab/units.h"
#include "lab/stats/effect.h"
#include "lab/stats/group_sequential.h"
#include "lab/stats/mixture.h"
#include "lab/stats/power.h"
#include "lab/stats/sign_betting.h"
#include "lab/stats/signed_rank.h"
#include "lab/stats/summary.h"

namespace lockstep::lab::ab {
namespace {

using stats::Interval;

constexpr int kResamples = 4000;

int64_t count_starts(const runs::Runs& arm) {
  std::set<std::string> starts;
  for (const runs::Row& row : arm.rows) starts.insert(row.start);
  return static_cast<int64_t>(starts.size());
}

std::string arm_name(const runs::Runs& arm, const char* otherwise) {
  const std::string& name = arm.rows.front().arm;
  return name.empty() ? otherwise : name;
}

// The denominator that most rows show; unknown where none tells.
runs::Denominator usual_denominator(const runs::Runs& arm) {
  std::map<runs::Denominator, int> counts;
  for (const runs::Row& row : arm.rows) ++counts[runs::denominator(row)];
  counts.erase(runs::Denominator::unknown);
  const auto most = std::max_element(counts.begin(), counts.end(),
                                     [](auto x, auto y) { return x.second < y.second; });
  return most == counts.end() ? runs::Denominator::unknown : most->first;
}

void refuse(Result& result, std::string rule, std::string text) {
  result.verdict = Verdict::invalid;
  result.reasons.push_back({std::move(rule), std::move(text)});
}

void check_metric(const runs::Runs& a, const runs::Runs& b, Result& result) {
  if (a.metric != b.metric) {
    const auto shown = [](const std::string& metric) {
      return metric.empty() ? std::string("one that is not said")
                            : fmt::format("\"{}\"", shorten(metric));
    };
    refuse(result, "V7 metric",
           fmt::format("A's metric is {}, B's is {}; measure both arms with one definition",
                       shown(a.metric), shown(b.metric)));
  }
  const runs::Denominator in_a = usual_denominator(a), in_b = usual_denominator(b);
  if (in_a != in_b && in_a != runs::Denominator::unknown && in_b != runs::Denominator::unknown) {
    refuse(
        result, "V7 metric",
        fmt::format("A's rates count {}, B's {}, over the same time: at 512 tokens that alone is "
                    "0.2 %",
                    runs::denominator_name(in_a), runs::denominator_name(in_b)));
  }
}

void check_fresh(const runs::Runs& a, const runs::Runs& b, Result& result) {
  int64_t warm = 0, unsaid = 0;
  for (const runs::Runs* arm : {&a, &b}) {
    for (const runs::Row& row : arm->rows) {
      warm += row.cached_tokens.value_or(0) > 0;
      unsaid += !row.cached_tokens;
    }
  }
  if (warm > 0) {
    refuse(result, "V2 fresh",
           fmt::format("{} of {} rows reuse prompt tokens (cached_tokens above 0)", warm,
                       a.rows.size() + b.rows.size()));
  }
  if (unsaid > 0) {
    result.notes.push_back(fmt::format(
        "{} of {} rows do not say how many prompt tokens were reused; missing is not zero (V2)",
        unsaid, a.rows.size() + b.rows.size()));
  }
}

void check_whole(const runs::Runs& a, const runs::Runs& b, const Paired& paired, Result& result) {
  if (!paired.unequal_prompts.empty()) {
    refuse(result, "V8 whole",
           fmt::format("block \"{}\": A and B did not run the same prompts",
                       shorten(paired.unequal_prompts)));
    return;
  }
  // The same prompt generates the same number of tokens, or the rates are of other texts' depths.
  std::map<std::string, std::set<int64_t>> lengths;
  for (const runs::Runs* arm : {&a, &b}) {
    for (const runs::Row& row : arm->rows) {
      if (row.prompt_tokens) lengths[row.prompt].insert(*row.prompt_tokens);
    }
  }
  for (const auto& [prompt, seen] : lengths) {
    if (seen.size() < 2) continue;
    refuse(result, "V8 whole",
           fmt::format("prompt \"{}\" has {} tokens in one row and {} in another", shorten(prompt),
                       *seen.begin(), *seen.rbegin()));
    return;
  }
}

Verdict decide(Interval interval, double threshold) {
  return interval.low > threshold    ? Verdict::better
         : interval.high < threshold ? Verdict::not_better
                                     : Verdict::unknown;
}

struct Sample {
  double mean = 0, sd = 0;
};
Sample first_values(const std::vector<double>& x, int64_t n) {
  const std::span<const double> part(x.data(), static_cast<size_t>(n));
  return {stats::mean(part), n > 1 ? stats::standard_deviation(part) : 0};
}

void judge_fixed(const std::vector<double>& x, const Options& options, Result& result) {
  const stats::SignedRankInterval found = stats::signed_rank_interval(x, 1 - options.alpha);
  result.estimate = found.estimate;
  result.interval = found.interval;
  result.level = found.attained;
  const auto n = static_cast<int64_t>(x.size());
  if (found.reached) {
    result.verdict = decide(found.interval, options.min_effect);
  } else {
    result.reasons.push_back(
        {"blocks", fmt::format("{} block{} cannot reach {:.4g} %: the widest exact interval of {} "
                               "has {:.4g} %; it takes {} blocks",
                               n, n == 1 ? "" : "s", 100 * (1 - options.alpha), n,
                               100 * found.attained, stats::signed_rank_floor(options.alpha))});
  }
  if (n >= stats::kBootstrapFloor) {
    std::vector<std::vector<double>> clusters;
    for (const double v : x) clusters.push_back({v});
    result.bootstrap =
        stats::cluster_bootstrap_of_medians(clusters, 1 - options.alpha, kResamples, options.seed);
  }
  if (options.no_worse_margin > 0) {
    const stats::SignedRankInterval wide = stats::signed_rank_interval(x, 1 - 2 * options.alpha);
    result.no_worse = wide.reached ? stats::no_worse(wide.interval, options.no_worse_margin)
                                   : stats::Answer::unknown;
    result.no_worse_level = (1 + wide.attained) / 2;
  }
}

// Ends at the first look that decides; n values were used.
void stop_at(int64_t n, Result& result) {
  result.units.resize(static_cast<size_t>(n));
}

void judge_group_sequential(const std::vector<double>& x, const Options& options, Result& result) {
  const stats::GroupSequential plan(options.looks, stats::planned_alpha(options.alpha));
  const stats::FutilityBound futility(options.looks);
  const auto n = static_cast<int64_t>(x.size());
  result.level = 1 - plan.alpha();
  for (size_t look = 0; look < plan.looks().size() && plan.looks()[look] <= n; ++look) {
    const int64_t at = plan.looks()[look];
    const Sample sample = first_values(x, at);
    result.estimate = sample.mean;
    result.interval = plan.repeated_interval(look, sample.mean, sample.sd);
    result.verdict = decide(result.interval, options.min_effect);
    result.looks.push_back({at, result.interval, ""});
    const bool last = look + 1 == plan.looks().size();
    if (result.verdict != Verdict::unknown) {
      result.looks.back().says = fmt::format("stops: {}", verdict_name(result.verdict));
      stop_at(at, result);
      return;
    }
    if (!last && options.gain && futility.gives_up(look, sample.mean, sample.sd, *options.gain)) {
      result.looks.back().says = "stops: futile";
      result.reasons.push_back(
          {"futility",
           fmt::format("after {} blocks a gain of {:.2f} % is improbable: it would be given "
                       "up with a chance of {:.0f} % at most if it were there",
                       at, stats::percent(*options.gain), 100 * futility.beta())});
      stop_at(at, result);
      return;
    }
    if (last) {
      result.reasons.push_back({"blocks", fmt::format("all {} planned blocks are spent", at)});
      stop_at(at, result);
      return;
    }
  }
  if (result.looks.empty()) {
    result.reasons.push_back(
        {"blocks", fmt::format("{} block{} so far; the first planned look is after {}", n,
                               n == 1 ? "" : "s", plan.looks()[0])});
  } else {
    result.reasons.push_back(
        {"blocks", fmt::format("{} of {} planned blocks so far", n, plan.looks().back())});
    stop_at(result.looks.back().n, result);
  }
}

void judge_always_valid(const std::vector<double>& x, const Options& options, Result& result) {
  const stats::TMixture mixture{options.tau, options.alpha};
  const auto n = static_cast<int64_t>(x.size());
  result.level = 1 - options.alpha;
  int64_t used = n;
  for (int64_t at = 2; at <= n; ++at) {
    const Sample sample = first_values(x, at);
    const Interval interval = mixture.interval(at, sample.mean, sample.sd);
    const Verdict verdict = decide(interval, options.min_effect);
    result.looks.push_back({at, interval, ""});
    if (verdict == Verdict::unknown) continue;
    result.looks.back().says = fmt::format("stops: {}", verdict_name(verdict));
    result.verdict = verdict;
    used = at;
    break;
  }
  const Sample sample = first_values(x, used);
  result.estimate = sample.mean;
  result.interval = mixture.interval(used, sample.mean, sample.sd);
  stop_at(used, result);
  result.sign_e_value =
      stats::sign_betting(std::span(x.data(), static_cast<size_t>(used)), options.min_effect)
          .e_value;
  if (result.verdict == Verdict::unknown) {
    result.reasons.push_back(
        {"blocks", fmt::format("{} block{} do not decide yet; more may be added at any time", n,
                               n == 1 ? "" : "s")});
  }
}

void describe(const Options& options, Result& result) {
  std::vector<double> x, tokens, ms;
  for (const Unit& unit : result.units) {
    x.push_back(unit.log_ratio);
    if (unit.tokens_per_step) tokens.push_back(*unit.tokens_per_step);
    if (unit.ms_per_step) ms.push_back(*unit.ms_per_step);
  }
  if (x.size() > 1) result.sd = stats::standard_deviation(x);
  if (!tokens.empty() && tokens.size() == x.size()) {
    result.tokens_per_step = stats::median(tokens);
    result.ms_per_step = stats::median(ms);
    // Equal but for the rounding of printed rates.
    result.same_tokens_per_step =
        std::all_of(tokens.begin(), tokens.end(), [](double t) { return std::abs(t) < 2e-4; });
  }
  const auto n = static_cast<int64_t>(x.size());
  if (result.sd && *result.sd > 0 && n >= stats::signed_rank_floor(options.alpha)) {
    result.smallest_provable =
        stats::smallest_effect_signed_rank(n, *result.sd, options.alpha, 0.8);
  }
}

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  switch (verdict) {
    case Verdict::better:
      return "better";
    case Verdict::not_better:
      return "not_better";
    case Verdict::unknown:
      return "unknown";
    case Verdict::inexact:
      return "inexact";
    case Verdict::invalid:
      return "invalid";
  }
  return "";
}

std::string_view method_name(Method method) {
  switch (method) {
    case Method::signed_rank:
      return "signed-rank";
    case Method::group_sequential:
      return "group-sequential";
    case Method::always_valid:
      return "always-valid";
  }
  return "";
}

Result judge(const runs::Runs& a, const runs::Runs& b, const Options& options) {
  Result result;
  result.arm_a = arm_name(a, "A");
  result.arm_b = arm_name(b, "B");
  result.metric = a.metric;
  result.starts_a = count_starts(a), result.starts_b = count_starts(b);
  result.rows_a = static_cast<int64_t>(a.rows.size());
  result.rows_b = static_cast<int64_t>(b.rows.size());
  std::set<std::string> prompts;
  for (const runs::Row& row : a.rows) prompts.insert(row.prompt);
  result.prompts = static_cast<int64_t>(prompts.size());

  const Paired paired = pair_blocks(a, b);
  result.unpaired_blocks = paired.unpaired_blocks;
  if (!a.exactness.empty() && !b.exactness.empty() && a.exactness != b.exactness) {
    refuse(result, "V5 exact",
           fmt::format("A's exactness class is \"{}\", B's \"{}\"", shorten(a.exactness),
                       shorten(b.exactness)));
  }
  check_whole(a, b, paired, result);
  if (paired.units.empty() && paired.unequal_prompts.empty()) {
    refuse(result, "blocks", "no block has rows of both arms; blocks pair by their names");
  }
  if (paired.units.size() > static_cast<size_t>(kMostUnits)) {
    refuse(result, "blocks",
           fmt::format("{} blocks; more than {} are not compared at once", paired.units.size(),
                       kMostUnits));
  }
  if (result.verdict == Verdict::invalid) return result;

  result.exactness = compare_tokens(a, b);
  if (result.exactness.different > 0) {
    result.verdict = Verdict::inexact;
    result.reasons.push_back(
        {"V5 exact",
         fmt::format("{} of {} prompts have other tokens; {}", result.exactness.different,
                     result.exactness.compared, result.exactness.first_difference)});
    return result;
  }
  check_metric(a, b, result);
  check_fresh(a, b, result);
  if (result.verdict == Verdict::invalid) return result;
  if (!result.exactness.judged) {
    result.notes.push_back(
        fmt::format("exactness was not judged: {}",
                    result.exactness.cls == "not said"
                        ? std::string("no token hashes")
                        : fmt::format("the class is \"{}\"", shorten(result.exactness.cls))));
  } else if (result.exactness.without_hash > 0) {
    result.notes.push_back(fmt::format("{} rows have no token hash and were not compared",
                                       result.exactness.without_hash));
  }
  if (paired.unpaired_blocks > 0) {
    result.notes.push_back(fmt::format("{} block{} of one arm alone left out",
                                       paired.unpaired_blocks,
                                       paired.unpaired_blocks == 1 ? " is" : "s are"));
  }
  if (paired.merged_blocks > 0) {
    result.notes.push_back(fmt::format("{} block{} a server with another and count as one with it",
                                       paired.merged_blocks,
                                       paired.merged_blocks == 1 ? " shares" : "s share"));
  }

  result.units = paired.units;
  result.units_given = static_cast<int64_t>(result.units.size());
  std::vector<double> x;
  for (const Unit& unit : result.units) x.push_back(unit.log_ratio);
  result.has_effect = true;
  if (result.starts_a < 2 || result.starts_b < 2) {
    // The level of one server start is not known from that start, however many rows it has.
    result.has_effect = false;
    result.reasons.push_back(
        {"server starts",
         fmt::format(
             "A has {} server start{}, B {}; one start's level says nothing of the next one's: "
             "run more blocks on fresh servers",
             result.starts_a, result.starts_a == 1 ? "" : "s", result.starts_b)});
    return result;
  }
  if (x.size() < 2) {
    result.has_effect = false;
    result.reasons.push_back(
        {"blocks", "one independent block; nothing is known of how much blocks differ: run more"});
    return result;
  }
  switch (options.method) {
    case Method::signed_rank:
      judge_fixed(x, options, result);
      break;
    case Method::group_sequential:
      judge_group_sequential(x, options, result);
      break;
    case Method::always_valid:
      judge_always_valid(x, options, result);
      break;
  }
  if (options.method != Method::signed_rank && options.no_worse_margin > 0) {
    result.no_worse = stats::no_worse(result.interval, options.no_worse_margin);
    result.no_worse_level = 1 - options.alpha / 2;
  }
  if (options.method == Method::group_sequential && result.looks.empty()) {
    result.has_effect = false;
    result.no_worse.reset();
  }
  describe(options, result);
  if (result.verdict == Verdict::unknown && result.reasons.empty()) {
    result.reasons.push_back(
        {"interval",
         fmt::format("it holds {}",
                     options.min_effect == 0
                         ? std::string("no difference")
                         : fmt::format("{:.2f} %", stats::percent(options.min_effect)))});
  }
  return result;
}

std::pair<runs::Runs, runs::Runs> split_arms(const runs::Runs& both) {
  std::vector<std::string> arms;
  for (const runs::Row& row : both.rows) {
    if (std::find(arms.begin(), arms.end(), row.arm) == arms.end()) arms.push_back(row.arm);
    if (arms.size() > 2) break;
  }
  if (arms.size() != 2) {
    throw Error(ExitCode::bad_use,
                fmt::format("{} has {} arm{}; give a file for each arm, or one with two arms",
                            shorten(both.source), arms.size() > 2 ? "more than two" : "one",
                            arms.size() > 2 ? "s" : ""));
  }
  for (const char* control : {"control", "Control", "a", "A", "baseline"}) {
    if (arms[1] == control) std::swap(arms[0], arms[1]);
  }
  std::pair<runs::Runs, runs::Runs> out{both, both};
  std::erase_if(out.first.rows, [&](const runs::Row& row) { return row.arm != arms[0]; });
  std::erase_if(out.second.rows, [&](const runs::Row& row) { return row.arm != arms[1]; });
  return out;
}

}  // namespace lockstep::lab::ab
