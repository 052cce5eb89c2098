// The law's elementary functions, binary64: log, exp2, sin, cos. They serve sampling noise,
// log-probabilities and rotary tables, where a libm would differ between hosts.
// Definition in words, special values and measured errors: docs/numerics/elementary.md.
#pragma once

#include "kernels/math/portable.h"

namespace lockstep::math {

// Adding 1.5·2^52 leaves the nearest integer (ties to even) in the low bits of the significand.
static constexpr double kRound64 = 0x1.8p52;
static constexpr double kNan64 = __builtin_nan("");
static constexpr double kInf64 = __builtin_inf();

static constexpr uint64_t kSqrtHalfBits = 0x3FE6A09E667F3BCDull;
static constexpr double kLn2High64 = 0x1.62e42fefa39efp-1;
static constexpr double kLn2Low64 = 0x1.abc9e3b39803fp-56;
// (2·atanh(s) - 2s)/s³ in z = s², 0 <= z <= 0.02944.
static constexpr double kLogC0 = 0x1.5555555555558p-1;
static constexpr double kLogC1 = 0x1.99999999952d7p-2;
static constexpr double kLogC2 = 0x1.2492492df79dfp-2;
static constexpr double kLogC3 = 0x1.c71c62dbbd736p-3;
static constexpr double kLogC4 = 0x1.7462b78a4d11fp-3;
static constexpr double kLogC5 = 0x1.39fe025e78d96p-3;
static constexpr double kLogC6 = 0x1.2b5cae0386852p-3;

static constexpr double kExp2Low = -1100.0;
static constexpr double kExp2High = 1100.0;
// 2^r on |r| <= 1/2, coefficient of r^0 fixed to 1; relative error 2^-57.3.
static constexpr double kExp2C1 = 0x1.62e42fefa39efp-1;
static constexpr double kExp2C2 = 0x1.ebfbdff82c5a6p-3;
static constexpr double kExp2C3 = 0x1.c6b08d704a12cp-5;
static constexpr double kExp2C4 = 0x1.3b2ab6fb9fda6p-7;
static constexpr double kExp2C5 = 0x1.5d87fe789e96fp-10;
static constexpr double kExp2C6 = 0x1.4309130f6cbdbp-13;
static constexpr double kExp2C7 = 0x1.ffcbfc6685f06p-17;
static constexpr double kExp2C8 = 0x1.62bfc6596be12p-20;
static constexpr double kExp2C9 = 0x1.b52522bc15f8fp-24;
static constexpr double kExp2C10 = 0x1.e61d43321746dp-28;
static constexpr double kExp2C11 = 0x1.e973179a994acp-32;

// Up to here the reduction keeps |r| <= pi/4 and the absolute error below 2^-50; beyond, NaN.
static constexpr double kTrigLimit = 0x1p30;
static constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
static constexpr double kHalfPi1 = 0x1.921fb54442d18p0;
static constexpr double kHalfPi2 = 0x1.1a62633145c07p-54;
static constexpr double kHalfPi3 = -0x1.f1976b7ed8fbcp-110;
// (sin(r)/r - 1)/r² and (cos(r) - 1 + r²/2)/r⁴ in z = r², 0 <= z <= 0.6169.
static constexpr double kSinC0 = -0x1.5555555555555p-3;
static constexpr double kSinC1 = 0x1.1111111110c84p-7;
static constexpr double kSinC2 = -0x1.a01a019ea1749p-13;
static constexpr double kSinC3 = 0x1.71de37b224f1ap-19;
static constexpr double kSinC4 = -0x1.ae602161d7c5dp-26;
static constexpr double kSinC5 = 0x1.5e11b11f57865p-33;
static constexpr double kCosC0 = 0x1.5555555555555p-5;
static constexpr double kCosC1 = -0x1.6c16c16c168ccp-10;
static constexpr double kCosC2 = 0x1.a01a019f38b6dp-16;
static constexpr double kCosC3 = -0x1.27e4fa037cc16p-22;
static constexpr double kCosC4 = 0x1.1eeb5865374f9p-29;
static constexpr double kCosC5 = -0x1.9073e56390a19p-37;

// log(x): +0 for 1, -inf for ±0, +inf for +inf, NaN for the rest of the negatives and for NaN.
LOCKSTEP_HD static inline double log(double x) {
  const bool subnormal = x < 0x1p-1022;
  const uint64_t ix = bits_of(subnormal ? x * 0x1p54 : x);
  // x = 2^k · m, m in [sqrt(1/2), sqrt(2))
  const int64_t k = static_cast<int64_t>(ix - kSqrtHalfBits) >> 52;
  const double m = f64_from_bits(ix - (static_cast<uint64_t>(k) << 52));
  const double kd = static_cast<double>(static_cast<int32_t>(k) - (subnormal ? 54 : 0));
  const double f = m - 1.0;  // exact
  const double s = f / (2.0 + f);
  const double z = s * s;
  double p = fma_rn(kLogC6, z, kLogC5);
  p = fma_rn(p, z, kLogC4);
  p = fma_rn(p, z, kLogC3);
  p = fma_rn(p, z, kLogC2);
  p = fma_rn(p, z, kLogC1);
  p = fma_rn(p, z, kLogC0);
  const double half_square = (0.5 * f) * f;
  const double c = fma_rn(s, half_square + z * p, kd * kLn2Low64);
  const double y = fma_rn(kd, kLn2High64, f - (half_square - c));
  const double edge = x == 0.0 ? -kInf64 : (x > 0.0 ? kInf64 : kNan64);
  return x > 0.0 && x < kInf64 ? y : edge;
}

// 2^x for every x; exact for integers where the result is representable.
LOCKSTEP_HD static inline double exp2(double x) {
  x = x < kExp2Low ? kExp2Low : x;
  x = x > kExp2High ? kExp2High : x;
  const double t = x + kRound64;
  const double r = x - (t - kRound64);  // exact
  double p = fma_rn(kExp2C11, r, kExp2C10);
  p = fma_rn(p, r, kExp2C9);
  p = fma_rn(p, r, kExp2C8);
  p = fma_rn(p, r, kExp2C7);
  p = fma_rn(p, r, kExp2C6);
  p = fma_rn(p, r, kExp2C5);
  p = fma_rn(p, r, kExp2C4);
  p = fma_rn(p, r, kExp2C3);
  p = fma_rn(p, r, kExp2C2);
  p = fma_rn(p, r, kExp2C1);
  p = fma_rn(p, r, 1.0);
  const int32_t n = static_cast<int32_t>(static_cast<uint32_t>(bits_of(t)));
  const uint64_t n1 = static_cast<uint64_t>(static_cast<int64_t>(n >> 1));
  const uint64_t n2 = static_cast<uint64_t>(static_cast<int64_t>(n)) - n1;
  return (p * f64_from_bits((n1 + 1023u) << 52)) * f64_from_bits((n2 + 1023u) << 52);
}

struct SinCos {
  double sin, cos;
};

// sin and cos of a share their reduction and both polynomials, so the pair costs what one does.
// NaN for |a| >= 2^30: a position that far is a mistake, and should look like one.
LOCKSTEP_HD static inline SinCos sincos(double a) {
  a = f64_from_bits(bits_of(a) & 0x7FFFFFFFFFFFFFFFull) < kTrigLimit ? a : kNan64;
  const double t = fma_rn(a, kTwoOverPi, kRound64);
  const double kd = t - kRound64;       // exact
  double r = fma_rn(kd, -kHalfPi1, a);  // exact: a multiple of 2^-53 below 1
  r = fma_rn(kd, -kHalfPi2, r);
  r = fma_rn(kd, -kHalfPi3, r);
  const double z = r * r;
  double ps = fma_rn(kSinC5, z, kSinC4);
  ps = fma_rn(ps, z, kSinC3);
  ps = fma_rn(ps, z, kSinC2);
  ps = fma_rn(ps, z, kSinC1);
  ps = fma_rn(ps, z, kSinC0);
  const double sin_r = fma_rn(r * z, ps, r);
  double pc = fma_rn(kCosC5, z, kCosC4);
  pc = fma_rn(pc, z, kCosC3);
  pc = fma_rn(pc, z, kCosC2);
  pc = fma_rn(pc, z, kCosC1);
  pc = fma_rn(pc, z, kCosC0);
  pc = fma_rn(pc, z, -0.5);
  const double cos_r = fma_rn(pc, z, 1.0);
  const uint64_t q = bits_of(t);  // the quadrant is its value mod 4
  const bool swap = (q & 1u) != 0;
  const uint64_t sin_sign = (q & 2u) << 62;
  const uint64_t cos_sign = ((q + 1u) & 2u) << 62;
  return {f64_from_bits(bits_of(swap ? cos_r : sin_r) ^ sin_sign),
          f64_from_bits(bits_of(swap ? sin_r : cos_r) ^ cos_sign)};
}

LOCKSTEP_HD static inline double sin(double a) {
  return sincos(a).sin;
}
LOCKSTEP_HD static inline double cos(double a) {
  return sincos(a).cos;
}

}  // namespace lockstep::math
