#include "lab/stats/selection.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lab/stats/summary.h"

namespace lockstep::lab::stats {

double expected_largest(int64_t k) {
  // Simpson's rule; the integrand is smooth and nothing outside (-10, 10) for any k below 1e20.
  constexpr int kSteps = 4000;
  constexpr double kEdge = 10, kStep = 2 * kEdge / kSteps;
  if (k == 1) return 0;  // not the sum's last bit
  const double count = static_cast<double>(k);
  double sum = 0;
  for (int i = 0; i <= kSteps; ++i) {
    const double x = -kEdge + i * kStep;
    const double weight = i == 0 || i == kSteps ? 1 : i % 2 == 1 ? 4 : 2;
    sum += weight * x * count * normal_pdf(x) * std::pow(normal_cdf(x), count - 1);
  }
  return sum * kStep / 3;
}

namespace {

std::vector<NormalPrior::Possible> posterior_of_sd(std::span<const double> values,
                                                   std::span<const double> errors) {
  // Middles of equal steps of the SD; a flat density of the variance weighs each by its SD.
  constexpr int kPoints = 30;
  double most = 0;
  for (const double error : errors) most = std::max(most, error);
  if (values.size() > 1) most = std::max(most, standard_deviation(values));
  most *= 3;
  std::vector<NormalPrior::Possible> out;
  double highest = -INFINITY;
  for (int i = 0; i < kPoints; ++i) {
    const double sd = most * (i + 0.5) / kPoints;
    double precision = 0, weighted = 0;
    for (size_t j = 0; j < values.size(); ++j) {
      const double w = 1 / (errors[j] * errors[j] + sd * sd);
      precision += w;
      weighted += w * values[j];
    }
    const double centre = weighted / precision;
    double log_density = std::log(sd) - 0.5 * std::log(precision);
    for (size_t j = 0; j < values.size(); ++j) {
      const double v = errors[j] * errors[j] + sd * sd, d = values[j] - centre;
      log_density -= 0.5 * (std::log(v) + d * d / v);
    }
    highest = std::max(highest, log_density);
    out.push_back({sd, log_density, centre, 1 / precision});
  }
  double sum = 0;
  for (auto& possible : out) sum += possible.probability = std::exp(possible.probability - highest);
  for (auto& possible : out) possible.probability /= sum;
  return out;
}

}  // namespace

NormalPrior fit_normal_prior(std::span<const double> values, std::span<const double> errors) {
  double weights = 0, squares = 0, weighted = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double w = 1 / (errors[i] * errors[i]);
    weights += w;
    squares += w * w;
    weighted += w * values[i];
  }
  const double fixed_mean = weighted / weights;
  double heterogeneity = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    heterogeneity += (values[i] - fixed_mean) * (values[i] - fixed_mean) / (errors[i] * errors[i]);
  }
  const double df = static_cast<double>(values.size() - 1);
  const double variance = std::max(0.0, (heterogeneity - df) / (weights - squares / weights));
  double total = 0, sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double w = 1 / (errors[i] * errors[i] + variance);
    total += w;
    sum += w * values[i];
  }
  NormalPrior out{sum / total, std::sqrt(variance), static_cast<int64_t>(values.size()), {}};
  out.possible = posterior_of_sd(values, errors);
  return out;
}

Interval Shrunk::interval(double level) const {
  double low = INFINITY, high = -INFINITY;
  for (const Part& part : posterior) {
    low = std::min(low, part.mean - 10 * part.sd);
    high = std::max(high, part.mean + 10 * part.sd);
  }
  const auto quantile_of_mixture = [&](double p) {
    double from = low, to = high;
    for (int i = 0; i < 30; ++i) {
      const double mid = 0.5 * (from + to);
      double below = 0;
      for (const Part& part : posterior) {
        below += part.probability * (part.sd > 0 ? normal_cdf((mid - part.mean) / part.sd)
                                                 : (part.mean <= mid ? 1.0 : 0.0));
      }
      (below < p ? from : to) = mid;
    }
    return 0.5 * (from + to);
  };
  return {quantile_of_mixture((1 - level) / 2), quantile_of_mixture((1 + level) / 2)};
}

Shrunk shrink(double value, double error, const NormalPrior& prior) {
  const double error2 = error * error, prior2 = prior.sd * prior.sd;
  Shrunk out;
  out.weight = prior2 / (prior2 + error2);
  out.value = prior.mean + out.weight * (value - prior.mean);
  for (const NormalPrior::Possible& possible : prior.possible) {
    if (possible.probability < 1e-6) continue;
    const double w = possible.sd * possible.sd / (possible.sd * possible.sd + error2);
    out.posterior.push_back({possible.probability, possible.mean + w * (value - possible.mean),
                             std::sqrt(w * error2 + (1 - w) * (1 - w) * possible.mean_variance)});
  }
  // A prior that was given and not estimated is the only one possible.
  if (prior.possible.empty()) {
    out.posterior.push_back({1, out.value, std::sqrt(out.weight) * error});
  }
  return out;
}

RecordValue record_value(double selected, int64_t launched, std::span<const double> fresh,
                         double error, const NormalPrior& prior, double level) {
  RecordValue out;
  out.selected = selected;
  out.by_luck = expected_largest(launched) * error;
  out.confirmed = mean(fresh);
  const double n = static_cast<double>(fresh.size());
  if (fresh.size() < 2) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    out.confirmed_interval = {-kInfinity, kInfinity};
  } else {
    const double reach =
        student_t_quantile(0.5 + level / 2, n - 1) * standard_deviation(fresh) / std::sqrt(n);
    out.confirmed_interval = {out.confirmed - reach, out.confirmed + reach};
  }
  out.replication = shrink(out.confirmed, error / std::sqrt(n), prior);
  return out;
}

}  // namespace lockstep::lab::stats
