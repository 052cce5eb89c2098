#include "lab/stats/mixture.h"

#include <cmath>
#include <limits>

namespace lockstep::lab::stats {

double NormalMixture::log_e_value(int64_t n, double mean, double hypothesis) const {
  const double size = static_cast<double>(n), v = 1 + size * tau * tau;
  const double m = (mean - hypothesis) / sigma;
  return -0.5 * std::log(v) + size * size * tau * tau * m * m / (2 * v);
}

Interval NormalMixture::interval(int64_t n, double mean) const {
  const double size = static_cast<double>(n), v = 1 + size * tau * tau;
  const double reach =
      sigma / (size * tau) * std::sqrt(2 * v * (0.5 * std::log(v) - std::log(alpha)));
  return {mean - reach, mean + reach};
}

double TMixture::log_e_value(int64_t n, double mean, double sd, double hypothesis) const {
  if (n < 2) return 0;  // one value tells nothing about its scale: E_1 = 1
  const double size = static_cast<double>(n), v = 1 + size * tau * tau;
  const double m = mean - hypothesis;
  const double q = (size - 1) * sd * sd, u = size * m * m;
  if (q + u == 0) return 0;
  return -0.5 * std::log(v) + 0.5 * size * (std::log(q + u) - std::log(q + u / v));
}

Interval TMixture::interval(int64_t n, double mean, double sd) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (n < 2) return {-kInfinity, kInfinity};
  const double size = static_cast<double>(n), v = 1 + size * tau * tau;
  // E_n(hypothesis) < 1/alpha solved for u = n (mean - hypothesis)^2.
  const double r = std::exp((2 / size) * (0.5 * std::log(v) - std::log(alpha)));
  if (r >= v) return {-kInfinity, kInfinity};
  const double u = (size - 1) * sd * sd * (r - 1) / (1 - r / v);
  const double reach = std::sqrt(u / size);
  return {mean - reach, mean + reach};
}

}  // namespace lockstep::lab::stats
