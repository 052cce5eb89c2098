// Conversions of the law: binary16 <-> binary32, bfloat16 -> binary32, binary32 -> int8.
// By bits alone, so that no machine's flush mode or conversion instruction enters. Equal to
// VCVTPH2PS and VCVTPS2PH with round-to-nearest-even, NaN included.
#pragma once

#include "kernels/math/elementary.h"

namespace lockstep::math {

// Exact. Infinities stay; a NaN becomes quiet and keeps its sign and payload.
LOCKSTEP_HD static inline float f16_to_f32(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16;
  const uint32_t exponent = (h >> 10) & 31u;
  const uint32_t fraction = h & 0x3FFu;
  const uint32_t normal = ((exponent + 112u) << 23) | (fraction << 13);
  const uint32_t small = bits_of(static_cast<float>(fraction) * 0x1p-24f);
  const uint32_t special = 0x7F800000u | (fraction != 0 ? 0x00400000u : 0u) | (fraction << 13);
  return f32_from_bits(sign | (exponent == 0 ? small : (exponent == 31 ? special : normal)));
}

// Nearest even, subnormals kept; |x| >= 65520 gives an infinity; a NaN becomes quiet and keeps its
// sign and the upper ten bits of its fraction.
LOCKSTEP_HD static inline uint16_t f32_to_f16(float x) {
  const uint32_t b = bits_of(x);
  const uint32_t sign = (b >> 16) & 0x8000u;
  const uint32_t a = b & 0x7FFFFFFFu;
  // Rounds the fraction to ten bits; a carry runs into the exponent, where it belongs.
  const uint32_t normal = (a - (112u << 23) + 0x0FFFu + ((a >> 13) & 1u)) >> 13;
  // Below 2^-14 the result is a count of 2^-24, the unit in the last place of 0.5.
  const uint32_t small = bits_of(f32_from_bits(a) + 0.5f) - 0x3F000000u;
  const uint32_t nan = 0x7E00u | ((a >> 13) & 0x3FFu);
  const uint32_t finite = a < 0x38800000u ? small : (a >= 0x477FF000u ? 0x7C00u : normal);
  return static_cast<uint16_t>(sign | (a > 0x7F800000u ? nan : finite));
}

// Exact; the bits moved up, NaN included.
LOCKSTEP_HD static inline float bf16_to_f32(uint16_t h) {
  return f32_from_bits(static_cast<uint32_t>(h) << 16);
}

// x rounded to the nearest integer, ties to even, for |x| <= 2^22; no meaning beyond or for NaN.
LOCKSTEP_HD static inline int32_t round_even_i32(float x) {
  return static_cast<int32_t>(bits_of(x + kRound32) - kRound32Bits);
}

// The same as int8, for -128.5 <= x < 127.5. It doesn't saturate: the law's quantisers never leave
// this range, since |x·(127 ÷ max|x|)| < 127.5.
LOCKSTEP_HD static inline int8_t round_even_i8(float x) {
  return static_cast<int8_t>(round_even_i32(x));
}

}  // namespace lockstep::math
