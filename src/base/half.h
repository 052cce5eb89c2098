// binary16 and bfloat16 to and from binary32, on the bits alone: no conversion instruction and no
// flush mode has a say. Everything is `static inline`: files compiled for different instruction
// sets include this, and the linker must never hand one file's copy to another.
#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

// Exact. A NaN becomes quiet and keeps its sign and payload (as VCVTPH2PS does).
static inline float f16_to_f32(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  uint32_t fraction = half & 0x3FFu;
  if (exponent == 31) {
    const uint32_t quiet = fraction != 0 ? 0x00400000u : 0u;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | fraction << 13);
  }
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  if (fraction == 0) return std::bit_cast<float>(sign);
  // A subnormal half is a normal binary32: move its leading one to the implied place.
  const int shift = std::countl_zero(fraction) - 21;
  fraction = (fraction << shift) & 0x3FFu;
  return std::bit_cast<float>(sign | static_cast<uint32_t>(113 - shift) << 23 | fraction << 13);
}

// Nearest, ties to even, subnormals kept; 65520 and above give infinity. A NaN becomes quiet and
// keeps its sign and the upper ten bits of its fraction.
static inline uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 65520
  // The significand, and how many of its low bits fall away: 13, and one more for each power of two
  // below 2^-14. From 26 on even the leading one is below half of the least subnormal.
  const uint32_t exponent = magnitude >> 23;
  const uint32_t dropped = exponent >= 113 ? 13 : 126 - exponent;
  if (dropped > 25) return sign;
  const uint32_t significand = exponent == 0 ? 0 : ((magnitude & 0x7FFFFFu) | 0x800000u);
  const uint32_t kept = significand >> dropped;
  const uint32_t rest = significand & ((1u << dropped) - 1);
  const uint32_t halfway = 1u << (dropped - 1);
  const uint32_t up = rest > halfway || (rest == halfway && (kept & 1u)) ? 1 : 0;
  // `kept` carries the leading one, which stands for one step of the exponent; a carry out of the
  // fraction runs into the exponent, where it belongs.
  const uint32_t base = exponent >= 113 ? (exponent - 113) << 10 : 0;
  return static_cast<uint16_t>(sign | (base + kept + up));
}

// Exact: the bits moved up, NaN payload and all.
static inline float bf16_to_f32(uint16_t brain) {
  return std::bit_cast<float>(static_cast<uint32_t>(brain) << 16);
}

// Nearest, ties to even. A NaN becomes quiet and keeps its sign and the upper bits of its fraction.
static inline uint16_t f32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

}  // namespace lockstep
