// One block of binary32 to int8 with one factor: activations and the q8_0 cache share the rule.
#pragma once

#include "kernels/math/half.h"
#include "kernels/reference/isa.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

// max|x|; infinite or NaN when an element is: magnitudes order as their bits do, non-finite on top.
inline float max_magnitude(const float* x, int64_t n) {
  int32_t most = 0;
  for (int64_t i = 0; i < n; ++i) most = larger(most, load<int32_t>(x + i) & 0x7FFFFFFF);
  return __builtin_bit_cast(float, most);
}

// q = roundeven(x·(127 ÷ a)) with a = max|x|; returns a ÷ 127. Below 2^-100, or where a is not
// finite (a fault, the caller's to report): q = 0 and 0.
inline float quantize_int8(const float* x, int64_t n, float a, int8_t* q) {
  if (a < 0x1p-100f || is_non_finite(a)) {
    for (int64_t i = 0; i < n; ++i) q[i] = 0;
    return 0.0f;
  }
  const float r = 127.0f / a;
  for (int64_t i = 0; i < n; ++i) q[i] = math::round_even_i8(x[i] * r);
  return a / 127.0f;
}

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
