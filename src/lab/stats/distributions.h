// Distribution functions that the other files share, from Boost.Math. Kept behind this header so
// that Boost's templates are compiled once.
#pragma once

#include <cstdint>

namespace lockstep::lab::stats {

double normal_cdf(double x);
double normal_pdf(double x);
double normal_quantile(double p);                           // 0 < p < 1
double student_t_cdf(double x, double df);                  // df > 0
double student_t_quantile(double p, double df);             // 0 < p < 1
double chi_squared_quantile(double p, double df);           // 0 < p < 1
double beta_quantile(double p, double a, double b);         // 0 <= p <= 1
double binomial_upper_tail(double x, int64_t n, double p);  // P(X >= x), X ~ B(n, p)

// P(|T'| > critical) of the noncentral t with `df` degrees of freedom and noncentrality delta: the
// power of a two-sided t test.
double noncentral_t_two_sided(double critical, double df, double delta);

// An interval [low, high]; either side may be infinite.
struct Interval {
  double low = 0, high = 0;
  bool contains(double x) const { return low <= x && x <= high; }
  double width() const { return high - low; }
};

}  // namespace lockstep::lab::stats
