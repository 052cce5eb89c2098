#include "lab/stats/power.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "lab/stats/distributions.h"
#include "lab/stats/signed_rank.h"

namespace lockstep::lab::stats {
namespace {

constexpr int64_t kMostBlocks = 1'000'000;

double z_sum(double alpha, double power) {
  return normal_quantile(1 - alpha / 2) + normal_quantile(power);
}

}  // namespace

int64_t signed_rank_floor(double alpha) {
  int64_t n = 1;
  while (std::ldexp(1.0, static_cast<int>(1 - n)) > alpha * (1 + 1e-9)) ++n;
  return n;
}

int64_t blocks_normal(double sd, double effect, double alpha, double power) {
  const double root = z_sum(alpha, power) * sd / effect;
  const double n = std::ceil(root * root - 1e-9);
  if (!(n <= kMostBlocks)) return -1;
  return std::max(static_cast<int64_t>(n), signed_rank_floor(alpha));
}

double smallest_effect_normal(int64_t n, double sd, double alpha, double power) {
  if (n < signed_rank_floor(alpha)) return std::numeric_limits<double>::infinity();
  return z_sum(alpha, power) * sd / std::sqrt(static_cast<double>(n));
}

double power_signed_rank(int64_t n, double sd, double effect, double alpha) {
  const SignedRankLevel level = signed_rank_level(n, 1 - alpha);
  if (!level.reached) return 0;
  if (level.k == 0) {
    const double size = static_cast<double>(n);
    return std::pow(normal_cdf(effect / sd), size) + std::pow(normal_cdf(-effect / sd), size);
  }
  const double df = static_cast<double>(n - 1);
  const double critical = -student_t_quantile((1 - level.attained) / 2, df);
  const double efficiency = 3 / std::numbers::pi;
  return noncentral_t_two_sided(critical, df,
                                effect / sd * std::sqrt(static_cast<double>(n) * efficiency));
}

int64_t blocks_signed_rank(double sd, double effect, double alpha, double power) {
  // The level is a step function of n, so the power rises on the whole and not at every step: walk
  // from a safe start.
  const int64_t about = blocks_normal(sd, effect, alpha, power);
  if (about < 0) return -1;
  for (int64_t n = std::max(signed_rank_floor(alpha), about - 2); n <= 2 * about + 50; ++n) {
    if (power_signed_rank(n, sd, effect, alpha) >= power) return n;
  }
  return -1;
}

double smallest_effect_signed_rank(int64_t n, double sd, double alpha, double power) {
  if (n < signed_rank_floor(alpha)) return std::numeric_limits<double>::infinity();
  double low = 0, high = sd;
  while (power_signed_rank(n, sd, high, alpha) < power) high *= 2;
  for (int i = 0; i < 50; ++i) {
    const double mid = 0.5 * (low + high);
    (power_signed_rank(n, sd, mid, alpha) < power ? low : high) = mid;
  }
  return high;
}

}  // namespace lockstep::lab::stats
