#include "simulations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "lab/stats/bootstrap.h"
#include "lab/stats/canary.h"
#include "lab/stats/change_points.h"
#include "lab/stats/equivalence.h"
#include "lab/stats/group_sequential.h"
#include "lab/stats/mixture.h"
#include "lab/stats/power.h"
#include "lab/stats/random.h"
#include "lab/stats/selection.h"
#include "lab/stats/series.h"
#include "lab/stats/sign_betting.h"
#include "lab/stats/signed_rank.h"
#include "lab/stats/stopping.h"
#include "lab/stats/summary.h"

namespace lockstep::lab::stats {
namespace {

using Draw = std::function<double(Random&)>;

double draw_normal(Random& random) {
  return random.normal();
}
// Student's t with 3 degrees of freedom: symmetric, far heavier tails than any normal.
double draw_t3(Random& random) {
  const double a = random.normal(), b = random.normal(), c = random.normal();
  return random.normal() / std::sqrt((a * a + b * b + c * c) / 3);
}

// Mean and SD of a growing sample (Welford 1962).
struct Running {
  int64_t n = 0;
  double mean = 0, squares = 0;
  void add(double x) {
    ++n;
    const double d = x - mean;
    mean += d / static_cast<double>(n);
    squares += d * (x - mean);
  }
  double sd() const { return n > 1 ? std::sqrt(squares / static_cast<double>(n - 1)) : 0; }
};

double standard_error(double p, int64_t trials) {
  return std::sqrt(p * (1 - p) / static_cast<double>(trials));
}

// A rate that must be at most `most` even at the upper end of its 99 % bound.
SimulationRow at_most(std::string group, std::string what, int64_t events, int64_t trials,
                      double most) {
  const double rate = static_cast<double>(events) / static_cast<double>(trials);
  const double upper = clopper_pearson_upper(events, trials, 0.99);
  return {std::move(group),
          std::move(what),
          trials,
          rate,
          most,
          fmt::format("upper 99 % bound {:.2f} % <= {:.2f} %", 100 * upper, 100 * most),
          upper <= most,
          false};
}

// A rate that is `nominal` by construction: not above it by more than 3 standard errors.
SimulationRow not_above(std::string group, std::string what, int64_t events, int64_t trials,
                        double nominal) {
  const double rate = static_cast<double>(events) / static_cast<double>(trials);
  const double upper = clopper_pearson_upper(events, trials, 0.99);
  const double most = nominal + 3 * standard_error(nominal, trials);
  return {std::move(group),
          std::move(what),
          trials,
          rate,
          nominal,
          fmt::format("<= {:.2f} % + 3 se = {:.2f} % (upper 99 % bound {:.2f} %)", 100 * nominal,
                      100 * most, 100 * upper),
          rate <= most,
          false};
}

// A negative control: the rate must exceed `least` even at the lower end of its 99 % bound.
SimulationRow control_above(std::string group, std::string what, int64_t events, int64_t trials,
                            double least) {
  const double rate = static_cast<double>(events) / static_cast<double>(trials);
  const double lower = clopper_pearson(events, trials, 0.98).low;
  return {std::move(group),
          std::move(what),
          trials,
          rate,
          least,
          fmt::format("control: lower 99 % bound {:.2f} % > {:.2f} %", 100 * lower, 100 * least),
          lower > least,
          true};
}

SimulationRow covers(std::string what, int64_t hits, int64_t trials, double nominal) {
  const double rate = static_cast<double>(hits) / static_cast<double>(trials);
  const double least = nominal - 3 * standard_error(nominal, trials);
  return {"coverage",    std::move(what),
          trials,        rate,
          nominal,       fmt::format(">= {:.2f} % - 3 se = {:.2f} %", 100 * nominal, 100 * least),
          rate >= least, false};
}

const std::vector<int64_t> kLooks = {6, 12, 18, 24, 36};

Stop decide(Interval interval, double threshold) {
  return interval.low > threshold    ? Stop::high
         : interval.high < threshold ? Stop::low
                                     : Stop::go_on;
}

// One campaign of the group-sequential rule, giving up on `gain` where it is above 0.
Stop run_group_sequential(const GroupSequential& plan, Random& random, double effect, double gain,
                          int64_t& used, const Draw& draw = draw_normal) {
  static const FutilityBound futility(kLooks);
  Running sample;
  for (size_t look = 0; look < plan.looks().size(); ++look) {
    while (sample.n < plan.looks()[look]) sample.add(effect + draw(random));
    used = sample.n;
    const Stop stop = decide(plan.repeated_interval(look, sample.mean, sample.sd()), 0);
    if (stop != Stop::go_on) return stop;
    if (gain > 0 && futility.gives_up(look, sample.mean, sample.sd(), gain)) return Stop::futile;
  }
  return Stop::go_on;
}

// Looks after every value from `first` to `last` with an interval of (n, mean, SD).
template <typename At>
Stop run_every_look(Random& random, double effect, int64_t first, int64_t last, int64_t& used,
                    At interval, const Draw& draw = draw_normal) {
  Running sample;
  while (sample.n < last) {
    sample.add(effect + draw(random));
    used = sample.n;
    if (sample.n < first) continue;
    const Stop stop = decide(interval(sample.n, sample.mean, sample.sd()), 0);
    if (stop != Stop::go_on) return stop;
  }
  return Stop::go_on;
}

}  // namespace

SimulationRows simulate_false_alarms(int64_t trials, uint64_t seed) {
  SimulationRows rows;
  const std::string group = "A/A false alarms";
  // Counts the trials that call B better, and those that call it anything.
  const auto count = [&](uint64_t stream, auto run) {
    std::pair<int64_t, int64_t> out{0, 0};
    for (int64_t i = 0; i < trials; ++i) {
      Random random(seed, stream << 32 | static_cast<uint64_t>(i));
      const Stop stop = run(random);
      out.first += stop == Stop::high;
      out.second += stop == Stop::high || stop == Stop::low;
    }
    return out;
  };
  int64_t used = 0;
  // As lab ab plans it. The rate is close below 5 %, so that fewer trials could not show it.
  const GroupSequential plan(kLooks, planned_alpha(0.05));
  const int64_t given = trials;
  trials = std::max<int64_t>(trials, 20000);
  {
    const auto [better, any] =
        count(1, [&](Random& r) { return run_group_sequential(plan, r, 0, 0, used); });
    rows.push_back(
        at_most(group, "group-sequential, looks 6 12 18 24 36: better", better, trials, 0.05));
    rows.push_back(at_most(group, "  the same, either side", any, trials, 0.05));
  }
  {
    const auto [better, any] =
        count(2, [&](Random& r) { return run_group_sequential(plan, r, 0, 1, used); });
    rows.push_back(
        at_most(group, "  with futility stops at a gain of 1 SD: better", better, trials, 0.05));
    rows.push_back(at_most(group, "  the same, either side", any, trials, 0.05));
  }
  {
    const auto [better, any] =
        count(3, [&](Random& r) { return run_group_sequential(plan, r, 0, 0, used, draw_t3); });
    rows.push_back(
        at_most(group, "  noise of Student's t with 3 df: better", better, trials, 0.05));
    rows.push_back(at_most(group, "  the same, either side", any, trials, 0.05));
  }
  {
    const GroupSequential whole(kLooks, 0.05);
    const auto [better, any] =
        count(10, [&](Random& r) { return run_group_sequential(whole, r, 0, 0, used); });
    (void)better;
    rows.push_back(not_above(group, "  spending all of 5 %: either side", any, trials, 0.05));
  }
  trials = given;
  const TMixture t_mixture{1, 0.05};
  const auto t_interval = [&](int64_t n, double m, double sd) {
    return t_mixture.interval(n, m, sd);
  };
  {
    const auto [better, any] =
        count(4, [&](Random& r) { return run_every_look(r, 0, 2, 100, used, t_interval); });
    rows.push_back(
        at_most(group, "t mixture, a look after each of 2..100: better", better, trials, 0.05));
    rows.push_back(at_most(group, "  the same, either side", any, trials, 0.05));
  }
  {
    const NormalMixture known{1, 1, 0.05};
    const auto [better, any] = count(5, [&](Random& r) {
      return run_every_look(r, 0, 1, 100, used,
                            [&](int64_t n, double m, double) { return known.interval(n, m); });
    });
    rows.push_back(at_most(group, "normal mixture, SD known, after each of 1..100: better", better,
                           trials, 0.05));
    rows.push_back(at_most(group, "  the same, either side", any, trials, 0.05));
  }
  const auto bet = [&](Random& random, const Draw& draw) {
    SignBetting betting;
    double sum = 0;
    for (int i = 0; i < 100; ++i) {
      const double d = draw(random);
      sum += d;
      betting.add(d);
      if (betting.e_value() >= 20) return sum > 0 ? Stop::high : Stop::low;
    }
    return Stop::go_on;
  };
  for (const bool heavy : {false, true}) {
    const auto [better, any] =
        count(heavy ? 7 : 6, [&](Random& r) { return bet(r, heavy ? draw_t3 : draw_normal); });
    rows.push_back(at_most(group,
                           fmt::format("sign betting, after each of 1..100, {} noise: either side",
                                       heavy ? "t(3)" : "normal"),
                           any, trials, 0.05));
    (void)better;
  }
  {
    const auto [better, any] = count(8, [&](Random& r) {
      return run_every_look(r, 0, 6, 100, used, [](int64_t n, double m, double sd) -> Interval {
        const double reach = student_t_quantile(0.975, static_cast<double>(n - 1)) * sd /
                             std::sqrt(static_cast<double>(n));
        return {m - reach, m + reach};
      });
    });
    rows.push_back(control_above(group, "plain t test, peeked at after each of 6..100: better",
                                 better, trials, 0.05));
    rows.push_back(control_above(group, "  the same, either side", any, trials, 0.05));
  }
  {
    const auto [better, any] = count(9, [&](Random& r) {
      return run_every_look(r, 0, 2, 100, used, [](int64_t n, double m, double sd) {
        return NormalMixture{sd, 1, 0.05}.interval(n, m);
      });
    });
    (void)better;
    rows.push_back(control_above(group, "normal mixture with the sample SD put in: either side",
                                 any, trials, 0.05));
  }
  return rows;
}

SimulationRows simulate_stopping_times(int64_t trials, uint64_t seed) {
  SimulationRows rows;
  const std::string group = "1 % gain at SD 0.9 %";
  const double effect = 1 / 0.9;  // in SDs
  const auto compare = [&](const std::string& name, const StoppingProfile& predicted,
                           uint64_t stream, auto run) {
    int64_t found = 0, total = 0;
    for (int64_t i = 0; i < trials; ++i) {
      Random random(seed, stream << 32 | static_cast<uint64_t>(i));
      int64_t used = 0;
      found += run(random, used) == Stop::high;
      total += used;
    }
    const double pairs = static_cast<double>(total) / static_cast<double>(trials);
    const double off = pairs / predicted.expected_n - 1;
    rows.push_back({group, name + ": mean pairs", trials, pairs, predicted.expected_n,
                    fmt::format("predicted {:.2f}, off by {:+.1f} %, 10 % allowed",
                                predicted.expected_n, 100 * off),
                    std::abs(off) <= 0.1, false});
    const double rate = static_cast<double>(found) / static_cast<double>(trials);
    const double allowed = 0.005 + 3 * standard_error(predicted.p_high, trials);
    rows.push_back({group, name + ": found", trials, rate, predicted.p_high,
                    fmt::format("predicted {:.2f} %, within 0.5 % + 3 se", 100 * predicted.p_high),
                    std::abs(rate - predicted.p_high) <= allowed, false});
  };
  const GroupSequential plan(kLooks, planned_alpha(0.05));
  const FutilityBound futility(kLooks);
  const auto group_rule = [&](double gain) {
    return [&plan, &futility, gain](size_t look, int64_t, double m, double sd) {
      const Stop stop = decide(plan.repeated_interval(look, m, sd), 0);
      if (stop != Stop::go_on || gain <= 0) return stop;
      return futility.gives_up(look, m, sd, gain) ? Stop::futile : Stop::go_on;
    };
  };
  compare("group-sequential, looks 6 12 18 24 36", stopping_profile(kLooks, effect, group_rule(0)),
          1,
          [&](Random& r, int64_t& used) { return run_group_sequential(plan, r, effect, 0, used); });
  compare("  with futility stops", stopping_profile(kLooks, effect, group_rule(effect)), 2,
          [&](Random& r, int64_t& used) {
            return run_group_sequential(plan, r, effect, effect, used);
          });
  const std::vector<int64_t> dense = {6, 8, 10, 12, 14, 16, 18, 20, 22, 24};
  const GroupSequential tight(dense, planned_alpha(0.05));
  compare(
      "group-sequential, looks 6 8 .. 24",
      stopping_profile(dense, effect,
                       [&](size_t look, int64_t, double m, double sd) {
                         return decide(tight.repeated_interval(look, m, sd), 0);
                       }),
      3, [&](Random& r, int64_t& used) { return run_group_sequential(tight, r, effect, 0, used); });
  const TMixture mixture{effect, 0.05};
  std::vector<int64_t> every;
  for (int64_t n = 2; n <= 60; ++n) every.push_back(n);
  const auto interval = [&](int64_t n, double m, double sd) { return mixture.interval(n, m, sd); };
  compare("t mixture, after each of 2..60",
          stopping_profile(every, effect,
                           [&](size_t, int64_t n, double m, double sd) {
                             return decide(interval(n, m, sd), 0);
                           }),
          4, [&](Random& r, int64_t& used) {
            return run_every_look(r, effect, 2, 60, used, interval);
          });
  return rows;
}

SimulationRows simulate_coverage(int64_t trials, uint64_t seed) {
  SimulationRows rows;
  uint64_t stream = 0;
  for (const int64_t n : {4, 6, 8, 12, 20}) {
    for (const bool heavy : {false, true}) {
      ++stream;
      const SignedRankLevel level = signed_rank_level(n, 0.95);
      int64_t hits = 0;
      std::vector<double> x(static_cast<size_t>(n));
      for (int64_t i = 0; i < trials; ++i) {
        Random random(seed, stream << 32 | static_cast<uint64_t>(i));
        for (double& v : x) v = heavy ? draw_t3(random) : draw_normal(random);
        hits += signed_rank_interval(x, 0.95).interval.contains(0);
      }
      rows.push_back(covers(fmt::format("signed rank, {} blocks, {} noise (attained {:.3f} %)", n,
                                        heavy ? "t(3)" : "normal", 100 * level.attained),
                            hits, trials, level.attained));
      // Exact, so it may not be above what it prints either.
      rows.back().judged += ", and no more than 3 se above";
      rows.back().holds &=
          rows.back().measured <= level.attained + 3 * standard_error(level.attained, trials);
    }
  }
  // Starts with a level of their own (SD 1) and five rows each (SD 0.5 around it).
  const int64_t boot_trials = std::max<int64_t>(trials / 10, 200);
  for (const uint32_t clusters : {12u, 24u}) {
    ++stream;
    int64_t percentile = 0, bca = 0, by_row = 0;
    for (int64_t i = 0; i < boot_trials; ++i) {
      Random random(seed, stream << 32 | static_cast<uint64_t>(i));
      std::vector<std::vector<double>> starts(clusters);
      std::vector<std::vector<double>> as_rows;
      for (auto& start : starts) {
        const double level = random.normal();
        for (int r = 0; r < 5; ++r) {
          start.push_back(level + 0.5 * random.normal());
          as_rows.push_back({start.back()});
        }
      }
      const auto seed_of_trial = seed + static_cast<uint64_t>(i);
      const auto right = cluster_bootstrap_of_medians(starts, 0.95, 999, seed_of_trial);
      percentile += right.percentile.contains(0);
      bca += right.bca.contains(0);
      by_row +=
          cluster_bootstrap_of_medians(as_rows, 0.95, 999, seed_of_trial).percentile.contains(0);
    }
    rows.push_back(
        covers(fmt::format("cluster bootstrap, {} starts of 5 rows, percentile", clusters),
               percentile, boot_trials, 0.95));
    rows.push_back(covers("  the same, BCa", bca, boot_trials, 0.95));
    rows.push_back(control_above("coverage", "  rows resampled as if independent: misses",
                                 boot_trials - by_row, boot_trials, 0.05));
  }
  {
    const GroupSequential plan(kLooks, 0.05);
    int64_t hits = 0;
    for (int64_t i = 0; i < trials; ++i) {
      Random random(seed, 100ull << 32 | static_cast<uint64_t>(i));
      Running sample;
      bool all = true;
      for (size_t look = 0; look < kLooks.size(); ++look) {
        while (sample.n < kLooks[look]) sample.add(0.7 + random.normal());
        all &= plan.repeated_interval(look, sample.mean, sample.sd()).contains(0.7);
      }
      hits += all;
    }
    rows.push_back(covers("repeated intervals of 5 looks, all at once", hits, trials, 0.95));
  }
  {
    const TMixture mixture{1, 0.05};
    int64_t hits = 0;
    for (int64_t i = 0; i < trials; ++i) {
      Random random(seed, 101ull << 32 | static_cast<uint64_t>(i));
      Running sample;
      bool all = true;
      while (sample.n < 100 && all) {
        sample.add(0.7 + random.normal());
        all = mixture.interval(sample.n, sample.mean, sample.sd()).contains(0.7);
      }
      hits += all;
    }
    rows.push_back(covers("t mixture, 1..100 all at once", hits, trials, 0.95));
  }
  {
    int64_t hits = 0, sens = 0;
    for (int64_t i = 0; i < trials; ++i) {
      Random random(seed, 102ull << 32 | static_cast<uint64_t>(i));
      std::vector<double> x(15);
      for (double& v : x) v = random.normal();
      hits += sd_interval(standard_deviation(x), 14, 0.95).contains(1);
      for (size_t t = 0; t < x.size(); ++t) x[t] += 0.3 * static_cast<double>(t);
      sens += theil_sen(x, 0.95)->interval.contains(0.3);
    }
    rows.push_back(covers("SD of 15 values, chi-squared", hits, trials, 0.95));
    rows.push_back(covers("slope of 15 values, Sen's interval", sens, trials, 0.95));
  }
  {
    // "No worse than 0.5 %" where the truth is exactly 0.5 % worse: yes is wrong.
    int64_t yes = 0;
    for (int64_t i = 0; i < trials; ++i) {
      Random random(seed, 103ull << 32 | static_cast<uint64_t>(i));
      std::vector<double> x(12);
      for (double& v : x) v = -0.5 + 0.6 * random.normal();
      yes += no_worse(signed_rank_interval(x, 0.90).interval, 0.5) == Answer::yes;
    }
    rows.push_back(not_above("equivalence", "12 blocks, truth on the margin: no worse", yes, trials,
                             (1 - signed_rank_level(12, 0.90).attained) / 2));
  }
  return rows;
}

SimulationRows simulate_winners_curse(int64_t trials, uint64_t seed) {
  SimulationRows rows;
  const std::string group = "best of 50, SD 0.9 tok/s";
  constexpr int kCandidates = 50;
  constexpr double kError = 0.9;
  for (const double spread : {0.0, 0.6}) {
    double raw = 0, shrunk = 0, fresh = 0;
    int64_t covered = 0;
    std::vector<double> truth(kCandidates), seen(kCandidates);
    const std::vector<double> errors(kCandidates, kError);
    for (int64_t i = 0; i < trials; ++i) {
      Random random(seed, (spread > 0 ? 2ull : 1ull) << 32 | static_cast<uint64_t>(i));
      for (int c = 0; c < kCandidates; ++c) {
        const auto at = static_cast<size_t>(c);
        truth[at] = 101 + spread * random.normal();
        seen[at] = truth[at] + kError * random.normal();
      }
      const auto best =
          static_cast<size_t>(std::max_element(seen.begin(), seen.end()) - seen.begin());
      const NormalPrior prior = fit_normal_prior(seen, errors);
      const Shrunk value = shrink(seen[best], kError, prior);
      raw += seen[best] - truth[best];
      shrunk += value.value - truth[best];
      covered += value.interval(0.95).contains(truth[best]);
      fresh += kError * random.normal();  // a confirming row: the truth and its own error
    }
    const double n = static_cast<double>(trials);
    const std::string kind = spread > 0 ? "true SD 0.6" : "all equal";
    rows.push_back({group, kind + ": shrunk value less the truth", trials, shrunk / n, 0.2,
                    "within 0.2 tok/s", std::abs(shrunk / n) <= 0.2, false});
    rows.push_back({group, kind + ": a fresh row less the truth", trials, fresh / n, 0.2,
                    "within 0.2 tok/s", std::abs(fresh / n) <= 0.2, false});
    rows.push_back({group, kind + ": 95 % interval of the shrunk value", trials,
                    static_cast<double>(covered) / n, 0.95, "covers >= 95 % - 3 se",
                    static_cast<double>(covered) / n >= 0.95 - 3 * standard_error(0.95, trials),
                    false});
    if (spread == 0) {
      const double expected = expected_largest(kCandidates) * kError;
      rows.push_back({group, kind + ": the best as seen less the truth", trials, raw / n, 1,
                      fmt::format("control: > 1 tok/s (expected largest of 50: {:.2f})", expected),
                      raw / n > 1 && std::abs(raw / n - expected) < 0.1, true});
    }
  }
  return rows;
}

SimulationRows simulate_planted_faults(int64_t trials, uint64_t seed) {
  SimulationRows rows;
  const std::string group = "planted faults";
  const auto share = [&](uint64_t stream, int64_t n, auto run) {
    int64_t hits = 0;
    for (int64_t i = 0; i < n; ++i) {
      Random random(seed, stream << 32 | static_cast<uint64_t>(i));
      hits += run(random);
    }
    return hits;
  };
  const auto flagged = [&](std::string what, int64_t hits, int64_t n, double least) {
    const double rate = static_cast<double>(hits) / static_cast<double>(n);
    rows.push_back({group, std::move(what), n, rate, least,
                    fmt::format("flagged >= {:.0f} %", 100 * least), rate >= least, false});
  };
  // Twenty control rows of SD 0.8 % that lose 3 % over the session.
  const auto drifting = [](Random& random, double total) {
    std::vector<double> x(20);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = 0.8 * random.normal() - total * static_cast<double>(i) / 19;
    }
    return theil_sen(x, 0.95)->p <= 0.05;
  };
  flagged("drift of 3 % over 20 rows of SD 0.8 %",
          share(1, trials, [&](Random& r) { return drifting(r, 3); }), trials, 0.9);
  rows.push_back(not_above(group, "  no drift: false flags",
                           share(2, trials, [&](Random& r) { return drifting(r, 0); }), trials,
                           0.05));
  // Ten starts whose first row is 2 % slow.
  const auto warming = [](Random& random, double slow) {
    std::vector<double> firsts, rests;
    for (int i = 0; i < 10; ++i) {
      const double level = random.normal();
      firsts.push_back(level - slow + 0.5 * random.normal());
      std::vector<double> rest(7);
      for (double& v : rest) v = level + 0.5 * random.normal();
      rests.push_back(median(rest));
    }
    return warm_up(firsts, rests, 0.95).found;
  };
  flagged("first row 2 % slow, 10 starts, rows of SD 0.5 %",
          share(3, trials, [&](Random& r) { return warming(r, 2); }), trials, 0.99);
  rows.push_back(not_above(group, "  no warm-up: false flags",
                           share(4, trials, [&](Random& r) { return warming(r, 0); }), trials,
                           0.05));
  // A warm-up within one series: five rows that approach the level from 5 SD below.
  flagged("warm-up of 5 rows cut at 3 to 8 (MSER)",
          share(5, trials,
                [&](Random& random) {
                  std::vector<double> x(60);
                  for (size_t i = 0; i < x.size(); ++i) {
                    x[i] = random.normal() - (i < 5 ? 8 - static_cast<double>(i) : 0);
                  }
                  const size_t cut = mser_truncation(x);
                  return cut >= 3 && cut <= 8;
                }),
          trials, 0.8);
  // One row 8 SD away among 20.
  flagged("one row of 20 that is 8 SD off: severe",
          share(6, trials,
                [&](Random& random) {
                  std::vector<double> x(20);
                  for (double& v : x) v = random.normal();
                  x[7] += 8;
                  return tukey_outliers(x)[7] == Outlier::severe;
                }),
          trials, 0.85);
  rows.push_back(at_most(group, "  none planted, 20 rows: any severe",
                         share(7, trials,
                               [&](Random& random) {
                                 std::vector<double> x(20);
                                 for (double& v : x) v = random.normal();
                                 const auto flags = tukey_outliers(x);
                                 return std::count(flags.begin(), flags.end(), Outlier::severe) > 0;
                               }),
                         trials, 0.05));
  // A step of 2 SD in the middle of 40 controls.
  const int64_t slow_trials = std::max<int64_t>(trials / 10, 200);
  const auto stepping = [seed](Random& random, double step, size_t& at) {
    std::vector<double> x(40);
    for (size_t i = 0; i < x.size(); ++i) x[i] = random.normal() + (i >= 18 ? step : 0);
    const auto found = e_divisive(x, 0.05, 5, 199, seed);
    if (!found.empty()) at = found[0].index;
    return !found.empty();
  };
  size_t at = 0;
  int64_t near = 0;
  const int64_t found = share(8, slow_trials, [&](Random& r) {
    const bool hit = stepping(r, 2, at);
    near += hit && at >= 15 && at <= 21;
    return hit;
  });
  flagged("step of 2 SD at 18 of 40 controls", found, slow_trials, 0.95);
  flagged("  the same, placed within 3 rows", near, slow_trials, 0.85);
  rows.push_back(not_above(group, "  no step: false flags",
                           share(9, slow_trials, [&](Random& r) { return stepping(r, 0, at); }),
                           slow_trials, 0.05));
  return rows;
}

