#include "lab/stats/bootstrap.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lab/stats/random.h"
#include "lab/stats/summary.h"

namespace lockstep::lab::stats {

BootstrapIntervals cluster_bootstrap(uint32_t n_clusters, const ClusterStatistic& statistic,
                                     double level, int resamples, uint64_t seed) {
  std::vector<uint32_t> drawn(n_clusters);
  std::iota(drawn.begin(), drawn.end(), 0u);
  BootstrapIntervals out;
  out.estimate = statistic(drawn);

  // The jackknife leaves out one cluster at a time.
  std::vector<double> left_out(n_clusters);
  std::vector<uint32_t> rest(n_clusters - 1);
  for (uint32_t i = 0; i < n_clusters; ++i) {
    for (uint32_t j = 0, at = 0; j < n_clusters; ++j) {
      if (j != i) rest[at++] = j;
    }
    left_out[i] = statistic(rest);
  }
  const double centre = mean(left_out);
  double cubes = 0, squares = 0;
  for (const double v : left_out) {
    const double d = centre - v;
    cubes += d * d * d;
    squares += d * d;
  }
  out.acceleration = squares > 0 ? cubes / (6 * std::pow(squares, 1.5)) : 0;

  Random random(seed);
  std::vector<double> replicates(static_cast<size_t>(resamples));
  for (double& replicate : replicates) {
    for (uint32_t& cluster : drawn) cluster = random.below(n_clusters);
    replicate = statistic(drawn);
  }
  std::sort(replicates.begin(), replicates.end());
  const double n = n_clusters;
  const double tail =
      normal_cdf(std::sqrt(n / (n - 1)) * student_t_quantile((1 - level) / 2, n - 1));
  out.percentile = {quantile(replicates, tail), quantile(replicates, 1 - tail)};

  // The share below the estimate, ties counted half, kept off 0 and 1.
  const auto below = std::lower_bound(replicates.begin(), replicates.end(), out.estimate);
  const auto above = std::upper_bound(replicates.begin(), replicates.end(), out.estimate);
  const double count = static_cast<double>(resamples);
  const double share =
      (static_cast<double>(below - replicates.begin()) + 0.5 * static_cast<double>(above - below)) /
      count;
  out.bias_correction = normal_quantile(std::clamp(share, 0.5 / count, 1 - 0.5 / count));
  const auto adjusted = [&](double p) {
    const double z = out.bias_correction + normal_quantile(p);
    return normal_cdf(out.bias_correction + z / (1 - out.acceleration * z));
  };
  out.bca = {quantile(replicates, adjusted(tail)), quantile(replicates, adjusted(1 - tail))};
  return out;
}

BootstrapIntervals cluster_bootstrap_of_medians(std::span<const std::vector<double>> clusters,
                                                double level, int resamples, uint64_t seed) {
  std::vector<double> medians;
  for (const std::vector<double>& cluster : clusters) medians.push_back(median(cluster));
  return cluster_bootstrap(
      static_cast<uint32_t>(medians.size()),
      [&](std::span<const uint32_t> drawn) {
        double sum = 0;
        for (const uint32_t i : drawn) sum += medians[i];
        return sum / static_cast<double>(drawn.size());
      },
      level, resamples, seed);
}

}  // namespace lockstep::lab::stats
