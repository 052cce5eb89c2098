#include "lab/stats/effect.h"

#include <cmath>
#include <map>

#include "lab/stats/summary.h"

namespace lockstep::lab::stats {

LogRatio log_ratio(const Speed& a, const Speed& b) {
  LogRatio out{std::log(b.tok_s / a.tok_s), std::nullopt, std::nullopt};
  if (a.tokens_per_step && b.tokens_per_step && a.ms_per_step && b.ms_per_step) {
    out.tokens_per_step = std::log(*b.tokens_per_step / *a.tokens_per_step);
    out.ms_per_step = std::log(*b.ms_per_step / *a.ms_per_step);
  }
  return out;
}

double median_of_class_medians(std::span<const double> values,
                               std::span<const std::string> classes) {
  std::map<std::string, std::vector<double>> by_class;
  for (size_t i = 0; i < values.size(); ++i) by_class[classes[i]].push_back(values[i]);
  std::vector<double> medians;
  for (const auto& [name, members] : by_class) medians.push_back(median(members));
  return median(medians);
}

double percent(double log_ratio) {
  return 100 * std::expm1(log_ratio);
}

double log_of_percent(double percent) {
  return std::log1p(percent / 100);
}

}  // namespace lockstep::lab::stats
