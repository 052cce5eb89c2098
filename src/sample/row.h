// What every stage needs of a logits row: its order, its block maxima, its integer weights.
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/math/elementary.h"

namespace lockstep::sample {

struct Candidate {
  float x;
  int32_t id;
};

// The law's order: logit descending as reals (-0 = +0), id ascending.
inline bool before(const Candidate& a, const Candidate& b) {
  return a.x > b.x || (a.x == b.x && a.id < b.id);
}

// Ids of one block share an element of block_max, so that most of a vocabulary is never looked at
// again after the first pass over it.
inline constexpr int64_t kBlock = 64;
inline int64_t block_count(int64_t n) {
  return (n + kBlock - 1) / kBlock;
}

// An internal mark, never a logit: bias and penalties saturate at the greatest finite value.
inline constexpr float kRemoved = -std::numeric_limits<float>::infinity();

// Fills block_max (resized) with the greatest element of each block; false where an element has all
// exponent bits set (block_max then means nothing).
bool scan_row(const float* x, int64_t n, std::vector<float>& block_max);
float block_maximum(const float* x, int64_t n, int64_t block);

// The law's saturation: what leaves binary32's range becomes the nearest finite value.
inline float saturate(float x) {
  return x > FLT_MAX ? FLT_MAX : (x < -FLT_MAX ? -FLT_MAX : x);
}

// 2^40: the weight of the greatest candidate.
inline constexpr double kWeightOne = 0x1p40;
// Below this exp(·)·2^40 < 0.48 rounds to zero (exp is good to 1 ulp).
inline constexpr double kWeightZeroBelow = -28.45;

// roundeven of a double in [0, 2^52): the sum is rounded to an integer, ties to even.
inline uint64_t round_even(double v) {
  return static_cast<uint64_t>((v + 0x1p52) - 0x1p52);
}

// Integer weight of a candidate, d = x_i - x_max <= 0 (maybe -inf), t the temperature in force.
inline uint64_t weight_of(float d, double t) {
  const float scaled = static_cast<float>(static_cast<double>(d) / t);
  return round_even(static_cast<double>(math::exp_nonpos(scaled)) * kWeightOne);
}

}  // namespace lockstep::sample
