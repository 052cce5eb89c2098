#include "lab/stats/multiplicity.h"

#include <algorithm>
#include <numeric>

namespace lockstep::lab::stats {
namespace {

std::vector<size_t> ascending(std::span<const double> p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  return order;
}

}  // namespace

std::vector<double> holm(std::span<const double> p) {
  const std::vector<size_t> order = ascending(p);
  std::vector<double> out(p.size());
  double running = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    running = std::max(running, static_cast<double>(order.size() - i) * p[order[i]]);
    out[order[i]] = std::min(1.0, running);
  }
  return out;
}

std::vector<double> benjamini_hochberg(std::span<const double> p) {
  const std::vector<size_t> order = ascending(p);
  std::vector<double> out(p.size());
  double running = 1;
  for (size_t i = order.size(); i-- > 0;) {
    running = std::min(
        running, static_cast<double>(order.size()) / static_cast<double>(i + 1) * p[order[i]]);
    out[order[i]] = running;
  }
  return out;
}

}  // namespace lockstep::lab::stats
