// The unit of every comparison: the log ratio of two rates, and what it is made of.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep::lab::stats {

// One row's speed. rate = tokens_per_step / ms_per_step * 1000 where the steps are known.
struct Speed {
  double tok_s = 0;
  std::optional<double> tokens_per_step, ms_per_step;
};

// log(b.tok_s / a.tok_s) and its two parts: more tokens a step (drafts accepted) and less time a
// step.
//   log rate ratio = log(tokens per step ratio) - log(ms per step ratio)
// In a greedy exact comparison the first is the same number every time: it is compared by equality.
struct LogRatio {
  double rate = 0;
  std::optional<double> tokens_per_step,
      ms_per_step;  // ms_per_step with its sign: below 0 is faster
};
LogRatio log_ratio(const Speed& a, const Speed& b);

// Of a block: the median over the prompts of each class, then over the classes, so that ten prompts
// of one kind do not outvote one of another. classes[i] belongs to values[i]; all equal is a plain
// median.
double median_of_class_medians(std::span<const double> values,
                               std::span<const std::string> classes);

// exp(log ratio) - 1 in per cent, and back.
double percent(double log_ratio);
double log_of_percent(double percent);

}  // namespace lockstep::lab::stats
