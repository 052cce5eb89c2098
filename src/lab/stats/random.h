// Random numbers that repeat: Philox4x32-10 under a key (seed, stream), so that a bootstrap or a
// permutation test of the same data prints the same figures on every machine.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <span>
#include <utility>

#include "base/philox.h"

namespace lockstep::lab::stats {

class Random {
 public:
  explicit Random(uint64_t seed, uint64_t stream = 0)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, stream_(stream) {}

  uint32_t word() {
    if (used_ == 4) {
      block_ =
          philox4x32_10({static_cast<uint32_t>(counter_), static_cast<uint32_t>(counter_ >> 32),
                         static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                        key_);
      ++counter_;
      used_ = 0;
    }
    return block_[used_++];
  }
  // Uniform in (0, 1): 53 bits, never an end.
  double uniform() {
    const uint64_t high = word() >> 5, low = word() >> 6;
    return (static_cast<double>((high << 26) | low) + 0.5) * 0x1p-53;
  }
  // Uniform in 0 … n-1 without bias (Lemire, "Fast random integer generation in an interval",
  // 2019).
  uint32_t below(uint32_t n) {
    uint64_t product = uint64_t{word()} * n;
    if (static_cast<uint32_t>(product) < n) {
      const uint32_t threshold = (0u - n) % n;
      while (static_cast<uint32_t>(product) < threshold) product = uint64_t{word()} * n;
    }
    return static_cast<uint32_t>(product >> 32);
  }
  // Standard normal (Box and Muller 1958).
  double normal() {
    if (spare_) {
      spare_ = false;
      return spare_value_;
    }
    const double r = std::sqrt(-2 * std::log(uniform()));
    const double angle = 2 * std::numbers::pi * uniform();
    spare_ = true;
    spare_value_ = r * std::sin(angle);
    return r * std::cos(angle);
  }
  bool coin() { return word() >> 31; }
  template <typename T>
  void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i > 1; --i) {
      std::swap(values[i - 1], values[below(static_cast<uint32_t>(i))]);
    }
  }

 private:
  std::array<uint32_t, 2> key_;
  uint64_t stream_, counter_ = 0;
  std::array<uint32_t, 4> block_{};
  int used_ = 4;
  bool spare_ = false;
  double spare_value_ = 0;
};

}  // namespace lockstep::lab::stats
