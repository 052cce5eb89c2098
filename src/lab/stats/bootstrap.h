// Intervals by resampling whole clusters. Rows of one server start share its level, so starts (or
// blocks), never rows, are drawn with replacement: Field and Welsh, "Bootstrapping clustered data",
// JRSS B 2007. Percentile and BCa intervals: Efron, "Better bootstrap confidence intervals", JASA
// 1987; both with the tails widened for few clusters (Hesterberg, "What teachers should know about
// the bootstrap", American Statistician 2015: a percentile interval of n values is too short by as
// much as a normal interval with the divisor n is beside Student's).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lab/stats/distributions.h"

namespace lockstep::lab::stats {

// Clusters fewer than this make a bootstrap interval too short to be believed; the signed-rank
// interval is used below it.
inline constexpr int64_t kBootstrapFloor = 12;

struct BootstrapIntervals {
  double estimate = 0;  // the statistic of the data
  Interval percentile;
  Interval bca;
  double bias_correction = 0;  // z0 of BCa
  double acceleration = 0;     // a of BCa, from the jackknife over clusters
};

// statistic(clusters) of the drawn clusters (indices into 0 … n_clusters-1, repeats allowed).
using ClusterStatistic = std::function<double(std::span<const uint32_t> clusters)>;

// n_clusters >= 2; resamples >= 100. The same seed gives the same figures.
BootstrapIntervals cluster_bootstrap(uint32_t n_clusters, const ClusterStatistic& statistic,
                                     double level, int resamples, uint64_t seed);

// Of the mean over clusters of each cluster's own median.
BootstrapIntervals cluster_bootstrap_of_medians(std::span<const std::vector<double>> clusters,
                                                double level, int resamples, uint64_t seed);

}  // namespace lockstep::lab::stats
