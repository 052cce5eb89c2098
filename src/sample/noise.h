// Gumbel noise of the sampling law: g = -log(-log u), u = (w + 1/2)·2^-32, w a word of
// Philox4x32-10 keyed by seed, position, token id and choice index. Nothing else enters, so that
// any source of drafts can draw with the noise of the position it drafts for.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/philox.h"
#include "kernels/math/elementary64.h"

namespace lockstep::sample {

// No g is greater (the greatest word gives 22.874).
inline constexpr double kGreatestNoise = 22.88;

struct NoiseKey {
  std::array<uint32_t, 2> key;
  uint32_t position;
  uint32_t choice_index;

  NoiseKey(uint64_t seed, int64_t at, uint32_t choice)
      : key{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
        position(static_cast<uint32_t>(at)),
        choice_index(choice) {}

  // Words of ids 4·group … 4·group + 3.
  std::array<uint32_t, 4> words(uint32_t group) const {
    return philox4x32_10({position, group, choice_index, 0}, key);
  }
};

inline double noise_of_word(uint32_t w) {
  const double u = (static_cast<double>(w) + 0.5) * 0x1p-32;
  return -math::log(-math::log(u));
}

// At least noise_of_word(w), without a logarithm: -log u >= 1 - u, and 1 - u >= 2^(-1-clz(~w)).
// The margin covers the rounding of log.
inline double noise_bound(uint32_t w) {
  constexpr double kLn2 = 0.693147180559945309;
  return static_cast<double>(std::countl_zero(~w) + 1) * kLn2 + 1e-9;
}

// Every word whose noise reaches g is at least this (some smaller ones may be, too): noise_bound,
// turned around.
inline uint32_t least_word(double g) {
  constexpr double kLog2E = 1.44269504088896341;
  const double ones = g * kLog2E - 1.0 - 1e-6;  // leading one bits it takes
  if (!(ones > 0.0)) return 0;
  if (ones >= 31.0) return 0xFFFFFFFEu;
  return ~(0xFFFFFFFFu >> (static_cast<int>(ones) + 1));
}

inline double noise(const NoiseKey& key, int32_t id) {
  const uint32_t i = static_cast<uint32_t>(id);
  return noise_of_word(key.words(i >> 2)[i & 3]);
}

}  // namespace lockstep::sample
