#include "lab/stats/canary.h"

#include <cmath>

namespace lockstep::lab::stats {

double fault_rate_bound(int64_t clean_rows, double level) {
  if (clean_rows <= 0) return 1;
  return -std::expm1(std::log1p(-level) / static_cast<double>(clean_rows));
}

int64_t rows_to_see(double fault_rate, double level) {
  return static_cast<int64_t>(std::ceil(std::log1p(-level) / std::log1p(-fault_rate)));
}

Interval clopper_pearson(int64_t events, int64_t n, double level) {
  const double x = static_cast<double>(events), size = static_cast<double>(n);
  const double tail = (1 - level) / 2;
  return {events == 0 ? 0 : beta_quantile(tail, x, size - x + 1),
          events == n ? 1 : beta_quantile(1 - tail, x + 1, size - x)};
}

double clopper_pearson_upper(int64_t events, int64_t n, double level) {
  if (events >= n) return 1;
  return beta_quantile(level, static_cast<double>(events) + 1, static_cast<double>(n - events));
}

Canary canary(int64_t rows, int64_t failed, int64_t distinct_inputs, double level) {
  return {rows, failed, distinct_inputs, clopper_pearson_upper(failed, rows, level),
          fault_rate_bound(distinct_inputs, level)};
}

}  // namespace lockstep::lab::stats
