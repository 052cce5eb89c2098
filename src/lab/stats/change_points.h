// Steps in the level or the spread of a series: E-divisive, Matteson and James, "A nonparametric
// approach for multiple change point analysis of multivariate data", JASA 2014, for one dimension
// and exponent 1. A series is cut where the energy distance between the two sides of a segment is
// largest, segment after segment, as long as a permutation test finds the cut significant. (One
// simplification: the right side of a cut always reaches to the end of its segment.)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::lab::stats {

struct ChangePoint {
  size_t index = 0;              // the first value of the new level
  double statistic = 0;          // scaled energy distance
  double p = 0;                  // (1 + permutations at least as large) / (1 + permutations)
  double before = 0, after = 0;  // medians of the neighbouring segments once all cuts are made
};

// Values in their order in time. Cuts leave at least min_segment (>= 2) values on either side; a
// cut needs p <= alpha, where values are permuted within the segments there are. Ascending by
// index.
std::vector<ChangePoint> e_divisive(std::span<const double> series, double alpha,
                                    size_t min_segment, int permutations, uint64_t seed);

}  // namespace lockstep::lab::stats
