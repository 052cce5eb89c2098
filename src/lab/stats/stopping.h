// When a rule that looks at the mean and SD of normal values will stop: by propagating the joint
// density of (sum, squared deviations) from value to value, as Armitage, McPherson and Rowe (JRSS A
// 1969) do for a known variance. So a prediction needs no simulation, and the simulations test it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace lockstep::lab::stats {

enum class Stop { go_on, high, low, futile };  // above the threshold, below it, given up

// What the rule does at a look after n values with this mean and SD (n - 1 below).
using StoppingRule = std::function<Stop(size_t look, int64_t n, double mean, double sd)>;

struct StoppingProfile {
  std::vector<int64_t> looks;
  std::vector<double> high, low, futile;  // chance to stop at each look
  double p_high = 0, p_low = 0, p_futile = 0;
  double p_unknown = 0;        // the last look has not decided either
  double expected_n = 0;       // of values used, undecided ones to the last look
  double expected_n_high = 0;  // of those that stop high; 0 where none do
};

// Values N(effect, 1): effect, like the means that the rule sees, is in units of the SD. looks
// rises strictly, from at least 2. The grid's error in probabilities is below about 0.002.
StoppingProfile stopping_profile(std::span<const int64_t> looks, double effect,
                                 const StoppingRule& rule);

}  // namespace lockstep::lab::stats
