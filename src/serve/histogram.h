// Counts of durations in buckets, as Prometheus reads them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::serve {

struct Histogram {
  // Upper bounds, in seconds.
  static constexpr std::array<double, 16> kBounds = {
      0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.1, 0.2, 0.4, 1, 2.5, 5, 10, 30, 120};

  void add(double seconds, int64_t times = 1) {
    size_t bucket = 0;
    while (bucket < kBounds.size() && seconds > kBounds[bucket]) ++bucket;
    counts[bucket] += times;
    sum += seconds * static_cast<double>(times);
  }

  std::array<int64_t, kBounds.size() + 1> counts{};  // of each bucket alone; the last has no bound
  double sum = 0;
};

}  // namespace lockstep::serve
