// The lab's statistics against figures from papers, tables and hand calculations.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "lab/stats/bootstrap.h"
#include "lab/stats/canary.h"
#include "lab/stats/change_points.h"
#include "lab/stats/effect.h"
#include "lab/stats/equivalence.h"
#include "lab/stats/multiplicity.h"
#include "lab/stats/power.h"
#include "lab/stats/random.h"
#include "lab/stats/selection.h"
#include "lab/stats/series.h"
#include "lab/stats/signed_rank.h"
#include "lab/stats/summary.h"

namespace lockstep::lab::stats {
namespace {

TEST(SignedRank, DistributionIsTheOneOfTheTables) {
  // Hollander and Wolfe, table A.4: P(W+ >= x) for n = 5 and 10.
  EXPECT_NEAR(signed_rank_cdf(0, 5), 1 / 32.0, 1e-15);
  EXPECT_NEAR(signed_rank_cdf(8, 10), 0.0244140625, 1e-15);   // 25/1024
  EXPECT_NEAR(signed_rank_cdf(10, 10), 0.0419921875, 1e-15);  // 43/1024
  // By enumeration of all sign patterns.
  for (int n = 1; n <= 12; ++n) {
    std::vector<int> counts(static_cast<size_t>(n * (n + 1) / 2) + 1, 0);
    for (int signs = 0; signs < 1 << n; ++signs) {
      int w = 0;
      for (int i = 0; i < n; ++i) w += signs >> i & 1 ? i + 1 : 0;
      ++counts[static_cast<size_t>(w)];
    }
    double sum = 0;
    for (size_t w = 0; w < counts.size(); ++w) {
      sum += std::ldexp(counts[w], -n);
      ASSERT_NEAR(signed_rank_cdf(static_cast<int64_t>(w), n), sum, 1e-12);
    }
  }
  // The normal approximation takes over where it is as good as the count.
  EXPECT_NEAR(signed_rank_cdf(59000, 500), signed_rank_cdf(59000 + 59000 / 250, 501), 5e-3);
}

TEST(SignedRank, FewerThanSixBlocksCannotReachFivePerCent) {
  for (int64_t n = 1; n < kSignedRankFloor; ++n) {
    const SignedRankLevel level = signed_rank_level(n, 0.95);
    EXPECT_FALSE(level.reached);
    EXPECT_NEAR(level.attained, 1 - std::ldexp(1.0, static_cast<int>(1 - n)), 1e-15);
  }
  EXPECT_TRUE(signed_rank_level(6, 0.95).reached);
  EXPECT_NEAR(signed_rank_level(6, 0.95).attained, 0.96875, 1e-15);
  EXPECT_EQ(signed_rank_level(10, 0.95).k, 8);
  EXPECT_NEAR(signed_rank_level(10, 0.95).attained, 1 - 50 / 1024.0, 1e-15);
  EXPECT_EQ(signed_rank_floor(0.05), 6);
  EXPECT_EQ(signed_rank_floor(0.10), 5);
  EXPECT_EQ(signed_rank_floor(0.01), 8);
}

TEST(SignedRank, EstimateAndIntervalByHand) {
  // Hollander and Wolfe, example 3.1: Hamilton depression scale, y - x of nine patients.
  const std::array<double, 9> d = {-0.952, 0.147,  -1.022, -0.430, -0.620,
                                   -0.590, -0.490, 0.080,  -0.010};
  EXPECT_NEAR(hodges_lehmann(d), -0.46, 1e-12);
  const SignedRankInterval found = signed_rank_interval(d, 0.95);
  EXPECT_NEAR(found.attained, 0.9609375, 1e-12);
  EXPECT_NEAR(found.interval.low, -0.786, 1e-12);
  EXPECT_NEAR(found.interval.high, -0.010, 1e-12);
  EXPECT_NEAR(signed_rank_p(d), 2 * 10 / 512.0, 1e-12);  // T+ = 5
  // The interval holds what the test does not reject.
  std::vector<double> shifted(d.begin(), d.end());
  for (double& v : shifted) v -= found.interval.low - 1e-6;
  EXPECT_LE(signed_rank_p(shifted), 1 - found.attained + 1e-12);
  for (double& v : shifted) v -= 2e-6;
  EXPECT_GT(signed_rank_p(shifted), 1 - found.attained + 1e-12);
}

TEST(SignedRank, ZerosAndTies) {
  EXPECT_EQ(signed_rank_p(std::array<double, 3>{0, 0, 0}), 1);
  // 1 1 1 1 1 1: all of one sign; only 2 of 64 patterns are as extreme, ties or not.
  EXPECT_NEAR(signed_rank_p(std::array<double, 6>{1, 1, 1, 1, 1, 1}), 2 / 64.0, 1e-15);
  EXPECT_NEAR(signed_rank_p(std::array<double, 4>{1, 1, -1, 2}), 2 * 4 / 16.0, 1e-15);
}

TEST(Bootstrap, RepeatsAndKnowsClusters) {
  std::vector<std::vector<double>> starts;
  Random random(3);
  for (int i = 0; i < 14; ++i) {
    const double level = random.normal();
    starts.push_back({level, level + 0.01, level - 0.01});
  }
  const auto a = cluster_bootstrap_of_medians(starts, 0.95, 2000, 7);
  const auto b = cluster_bootstrap_of_medians(starts, 0.95, 2000, 7);
  EXPECT_EQ(a.percentile.low, b.percentile.low);
  EXPECT_EQ(a.bca.high, b.bca.high);
  EXPECT_NE(a.percentile.low, cluster_bootstrap_of_medians(starts, 0.95, 2000, 8).percentile.low);
  // Of a mean: about Student's interval over the 14 levels.
  std::vector<double> levels;
  for (const auto& start : starts) levels.push_back(start[0]);
  const double reach = student_t_quantile(0.975, 13) * standard_deviation(levels) / std::sqrt(14.0);
  EXPECT_NEAR(a.percentile.width(), 2 * reach, 0.15 * reach);
  EXPECT_NEAR(a.estimate, mean(levels), 1e-12);
}

TEST(Bootstrap, BcaMovesWithTheSkew) {
  // The median of an exponential sample's means: BCa lies to the right of the percentile interval.
  std::vector<std::vector<double>> clusters;
  Random random(5);
  for (int i = 0; i < 20; ++i) clusters.push_back({-std::log(random.uniform())});
  const auto found = cluster_bootstrap_of_medians(clusters, 0.95, 4000, 1);
  EXPECT_GT(found.acceleration, 0);
  EXPECT_GT(found.bca.low, found.percentile.low);
  EXPECT_GT(found.bca.high, found.percentile.high);
}

TEST(Power, BlocksForAGain) {
  // At 80 % power and 5 % two-sided, with the floor of 6: rows are SDs of 0.3, 0.5, 1 and 1.5 %,
  // columns gains of 0.25, 0.5, 1 and 2 %.
  const int64_t expected[4][4] = {{12, 6, 6, 6}, {32, 8, 6, 6}, {126, 32, 8, 6}, {283, 71, 18, 6}};
  const double sds[] = {0.3, 0.5, 1.0, 1.5}, gains[] = {0.25, 0.5, 1, 2};
  for (int s = 0; s < 4; ++s) {
    for (int g = 0; g < 4; ++g) {
      EXPECT_EQ(blocks_normal(sds[s], gains[g], 0.05, 0.8), expected[s][g])
          << sds[s] << " " << gains[g];
    }
  }
}

TEST(Power, OfTheSignedRankInterval) {
  EXPECT_EQ(power_signed_rank(5, 1, 10, 0.05), 0);
  EXPECT_NEAR(power_signed_rank(6, 1, 0, 0.05), 1 / 32.0, 1e-12);
  EXPECT_NEAR(power_signed_rank(20, 1, 0, 0.05), 1 - signed_rank_level(20, 0.95).attained, 1e-9);
  for (const int64_t n : {6, 9, 20, 50}) {
    const double effect = smallest_effect_signed_rank(n, 0.9, 0.05, 0.8);
    EXPECT_NEAR(power_signed_rank(n, 0.9, effect, 0.05), 0.8, 1e-6);
    EXPECT_GT(effect, smallest_effect_normal(n, 0.9, 0.05, 0.8));
    const int64_t needed = blocks_signed_rank(0.9, effect * 1.0001, 0.05, 0.8);
    EXPECT_LE(needed, n);
    EXPECT_GE(power_signed_rank(needed, 0.9, effect * 1.0001, 0.05), 0.8);
  }
  EXPECT_EQ(blocks_normal(1, 1e-9, 0.05, 0.8), -1);
  EXPECT_EQ(blocks_signed_rank(1, 1e-9, 0.05, 0.8), -1);
  EXPECT_TRUE(std::isinf(smallest_effect_normal(5, 1, 0.05, 0.8)));
  EXPECT_TRUE(std::isinf(smallest_effect_signed_rank(5, 1, 0.05, 0.8)));
}

TEST(Selection, ExpectedLargest) {
  // Harter's table; the lab's notes have the same to two decimals (20: 1.86 by simulation).
  EXPECT_NEAR(expected_largest(1), 0, 1e-9);
  EXPECT_NEAR(expected_largest(2), 0.56419, 1e-5);  // 1/sqrt(pi)
  EXPECT_NEAR(expected_largest(4), 1.02938, 1e-5);
  EXPECT_NEAR(expected_largest(10), 1.53875, 1e-5);
  EXPECT_NEAR(expected_largest(20), 1.86748, 1e-5);
  EXPECT_NEAR(expected_largest(50), 2.24907, 1e-5);
  EXPECT_NEAR(expected_largest(100), 2.50759, 1e-5);
  EXPECT_NEAR(expected_largest(200), 2.746, 1e-3);
  // Fifty screens at the Gemma controls' SD of 0.79 tok/s.
  EXPECT_NEAR(0.79 * expected_largest(50), 1.8, 0.05);
}

TEST(Selection, ShrinksAsTheSpreadSays) {
  // Equal errors of 1 and values with a variance of 5: prior variance 4, weight 0.8.
  std::vector<double> values = {10 - std::sqrt(5.0), 10, 10 + std::sqrt(5.0)};
  const std::vector<double> errors(3, 1.0);
  const NormalPrior prior = fit_normal_prior(values, errors);
  EXPECT_NEAR(prior.mean, 10, 1e-12);
  EXPECT_NEAR(prior.sd, 2, 1e-12);
  const Shrunk best = shrink(values[2], 1, prior);
  EXPECT_NEAR(best.weight, 0.8, 1e-12);
  EXPECT_NEAR(best.value, 10 + 0.8 * std::sqrt(5.0), 1e-12);
  // Values closer than their errors tell nothing apart.
  values = {10, 10.1, 10.2};
  EXPECT_EQ(fit_normal_prior(values, errors).sd, 0);
  EXPECT_NEAR(shrink(10.2, 1, fit_normal_prior(values, errors)).value, 10.1, 1e-12);
}

TEST(Selection, ThreeNumbersOfARecord) {
  const NormalPrior prior{101, 0.5, 50, {}};
  const std::vector<double> fresh = {101.9, 102.3, 102.1, 101.7};
  const RecordValue record = record_value(103.3, 50, fresh, 0.9, prior, 0.95);
  EXPECT_EQ(record.selected, 103.3);
  EXPECT_NEAR(record.confirmed, 102, 1e-12);
  EXPECT_NEAR(record.by_luck, 2.02, 0.01);
  // Error of the mean of four 0.45: weight 0.25/(0.25 + 0.2025).
  EXPECT_NEAR(record.replication.value, 101 + 0.25 / 0.4525, 1e-9);
  EXPECT_TRUE(record.confirmed_interval.contains(102.3));
  EXPECT_TRUE(std::isinf(
      record_value(1, 2, std::vector<double>{1}, 1, prior, 0.95).confirmed_interval.high));
}

TEST(Series, TukeysFences) {
  std::vector<double> x = {1, 2, 3, 4, 5,
                           6, 7, 8, 9};  // quartiles 3 and 7: fences at -3, 13, -9, 19
  x.push_back(5);
  EXPECT_EQ(tukey_outliers(x)[9], Outlier::none);
  x[9] = 30;
  EXPECT_EQ(tukey_outliers(x)[9], Outlier::severe);
  EXPECT_EQ(tukey_outliers(x)[0], Outlier::none);
  EXPECT_EQ(tukey_outliers(std::vector<double>{1, 2, 99})[2], Outlier::none);  // too few to say
}

TEST(Series, DriftByHand) {
  // Slopes of (0,1) (1,3) (2,2) (3,5) (4,6): Kendall's S = 9 - 1 of 10 pairs.
  const auto drift = theil_sen(std::vector<double>{1, 3, 2, 5, 6}, 0.95);
  ASSERT_TRUE(drift);
  EXPECT_NEAR(drift->tau, 0.8, 1e-12);
  EXPECT_NEAR(drift->p, 2 * 5 / 120.0, 1e-12);  // 1 + 4 of 120 orders have at most one inversion
  EXPECT_NEAR(drift->slope, 1.125, 1e-12);  // between the 5th and 6th of -1 .5 1 1 1 5/4 4/3 2 2 3
  EXPECT_FALSE(theil_sen(std::vector<double>{1, 2, 3, 4}, 0.95));
  EXPECT_EQ(theil_sen(std::vector<double>{2, 2, 2, 2, 2, 2}, 0.95)->p, 1);
}

TEST(Series, WarmUpNeedsSixStarts) {
  const std::vector<double> rests(5, 0.0);
  const WarmUp five = warm_up(std::vector<double>{-1, -1.1, -1.2, -0.9, -1}, rests, 0.95);
  EXPECT_FALSE(five.reached);
  EXPECT_FALSE(five.found);
  EXPECT_NEAR(five.attained, 0.9375, 1e-12);
  const std::vector<double> six(6, 0.0);
  const WarmUp found = warm_up(std::vector<double>{-1, -1.1, -1.2, -0.9, -1, -1.05}, six, 0.95);
  EXPECT_TRUE(found.found);
  EXPECT_NEAR(found.effect, -1.0375, 0.02);
}

TEST(Series, MserCutsTheSlowStart) {
  std::vector<double> x(40, 10.0);
  for (size_t i = 0; i < x.size(); ++i) x[i] += i % 2 ? 0.1 : -0.1;
  EXPECT_EQ(mser_truncation(x), 0u);
  x[0] = 2, x[1] = 5, x[2] = 8;
  EXPECT_EQ(mser_truncation(x), 3u);
  EXPECT_EQ(mser_truncation(std::vector<double>{1, 100, 100}), 0u);
}

TEST(ChangePoints, TwoSteps) {
  std::vector<double> x;
  Random random(11);
  for (int i = 0; i < 60; ++i) x.push_back(random.normal() * 0.5 + (i < 20 ? 0 : i < 40 ? 3 : -1));
  const auto found = e_divisive(x, 0.05, 5, 499, 1);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].index, 20u);
  EXPECT_EQ(found[1].index, 40u);
  EXPECT_NEAR(found[0].before, 0, 0.4);
  EXPECT_NEAR(found[0].after, 3, 0.4);
  EXPECT_NEAR(found[1].after, -1, 0.4);
  EXPECT_NEAR(found[0].p, 1 / 500.0, 1e-12);
  // Too short, or all equal: nothing, and no division by zero.
  EXPECT_TRUE(e_divisive(std::vector<double>{1, 2, 3}, 0.05, 5, 99, 1).empty());
  EXPECT_TRUE(e_divisive(std::vector<double>(30, 1.0), 0.05, 5, 99, 1).empty());
}

