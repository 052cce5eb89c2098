#include "lab/stats/signed_rank.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

#include "lab/stats/summary.h"

namespace lockstep::lab::stats {
namespace {

constexpr int64_t kExactMax = 500;

// P(sum of a random subset of `ranks` <= w) for each w: one pass a rank.
std::vector<double> subset_sum_cdf(std::span<const int64_t> ranks) {
  int64_t total = 0;
  for (const int64_t r : ranks) total += r;
  std::vector<double> p(static_cast<size_t>(total) + 1, 0.0);
  p[0] = 1;
  int64_t reach = 0;
  for (const int64_t r : ranks) {
    reach += r;
    for (int64_t s = reach; s >= 0; --s) {
      const auto at = static_cast<size_t>(s);
      p[at] = 0.5 * (p[at] + (s >= r ? p[static_cast<size_t>(s - r)] : 0));
    }
  }
  for (size_t s = 1; s < p.size(); ++s) p[s] += p[s - 1];
  return p;
}

const std::vector<double>& exact_cdf(int64_t n) {
  static std::mutex mutex;
  static std::map<int64_t, std::vector<double>> kept;
  const std::lock_guard lock(mutex);
  const auto [place, made] = kept.try_emplace(n);
  if (made) {
    std::vector<int64_t> ranks(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) ranks[static_cast<size_t>(i)] = i + 1;
    place->second = subset_sum_cdf(ranks);
  }
  return place->second;  // a map's elements stay where they are
}

}  // namespace

double signed_rank_cdf(int64_t w, int64_t n) {
  const int64_t total = n * (n + 1) / 2;
  if (w < 0) return 0;
  if (w >= total) return 1;
  if (n <= kExactMax) return exact_cdf(n)[static_cast<size_t>(w)];
  const double size = static_cast<double>(n);
  const double variance = size * (size + 1) * (2 * size + 1) / 24;
  return normal_cdf((static_cast<double>(w) + 0.5 - size * (size + 1) / 4) / std::sqrt(variance));
}

std::vector<double> walsh_averages(std::span<const double> x) {
  std::vector<double> out;
  out.reserve(x.size() * (x.size() + 1) / 2);
  for (size_t i = 0; i < x.size(); ++i) {
    for (size_t j = i; j < x.size(); ++j) out.push_back(0.5 * (x[i] + x[j]));
  }
  std::sort(out.begin(), out.end());
  return out;
}

double hodges_lehmann(std::span<const double> x) {
  return median(walsh_averages(x));
}

SignedRankLevel signed_rank_level(int64_t n, double level) {
  // The interval from the k-th least Walsh average (from 0) to the k-th largest misses the centre
  // with probability 2 P(W+ <= k).
  const double tail = (1 - level) / 2;
  // A level of 1 - 2^(1-n) asked for in decimals must not be missed by a rounding.
  const auto within = [tail](double p) { return p <= tail * (1 + 1e-9); };
  if (!within(signed_rank_cdf(0, n))) return {0, 1 - 2 * signed_rank_cdf(0, n), false};
  int64_t low = 0, high = n * (n + 1) / 4;  // the largest k with P(W+ <= k) <= tail
  while (low < high) {
    const int64_t mid = (low + high + 1) / 2;
    if (within(signed_rank_cdf(mid, n))) {
      low = mid;
    } else {
      high = mid - 1;
    }
  }
  return {low, 1 - 2 * signed_rank_cdf(low, n), true};
}

SignedRankInterval signed_rank_interval(std::span<const double> x, double level) {
  const std::vector<double> walsh = walsh_averages(x);
  const SignedRankLevel found = signed_rank_level(static_cast<int64_t>(x.size()), level);
  const auto k = static_cast<size_t>(found.k);
  return {median(walsh), {walsh[k], walsh[walsh.size() - 1 - k]}, found.attained, found.reached};
}

double signed_rank_p(std::span<const double> x) {
  std::vector<double> values;
  for (const double v : x) {
    if (v != 0) values.push_back(v);
  }
  if (values.empty()) return 1;
  std::sort(values.begin(), values.end(),
            [](double a, double b) { return std::abs(a) < std::abs(b); });
  std::vector<int64_t> twice_ranks(values.size());
  bool ties = false;
  for (size_t i = 0; i < values.size();) {
    size_t j = i;
    while (j < values.size() && std::abs(values[j]) == std::abs(values[i])) ++j;
    ties |= j - i > 1;
    for (size_t t = i; t < j; ++t) twice_ranks[t] = static_cast<int64_t>(i + 1 + j);
    i = j;
  }
  int64_t positive = 0, total = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    total += twice_ranks[i];
    if (values[i] > 0) positive += twice_ranks[i];
  }
  const int64_t least = std::min(positive, total - positive);
  const auto n = static_cast<int64_t>(values.size());
  const double tail = ties && n <= kExactMax
                          ? subset_sum_cdf(twice_ranks)[static_cast<size_t>(least)]
                          : signed_rank_cdf(least / 2, n);
  return std::min(1.0, 2 * tail);
}

}  // namespace lockstep::lab::stats
