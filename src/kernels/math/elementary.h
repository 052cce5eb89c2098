// The law's elementary functions, binary32: exp, sigmoid, silu, gelu, tanh, softplus.
// Definition in words, special values and measured errors: docs/numerics/elementary.md.
//
// This file is the scalar definition. A vector version follows it operation by operation; it may
// replace a scaling by powers of two with anything that rounds p·2^n once (vscalef), since the bits
// can't differ.
//
// Selects are written so that a NaN passes through (`x < lo ? lo : x`, not fmax, which drops it): a
// NaN input gives a NaN, and the fault is seen downstream.
#pragma once

#include "kernels/math/portable.h"

namespace lockstep::math {

// Below -110 exp(x) and x·exp(x) both round to zero; above 89 exp(x) overflows. Clamping there
// keeps every exponent in range without a branch.
static constexpr float kExpLow = -110.0f;
static constexpr float kExpHigh = 89.0f;
// From here down exp(x) no longer shows in 1 + exp(x); low enough for that, and 2^n stays normal.
static constexpr float kLogisticLow = -64.0f;
// Adding 1.5·2^23 leaves the nearest integer (ties to even) in the low bits of the significand.
static constexpr float kRound32 = 0x1.8p23f;
static constexpr uint32_t kRound32Bits = 0x4B400000u;
static constexpr float kLog2E = 0x1.715476p0f;
static constexpr float kLn2High = 0x1.62e43p-1f;
static constexpr float kLn2Low = -0x1.05c61p-29f;
// exp(r) on |r| <= ln2/2, coefficients of r^0 and r^1 fixed to 1; relative error 2^-27.9.
static constexpr float kExpC2 = 0x1.fffff8p-2f;
static constexpr float kExpC3 = 0x1.55548cp-3f;
static constexpr float kExpC4 = 0x1.555b82p-5f;
static constexpr float kExpC5 = 0x1.123cf6p-7f;
static constexpr float kExpC6 = 0x1.686a3cp-10f;
// log1p(t)/t on [0, 1], coefficient of t^0 fixed to 1; error of log1p 2.8e-8.
static constexpr float kLog1pC1 = -0x1.ffff3p-2f;
static constexpr float kLog1pC2 = 0x1.5538a4p-2f;
static constexpr float kLog1pC3 = -0x1.fd431cp-3f;
static constexpr float kLog1pC4 = 0x1.890812p-3f;
static constexpr float kLog1pC5 = -0x1.1b5908p-3f;
static constexpr float kLog1pC6 = 0x1.486ea4p-4f;
static constexpr float kLog1pC7 = -0x1.f6959ap-6f;
static constexpr float kLog1pC8 = 0x1.69a9d8p-8f;
// 2·sqrt(2/pi) and 2·sqrt(2/pi)·0.044715.
static constexpr float kGeluC1 = 0x1.988454p0f;
static constexpr float kGeluC3 = 0x1.2444f2p-4f;

// exp(x) = p · 2^n with p in [0.70, 1.42].
struct ExpParts {
  float p;
  int32_t n;
};

// |x| <= 110, or NaN (then p is NaN and n means nothing: scale by a multiplication, since an
// addition to the exponent could turn the NaN into a number).
LOCKSTEP_HD static inline ExpParts exp_parts(float x) {
  const float t = fma_rn(x, kLog2E, kRound32);
  const float nf = t - kRound32;       // exact
  float r = fma_rn(nf, -kLn2High, x);  // exact: a multiple of 2^-25 below 2^-1
  r = fma_rn(nf, -kLn2Low, r);
  float p = fma_rn(kExpC6, r, kExpC5);
  p = fma_rn(p, r, kExpC4);
  p = fma_rn(p, r, kExpC3);
  p = fma_rn(p, r, kExpC2);
  p = fma_rn(p, r, 1.0f);
  p = fma_rn(p, r, 1.0f);
  return {p, static_cast<int32_t>(bits_of(t) - kRound32Bits)};
}

// 2^n for n in [-126, 127].
LOCKSTEP_HD static inline float power_of_two(int32_t n) {
  return f32_from_bits((static_cast<uint32_t>(n) + 127u) << 23);
}

LOCKSTEP_HD static inline float clamp_low(float x) {
  return x < kExpLow ? kExpLow : x;
}

// -|x|: the sign bit set.
LOCKSTEP_HD static inline float neg_abs(float x) {
  return f32_from_bits(bits_of(x) | 0x80000000u);
}

// exp(x) for every x: p·2^n rounded once, by two powers of two since one could overflow.
LOCKSTEP_HD static inline float exp(float x) {
  x = clamp_low(x);
  x = x > kExpHigh ? kExpHigh : x;
  const ExpParts e = exp_parts(x);
  const int32_t n1 = e.n >> 1;
  return (e.p * power_of_two(n1)) * power_of_two(e.n - n1);
}

// exp(x) for x <= 0 (or NaN): the bits of exp, some operations cheaper.
LOCKSTEP_HD static inline float exp_nonpos(float x) {
  const ExpParts e = exp_parts(clamp_low(x));
  return (e.p * power_of_two(e.n + 64)) * 0x1p-64f;
}

// numerator ÷ (1 + exp(-u)), where for u < 0 |numerator| <= 110. With a negative u both sides of
// the division are scaled by 2^64, so that exp can't overflow and a subnormal result is rounded
// once from a quotient that was normal.
LOCKSTEP_HD static inline float over_one_plus_exp(float numerator, float u) {
  float v = -u;
  v = v < kLogisticLow ? kLogisticLow : v;
  v = v > -kExpLow ? -kExpLow : v;
  const ExpParts e = exp_parts(v);
  const bool negative = u < 0.0f;
  const float one = negative ? 0x1p-64f : 1.0f;
  const float denominator = one + e.p * power_of_two(e.n - (negative ? 64 : 0));
  return (numerator / denominator) * one;
}

// 1 ÷ (1 + exp(-x))
LOCKSTEP_HD static inline float sigmoid(float x) {
  return over_one_plus_exp(1.0f, x);
}

// x·sigmoid(x)
LOCKSTEP_HD static inline float silu(float x) {
  return over_one_plus_exp(clamp_low(x), x);
}

// 0.5·x·(1 + tanh z) = x·sigmoid(2z), z = sqrt(2/pi)·(x + 0.044715·x³)
LOCKSTEP_HD static inline float gelu(float x) {
  const float u = x * fma_rn(x * x, kGeluC3, kGeluC1);
  return over_one_plus_exp(clamp_low(x), u);
}

// Absolute accuracy only: for |x| <= 2^-26 the result is ±0.
LOCKSTEP_HD static inline float tanh(float x) {
  const float e = exp_nonpos(neg_abs(x + x));
  const float t = (1.0f - e) / (1.0f + e);
  return f32_from_bits(bits_of(t) | (bits_of(x) & 0x80000000u));
}

// log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|))
LOCKSTEP_HD static inline float softplus(float x) {
  const float e = exp_nonpos(neg_abs(x));
  float p = fma_rn(kLog1pC8, e, kLog1pC7);
  p = fma_rn(p, e, kLog1pC6);
  p = fma_rn(p, e, kLog1pC5);
  p = fma_rn(p, e, kLog1pC4);
  p = fma_rn(p, e, kLog1pC3);
  p = fma_rn(p, e, kLog1pC2);
  p = fma_rn(p, e, kLog1pC1);
  p = fma_rn(p, e, 1.0f);
  return (x > 0.0f ? x : 0.0f) + p * e;
}

}  // namespace lockstep::math
