#include "lab/stats/change_points.h"

#include <algorithm>
#include <cmath>

#include "lab/stats/random.h"
#include "lab/stats/summary.h"

namespace lockstep::lab::stats {
namespace {

struct Cut {
  size_t index = 0;
  double statistic = -1;  // none possible
};

// The cut of x[begin, end) with the largest energy statistic. The three sums of distances are
// carried along as values move from the right side to the left.
Cut best_cut(const std::vector<double>& x, size_t begin, size_t end, size_t min_segment) {
  Cut best;
  if (end - begin < 2 * min_segment) return best;
  double left = 0, right = 0, across = 0;
  for (size_t i = begin; i < end; ++i) {
    for (size_t j = begin; j < i; ++j) right += std::abs(x[i] - x[j]);
  }
  for (size_t i = begin; i + 1 < end; ++i) {
    double to_left = 0, to_right = 0;
    for (size_t j = begin; j < i; ++j) to_left += std::abs(x[i] - x[j]);
    for (size_t j = i + 1; j < end; ++j) to_right += std::abs(x[i] - x[j]);
    left += to_left;
    right -= to_right;
    across += to_right - to_left;
    const size_t cut = i + 1;
    if (cut - begin < min_segment || end - cut < min_segment) continue;
    const double n = static_cast<double>(cut - begin), m = static_cast<double>(end - cut);
    const double energy =
        2 * across / (n * m) - 2 * left / (n * (n - 1)) - 2 * right / (m * (m - 1));
    const double statistic = n * m / (n + m) * energy;
    if (statistic > best.statistic) best = {cut, statistic};
  }
  return best;
}

Cut best_of_all(const std::vector<double>& x, const std::vector<size_t>& borders,
                size_t min_segment) {
  Cut best;
  for (size_t i = 0; i + 1 < borders.size(); ++i) {
    const Cut cut = best_cut(x, borders[i], borders[i + 1], min_segment);
    if (cut.statistic > best.statistic) best = cut;
  }
  return best;
}

}  // namespace

std::vector<ChangePoint> e_divisive(std::span<const double> series, double alpha,
                                    size_t min_segment, int permutations, uint64_t seed) {
  const std::vector<double> x(series.begin(), series.end());
  std::vector<size_t> borders = {0, x.size()};
  std::vector<ChangePoint> found;
  Random random(seed);
  for (;;) {
    const Cut cut = best_of_all(x, borders, min_segment);
    if (cut.statistic <= 0) break;
    int as_large = 0;
    std::vector<double> shuffled = x;
    for (int i = 0; i < permutations; ++i) {
      for (size_t s = 0; s + 1 < borders.size(); ++s) {
        random.shuffle(std::span(shuffled).subspan(borders[s], borders[s + 1] - borders[s]));
      }
      as_large += best_of_all(shuffled, borders, min_segment).statistic >= cut.statistic;
    }
    const double p = (1.0 + as_large) / (1.0 + permutations);
    if (p > alpha) break;
    found.push_back({cut.index, cut.statistic, p, 0, 0});
    borders.insert(std::upper_bound(borders.begin(), borders.end(), cut.index), cut.index);
  }
  std::sort(found.begin(), found.end(),
            [](const ChangePoint& a, const ChangePoint& b) { return a.index < b.index; });
  for (size_t i = 0; i < found.size(); ++i) {
    found[i].before = median(series.subspan(borders[i], borders[i + 1] - borders[i]));
    found[i].after = median(series.subspan(borders[i + 1], borders[i + 2] - borders[i + 1]));
  }
  return found;
}

}  // namespace lockstep::lab::stats
