// Stopping rules: boundaries against published ones, mixtures against their definition, predictions
// against what is exactly known.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lab/stats/group_sequential.h"
#include "lab/stats/mixture.h"
#include "lab/stats/random.h"
#include "lab/stats/sign_betting.h"
#include "lab/stats/stopping.h"
#include "lab/stats/summary.h"

namespace lockstep::lab::stats {
namespace {

void expect_boundaries(std::vector<int64_t> looks, std::vector<double> published) {
  const GroupSequential plan(looks, 0.05);
  for (size_t i = 0; i < looks.size(); ++i) {
    EXPECT_NEAR(plan.z_boundary(i), published[i], 2e-3) << looks.size() << " looks, " << i;
  }
  EXPECT_NEAR(plan.cumulative_alpha(looks.size() - 1), 0.05, 1e-12);
}

TEST(GroupSequential, BoundariesOfThePackages) {
  // Two-sided 5 %, O'Brien-Fleming-like spending, equal steps: what gsDesign, rpact and the program
  // of Reboussin et al. give.
  expect_boundaries({10}, {1.960});
  expect_boundaries({10, 20}, {2.9626, 1.9686});
  expect_boundaries({10, 20, 30}, {3.7103, 2.5114, 1.9930});
  expect_boundaries({10, 20, 30, 40}, {4.3326, 2.9631, 2.3590, 2.0141});
  expect_boundaries({10, 20, 30, 40, 50}, {4.8769, 3.3569, 2.6803, 2.2898, 2.0310});
}

TEST(GroupSequential, EstimatedVarianceWidensEarlyLooks) {
  const std::vector<int64_t> looks = {6, 12, 24};
  const GroupSequential plan(looks, 0.05);
  EXPECT_GT(plan.t_boundary(0), 2 * plan.z_boundary(0));
  EXPECT_NEAR(plan.t_boundary(2) / plan.z_boundary(2), 1.05, 0.02);
  const Interval interval = plan.repeated_interval(2, 1, 2);
  EXPECT_NEAR(interval.high - 1, plan.t_boundary(2) * 2 / std::sqrt(24.0), 1e-12);
}

TEST(GroupSequential, GivesUpAHopelessGain) {
  const std::vector<int64_t> looks = {6, 12, 18, 24};
  const FutilityBound futility(looks);
  const GroupSequential wide(looks, 0.2);
  // At 12 blocks of SD 1 and mean 0 the interval of level 80 % ends at its boundary over sqrt 12.
  const double edge = wide.t_boundary(1) / std::sqrt(12.0);
  EXPECT_TRUE(futility.gives_up(1, 0, 1, edge * 1.001));
  EXPECT_FALSE(futility.gives_up(1, 0, 1, edge * 0.999));
  // A gain that is there is given up with a chance of 10 % at most, over all looks.
  const StoppingProfile there =
      stopping_profile(looks, 1, [&](size_t look, int64_t, double m, double sd) {
        return futility.gives_up(look, m, sd, 1) ? Stop::futile : Stop::go_on;
      });
  EXPECT_NEAR(there.p_futile, 0.1, 0.005);
  // One that is not there is given up mostly.
  const StoppingProfile none =
      stopping_profile(looks, 0, [&](size_t look, int64_t, double m, double sd) {
        return futility.gives_up(look, m, sd, 1) ? Stop::futile : Stop::go_on;
      });
  EXPECT_GT(none.p_futile, 0.99);
}

TEST(Mixture, IntervalsHoldWhatIsNotRejected) {
  const NormalMixture known{0.9, 1.1, 0.05};
  const TMixture unknown{1.1, 0.05};
  for (const int64_t n : {5, 12, 60}) {
    const Interval a = known.interval(n, 0.3), b = unknown.interval(n, 0.3, 0.8);
    EXPECT_NEAR(known.log_e_value(n, 0.3, a.low), std::log(20), 1e-9);
    EXPECT_NEAR(unknown.log_e_value(n, 0.3, 0.8, b.high), std::log(20), 1e-9);
  }
  // The formula in the lab's notes, with the prior in units of the effect: s = 0.9, tau = 0.99.
  const double n = 12, s2 = 0.81, t2 = 0.99 * 0.99, d = 0.7;
  EXPECT_NEAR(known.log_e_value(12, d),
              0.5 * std::log(s2 / (s2 + n * t2)) + n * n * t2 * d * d / (2 * s2 * (s2 + n * t2)),
              1e-12);
  // Far from 0 too few values exclude anything.
  EXPECT_TRUE(std::isinf(unknown.interval(1, 5, 0).high));
  EXPECT_TRUE(std::isinf(unknown.interval(2, 5, 0.001).high));
  EXPECT_EQ(unknown.log_e_value(1, 5, 0), 0);
}

TEST(Mixture, TMixtureIsAMartingale) {
  // E[E_3] = 1 under the null, whatever the scale: by a fine sum over two ratios. The invariant of
  // three values is a direction on the sphere, uniform under the null.
  const TMixture mixture{1.3, 0.05};
  double sum = 0;
  const int kSteps = 400;
  int count = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double z = -1 + (i + 0.5) * 2 / kSteps;  // uniform height: uniform on the sphere
    for (int j = 0; j < kSteps; ++j) {
      const double angle = 2 * M_PI * (j + 0.5) / kSteps, r = std::sqrt(1 - z * z);
      const std::vector<double> x = {17 * r * std::cos(angle), 17 * r * std::sin(angle), 17 * z};
      sum += std::exp(mixture.log_e_value(3, mean(x), standard_deviation(x)));
      ++count;
    }
  }
  EXPECT_NEAR(sum / count, 1, 1e-3);
}

TEST(SignBetting, FairUnderEverySignPattern) {
  // The mean over all sign patterns of the final money is exactly 1: each bet is fair.
  const double sizes[] = {0.3, 2, 0.7, 9, 0.01, 1};
  double sum = 0;
  for (int signs = 0; signs < 64; ++signs) {
    SignBetting bet;
    for (int i = 0; i < 6; ++i) bet.add((signs >> i & 1 ? 1 : -1) * sizes[i]);
    sum += bet.e_value();
  }
  EXPECT_NEAR(sum / 64, 1, 1e-12);
  // Ten gains in a row are proof; the side does not matter, nor the unit.
  std::vector<double> up, down;
  for (int i = 0; i < 10; ++i) {
    up.push_back(1 + 0.1 * i);
    down.push_back(-1e-6 * up.back());
  }
  EXPECT_GT(sign_betting(up).e_value, 20);
  EXPECT_NEAR(sign_betting(up).e_value, sign_betting(down).e_value, 1e-9);
  EXPECT_LT(sign_betting(up).p_value, 0.05);
  EXPECT_EQ(sign_betting(std::vector<double>{0, 0, 0}).e_value, 1);
}

TEST(Stopping, PredictsWhatIsKnownExactly) {
  // One look of a t test: its size, and its power by the noncentral t.
  const std::vector<int64_t> one = {8};
  const auto t_test = [](size_t, int64_t n, double m, double sd) {
    const double t = m / sd * std::sqrt(static_cast<double>(n));
    const double c = student_t_quantile(0.975, static_cast<double>(n - 1));
    return t > c ? Stop::high : t < -c ? Stop::low : Stop::go_on;
  };
  const StoppingProfile null = stopping_profile(one, 0, t_test);
  EXPECT_NEAR(null.p_high, 0.025, 0.001);
  EXPECT_NEAR(null.p_low, 0.025, 0.001);
  EXPECT_NEAR(null.expected_n, 8, 1e-6);
  const StoppingProfile gain = stopping_profile(one, 1, t_test);
  const double critical = student_t_quantile(0.975, 7);
  EXPECT_NEAR(gain.p_high + gain.p_low, noncentral_t_two_sided(critical, 7, std::sqrt(8.0)), 0.003);
  // The same after stepping from 3 to 8 value by value.
  const std::vector<int64_t> two = {3, 8};
  const StoppingProfile stepped =
      stopping_profile(two, 1, [&](size_t look, int64_t n, double m, double sd) {
        return look == 0 ? Stop::go_on : t_test(look, n, m, sd);
      });
  EXPECT_NEAR(stepped.p_high, gain.p_high, 0.003);
  EXPECT_NEAR(stepped.p_high + stepped.p_low + stepped.p_unknown, 1, 1e-6);
}

TEST(Stopping, GroupSequentialSpendsItsAlpha) {
  const std::vector<int64_t> looks = {6, 12, 18, 24, 36};
  const GroupSequential plan(looks, 0.05);
  const StoppingProfile null =
      stopping_profile(looks, 0, [&](size_t look, int64_t, double m, double sd) {
        const Interval i = plan.repeated_interval(look, m, sd);
        return i.low > 0 ? Stop::high : i.high < 0 ? Stop::low : Stop::go_on;
      });
  EXPECT_NEAR(null.p_high + null.p_low, 0.05, 0.003);
  EXPECT_GT(null.expected_n, 34);
}

TEST(Random, RepeatsAndIsUniform) {
  Random a(1, 2), b(1, 2), c(1, 3);
  EXPECT_EQ(a.word(), b.word());
  EXPECT_NE(a.word(), c.word());
  std::vector<int> counts(7, 0);
  for (int i = 0; i < 70000; ++i) ++counts[a.below(7)];
  for (const int count : counts) EXPECT_NEAR(count, 10000, 500);
  double sum = 0, squares = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = a.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / 1e5, 0, 0.015);
  EXPECT_NEAR(squares / 1e5, 1, 0.02);
}

}  // namespace
}  // namespace lockstep::lab::stats
