#include "draft/cost_curve.h"

#include <algorithm>
#include <cmath>

namespace lockstep::draft {

CostCurve::CostCurve(int size, int first, double slope)
    : points_(static_cast<size_t>(size)),
      fitted_(static_cast<size_t>(size), 0.0),
      first_(first),
      slope_(slope) {}

void CostCurve::observe(int index, double ms) {
  if (index < first_ || index >= static_cast<int>(points_.size()) || !std::isfinite(ms) || ms < 0.0)
    return;
  Point& point = points_[static_cast<size_t>(index)];
  if (stale(point)) {
    point.recent.clear();
    point.next = 0;
  }
  if (point.recent.size() < kKept) {
    point.recent.push_back(ms);
  } else {
    point.recent[point.next] = ms;
    point.next = (point.next + 1) % kKept;
  }
  point.last = ++observed_;
  // The lower of the two in the middle: what disturbs a time makes it longer.
  std::vector<double> sorted = point.recent;
  const auto middle = sorted.begin() + static_cast<ptrdiff_t>((sorted.size() - 1) / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  point.median = *middle;
  fit();
}

// Pools neighbours that fall (each weighs as many samples as it has), then draws straight lines.
void CostCurve::fit() {
  struct Pool {
    double ms, weight;
    int begin, end;
  };
  std::vector<Pool> pools;
  for (int i = first_; i < static_cast<int>(points_.size()); ++i) {
    const Point& point = points_[static_cast<size_t>(i)];
    if (point.recent.empty()) continue;
    pools.push_back({point.median, static_cast<double>(point.recent.size()), i, i});
    while (pools.size() > 1 && pools[pools.size() - 2].ms > pools.back().ms) {
      const Pool last = pools.back();
      pools.pop_back();
      Pool& into = pools.back();
      into.ms = (into.ms * into.weight + last.ms * last.weight) / (into.weight + last.weight);
      into.weight += last.weight;
      into.end = last.end;
    }
  }
  std::vector<std::pair<int, double>> knots;
  for (const Pool& pool : pools) {
    knots.emplace_back(pool.begin, pool.ms);
    if (pool.end > pool.begin) knots.emplace_back(pool.end, pool.ms);
  }
  if (knots.empty()) return;
  // Beyond the last one as steeply as from the first to it, before the first by the slope alone.
  const double base = knots.front().second / (1 + slope_ * (knots.front().first - first_));
  if (knots.front().first > first_) knots.insert(knots.begin(), {first_, base});
  const int span = knots.back().first - first_;
  const double rise = std::max(slope_ * base, span > 0 ? (knots.back().second - base) / span : 0.0);
  const int end = static_cast<int>(points_.size()) - 1;
  if (knots.back().first < end) {
    knots.emplace_back(end, knots.back().second + rise * (end - knots.back().first));
  }
  for (size_t k = 0; k + 1 < knots.size(); ++k) {
    const auto [a, at_a] = knots[k];
    const auto [b, at_b] = knots[k + 1];
    for (int i = a; i <= b; ++i) {
      fitted_[static_cast<size_t>(i)] = at_a + (at_b - at_a) * (i - a) / std::max(1, b - a);
    }
  }
}

double CostCurve::at(int index) const {
  return fitted_[static_cast<size_t>(std::clamp(index, 0, static_cast<int>(fitted_.size()) - 1))];
}

bool CostCurve::uncertain(int index) const {
  const Point& point = points_[static_cast<size_t>(index)];
  return point.recent.size() < 2 || stale(point);
}

double CostCurve::at_least(int index) const {
  int below = index;
  while (below > first_ && uncertain(below)) --below;
  return std::min(at(below), at(index));
}

}  // namespace lockstep::draft