TEST(Multiplicity, Adjusted) {
  const std::vector<double> p = {0.01, 0.04, 0.03, 0.005};
  const std::vector<double> by_holm = holm(p), by_bh = benjamini_hochberg(p);
  const double expected_holm[] = {0.03, 0.06, 0.06, 0.02};
  const double expected_bh[] = {0.02, 0.04, 0.04, 0.02};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(by_holm[i], expected_holm[i], 1e-12);
    EXPECT_NEAR(by_bh[i], expected_bh[i], 1e-12);
  }
  EXPECT_TRUE(holm({}).empty());
}

TEST(Canary, RuleOfThree) {
  EXPECT_NEAR(fault_rate_bound(1536), 0.00195, 0.00001);  // about 3/1536
  EXPECT_NEAR(fault_rate_bound(12), 0.221, 0.001);
  EXPECT_EQ(rows_to_see(0.01), 299);
  EXPECT_EQ(rows_to_see(0.001), 2995);
  EXPECT_EQ(fault_rate_bound(0), 1);
  // 384 repeats of 4 inputs: a race is bounded to 0.2 %, an input that always fails to 53 %.
  const Canary clean = canary(1536, 0, 4);
  EXPECT_NEAR(clean.bound, fault_rate_bound(1536), 1e-9);
  EXPECT_NEAR(clean.input_bound, 0.527, 0.001);
  EXPECT_GT(canary(1536, 1, 4).bound, clean.bound);
}

