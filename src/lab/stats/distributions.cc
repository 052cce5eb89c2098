#include "lab/stats/distributions.h"

#include <boost/math/distributions/beta.hpp>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/non_central_t.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>

namespace lockstep::lab::stats {
namespace {

namespace bm = boost::math;
// Past the range of double a quantile is infinite, not an exception.
using Policy = bm::policies::policy<bm::policies::overflow_error<bm::policies::ignore_error>>;
using Normal = bm::normal_distribution<double, Policy>;
using StudentT = bm::students_t_distribution<double, Policy>;

}  // namespace

double normal_cdf(double x) {
  return bm::cdf(Normal(), x);
}

double normal_pdf(double x) {
  return bm::pdf(Normal(), x);
}

double normal_quantile(double p) {
  return bm::quantile(Normal(), p);
}

double student_t_cdf(double x, double df) {
  return bm::cdf(StudentT(df), x);
}

double student_t_quantile(double p, double df) {
  return bm::quantile(StudentT(df), p);
}

double chi_squared_quantile(double p, double df) {
  return bm::quantile(bm::chi_squared_distribution<double, Policy>(df), p);
}

double beta_quantile(double p, double a, double b) {
  return bm::quantile(bm::beta_distribution<double, Policy>(a, b), p);
}

double binomial_upper_tail(double x, int64_t n, double p) {
  if (x <= 0) return 1;
  return bm::cdf(
      bm::complement(bm::binomial_distribution<double, Policy>(static_cast<double>(n), p), x - 1));
}

double noncentral_t_two_sided(double critical, double df, double delta) {
  if (delta == 0) return 2 * student_t_cdf(-critical, df);
  // Boost's series slows down and stops for a large noncentrality, where the power is 1 anyway.
  if (std::abs(delta) > 37) return 1;
  const bm::non_central_t_distribution<double, Policy> t(df, delta);
  return bm::cdf(bm::complement(t, critical)) + bm::cdf(t, -critical);
}

}  // namespace lockstep::lab::stats
