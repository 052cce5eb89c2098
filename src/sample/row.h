// What every stage needs of a logits row: its order, and integer weights.
#pragma once

#include <cfloat>
#include <cstdint>
#include <limits>

#include "kernels/candidate.h"
#include "sample/row_ops.h"

namespace lockstep::sample {

using kernels::Candidate;

// The law's order: logit descending as reals (-0 = +0), id ascending.
inline bool before(const Candidate& a, const Candidate& b) {
  return a.x > b.x || (a.x == b.x && a.id < b.id);
}

// An internal mark, never a logit: bias and penalties saturate at the greatest finite value.
inline constexpr float kRemoved = -std::numeric_limits<float>::infinity();

// The law's saturation: what leaves binary32's range becomes the nearest finite value.
inline float saturate(float x) {
  return x > FLT_MAX ? FLT_MAX : (x < -FLT_MAX ? -FLT_MAX : x);
}

// 2^40: the weight of the greatest candidate.
inline constexpr double kWeightOne = 0x1p40;
// Below this exp(·)·2^40 < 0.49 rounds to zero (exp is good to 1 ulp).
inline constexpr double kWeightZeroBelow = -28.45;

// roundeven of a double in [0, 2^52): the sum is rounded to an integer, ties to even.
inline uint64_t round_even(double v) {
  return static_cast<uint64_t>((v + 0x1p52) - 0x1p52);
}

}  // namespace lockstep::sample