SimulationRows simulate_power(int64_t trials, uint64_t seed) {
  // The smallest provable effect of n blocks is found with the power that was promised.
  SimulationRows rows;
  for (const int64_t n : {6, 7, 8, 9, 10, 12, 20, 50}) {
    const double effect = smallest_effect_signed_rank(n, 1, 0.05, 0.8);
    int64_t found = 0;
    std::vector<double> x(static_cast<size_t>(n));
    for (int64_t i = 0; i < trials; ++i) {
      Random random(seed, static_cast<uint64_t>(n) << 32 | static_cast<uint64_t>(i));
      for (double& v : x) v = effect + random.normal();
      found += !signed_rank_interval(x, 0.95).interval.contains(0);
    }
    const double rate = static_cast<double>(found) / static_cast<double>(trials);
    rows.push_back({"power",
                    fmt::format("{} blocks at their smallest provable effect {:.3f} SD", n, effect),
                    trials, rate, 0.8, "80 % within 2.5 % + 3 se",
                    std::abs(rate - 0.8) <= 0.025 + 3 * standard_error(0.8, trials), false});
  }
  return rows;
}

std::string simulation_table(const SimulationRows& rows) {
  std::string out;
  std::string group;
  for (const SimulationRow& row : rows) {
    if (row.group != group) {
      group = row.group;
      out += fmt::format("\n{}\n", group);
    }
    out += fmt::format("  {:64} {:>8} {:>9.4f}  {}  {}\n", row.what, row.trials, row.measured,
                       row.holds ? "ok  " : "FAIL", row.judged);
  }
  return out;
}

}  // namespace lockstep::lab::stats
