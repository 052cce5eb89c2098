// A bet on signs. Given the sizes |d_i|, the signs of differences that are symmetric about 0 are
// fair coins: whoever stakes a share of his money on each sign, a share that the signs before it
// and all sizes up to it may decide, grows rich by chance with probability at most alpha from 1 to
// 1/alpha (Ville 1939). No shape, no variance, any stopping rule. Ramdas, Ruf, Larsson and Koolen,
// "Admissible anytime-valid sequential inference must rely on nonnegative martingales", arXiv
// 2009.03167 (symmetric distributions); Waudby-Smith and Ramdas, "Estimating means of bounded
// random variables by betting", JRSS B 2024.
#pragma once

#include <array>
#include <span>
#include <vector>

namespace lockstep::lab::stats {

class SignBetting {
 public:
  // Takes the next difference, less the centre that is tested.
  void add(double difference);
  // Money now, from 1: the mean of all bettors (each stake on either sign). Stop when it has
  // reached 1/alpha; e-values of independent data multiply.
  double e_value() const;
  // 1 / the highest e-value so far, at most 1: a p value that holds whenever it is read.
  double p_value() const;

 private:
  // Stakes tanh(c |d| / median of |d|): the larger the difference, the larger the stake.
  static constexpr std::array<double, 3> kStakes = {0.5, 1, 2};
  std::array<double, 3> log_up_{}, log_down_{};
  std::vector<double> sizes_;  // ascending
  double best_ = 1;
};

// The bet over a whole series, in its order.
struct SignBettingResult {
  double e_value = 1, p_value = 1;
};
SignBettingResult sign_betting(std::span<const double> differences, double centre = 0);

}  // namespace lockstep::lab::stats
