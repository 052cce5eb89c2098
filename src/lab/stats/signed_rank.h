// The centre of a symmetric distribution from few values: Hodges and Lehmann, "Estimates of
// location based on rank tests", Annals of Mathematical Statistics 1963, with the interval that
// inverts Wilcoxon's signed-rank test exactly (Wilcoxon 1945; Hollander and Wolfe, "Nonparametric
// Statistical Methods", section 3.3). No assumption on the shape but symmetry about the centre,
// which pairs whose order is drawn at random have by design when there is no effect.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lab/stats/distributions.h"

namespace lockstep::lab::stats {

// Number of values below which no two-sided exact interval reaches 95 %: 5 values reach 93.75 %.
inline constexpr int64_t kSignedRankFloor = 6;

// P(W+ <= w), W+ the sum of the ranks of the positive ones of n values, under symmetry about 0:
// counted exactly up to n = 500, by the normal approximation with continuity correction above.
double signed_rank_cdf(int64_t w, int64_t n);

// The (x_i + x_j)/2 for i <= j, ascending: n (n + 1)/2 of them.
std::vector<double> walsh_averages(std::span<const double> x);
double hodges_lehmann(std::span<const double> x);  // their median; x not empty

// The narrowest interval between two Walsh averages whose level is at least `level`. Where none
// reaches it (fewer than 6 values at 95 %), the widest one there is: from the least value to the
// largest, with the level it attains. `attained` is exact for a continuous symmetric distribution.
struct SignedRankInterval {
  double estimate = 0;
  Interval interval;
  double attained = 0;
  bool reached = false;  // attained >= level
};
SignedRankInterval signed_rank_interval(std::span<const double> x, double level);

// Two-sided exact p value of centre 0 (zeros are dropped, ties get mean ranks and are counted
// exactly by doubling ranks; Pratt's question of zeros does not arise for continuous data). 1 where
// nothing is left. Callers print it only for n >= 6.
double signed_rank_p(std::span<const double> x);

// The level that signed_rank_interval attains for n values (it depends on n alone), and the index k
// (from 0) of the Walsh average that is its lower end.
struct SignedRankLevel {
  int64_t k = 0;
  double attained = 0;
  bool reached = false;
};
SignedRankLevel signed_rank_level(int64_t n, double level);

}  // namespace lockstep::lab::stats