TEST(Canary, ClopperPearson) {
  // 10 of 100 at 95 %: 4.90 to 17.62 % (any table).
  const Interval interval = clopper_pearson(10, 100, 0.95);
  EXPECT_NEAR(interval.low, 0.0490, 1e-4);
  EXPECT_NEAR(interval.high, 0.1762, 1e-4);
  EXPECT_EQ(clopper_pearson(0, 10, 0.95).low, 0);
  EXPECT_EQ(clopper_pearson(10, 10, 0.95).high, 1);
}

TEST(Equivalence, NoWorseThan) {
  EXPECT_EQ(no_worse({-0.4, 0.2}, 0.5), Answer::yes);
  EXPECT_EQ(no_worse({-0.6, 0.2}, 0.5), Answer::unknown);
  EXPECT_EQ(no_worse({-0.9, -0.6}, 0.5), Answer::no);
  EXPECT_EQ(equivalent({-0.4, 0.6}, 0.5), Answer::unknown);
  EXPECT_EQ(equivalent({-0.4, 0.4}, 0.5), Answer::yes);
  EXPECT_EQ(equivalent({0.6, 0.9}, 0.5), Answer::no);
}

TEST(Effect, SplitsIntoTokensAndTime) {
  // 7.742 tokens a step at 76.2 ms against 7.5 at 75: log ratios add up.
  const Speed a{7.5 / 75 * 1000, 7.5, 75.0}, b{7.742 / 76.2 * 1000, 7.742, 76.2};
  const LogRatio ratio = log_ratio(a, b);
  EXPECT_NEAR(ratio.rate, *ratio.tokens_per_step - *ratio.ms_per_step, 1e-12);
  EXPECT_FALSE(log_ratio({100, {}, {}}, b).tokens_per_step);
  // The notes' card: 64.6 -> 31.9 tok/s while 4.75 -> 3.0 tokens a step: acceptance is 65 % of the
  // loss.
  const LogRatio depth =
      log_ratio({64.6, 4.75, 4.75 / 64.6 * 1000}, {31.9, 3.0, 3.0 / 31.9 * 1000});
  EXPECT_NEAR(*depth.tokens_per_step / depth.rate, 0.65, 0.005);
  EXPECT_NEAR(percent(log_of_percent(1.5)), 1.5, 1e-12);
}

TEST(Effect, ClassesWeighTheSame) {
  const std::vector<double> values = {1, 1, 1, 1, 1, 5, 9};
  const std::vector<std::string> one(7, ""), classes = {"a", "a", "a", "a", "a", "b", "c"};
  EXPECT_EQ(median_of_class_medians(values, one), 1);
  EXPECT_EQ(median_of_class_medians(values, classes), 5);
}

TEST(Summary, QuantilesAndPooledSd) {
  const std::vector<double> x = {4, 1, 3, 2};
  EXPECT_EQ(median(x), 2.5);
  EXPECT_EQ(quantile(x, 0.25), 1.75);
  EXPECT_EQ(quantile(x, 1), 4);
  const std::vector<std::vector<double>> groups = {{1, 3}, {10, 10, 13}, {99}};
  const PooledSd pooled = pooled_sd(groups);
  EXPECT_EQ(pooled.df, 3);
  EXPECT_NEAR(pooled.sd, std::sqrt((2 + 6) / 3.0), 1e-12);
  EXPECT_TRUE(std::isinf(sd_interval(1, 0, 0.95).high));
}

}  // namespace
}  // namespace lockstep::lab::stats
