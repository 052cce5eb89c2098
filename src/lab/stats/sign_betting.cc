#include "lab/stats/sign_betting.h"

#include <algorithm>
#include <cmath>

namespace lockstep::lab::stats {

void SignBetting::add(double difference) {
  const double size = std::abs(difference);
  sizes_.insert(std::upper_bound(sizes_.begin(), sizes_.end(), size), size);
  const size_t n = sizes_.size();
  const double scale = 0.5 * (sizes_[(n - 1) / 2] + sizes_[n / 2]);
  if (size == 0 || scale == 0) return;  // no sign, or no scale yet: nothing is staked
  for (size_t i = 0; i < kStakes.size(); ++i) {
    const double stake = std::tanh(kStakes[i] * size / scale) * (difference > 0 ? 1 : -1);
    log_up_[i] += std::log1p(stake);
    log_down_[i] += std::log1p(-stake);
  }
  best_ = std::max(best_, e_value());
}

double SignBetting::e_value() const {
  double sum = 0;
  for (size_t i = 0; i < kStakes.size(); ++i) sum += std::exp(log_up_[i]) + std::exp(log_down_[i]);
  return sum / (2.0 * kStakes.size());
}

double SignBetting::p_value() const {
  return 1 / best_;
}

SignBettingResult sign_betting(std::span<const double> differences, double centre) {
  SignBetting bet;
  for (const double d : differences) bet.add(d - centre);
  return {bet.e_value(), bet.p_value()};
}

}  // namespace lockstep::lab::stats
