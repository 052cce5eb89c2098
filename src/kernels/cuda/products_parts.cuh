// What is in a packed tile, as a lane of a warp takes it: codes to int8, factors, scales.
#pragma once

#include "kernels/cuda/device_code.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kLawLanes = 8;

// What a warp takes at a time: a tile's segment.
template <Format kFormat>
struct Unit {
  static constexpr FormatInfo kInfo = format_info(kFormat);
  static constexpr BlockLayout kAt = block_layout(kFormat);
  static constexpr int kBytes = kAt.bytes * (kInfo.superblocks ? 1 : 8);
  static constexpr CodeShift kShift = code_shift(kInfo.codes);
  static constexpr bool kUnsigned = unsigned_codes(kInfo.codes);
  static_assert(kAt.bytes % 16 == 0);
};

// Four nibbles or so to four bytes: register r of a lane's codes, 2^code_shift times. at: the codes
// of 16 rows by 32 elements.
template <Codes kCodes>
__device__ inline void unpack_codes(const unsigned char* at, int lane, const uint32_t* table,
                                    uint32_t (&a)[4]) {
  if constexpr (kCodes == Codes::bytes) {
    const Words4 words = *reinterpret_cast<const Words4*>(at + 16 * lane);
    LOCKSTEP_UNROLL
    for (int r = 0; r < 4; ++r) a[r] = words.word[r];
    return;
  } else {
    const Words2 low = *reinterpret_cast<const Words2*>(at + 8 * lane);
    uint32_t high = 0;
    if constexpr (kCodes == Codes::signed_six) {
      high = *reinterpret_cast<const uint32_t*>(at + 256 + 4 * lane);
    }
    if constexpr (kCodes == Codes::five || kCodes == Codes::signed_five) {
      high = *reinterpret_cast<const uint16_t*>(at + 256 + 2 * lane);
    }
    LOCKSTEP_UNROLL
    for (int r = 0; r < 4; ++r) {
      const uint32_t word = low.word[r / 2];
      // Bits 4r … to bit 0 of each byte; the products below do not meet.
      const uint32_t fifth = (high >> (4 * r) & 15u) * 0x00204081u & 0x01010101u;
      if constexpr (kCodes == Codes::nibbles) {
        a[r] = word & (r % 2 ? 0xF0F0F0F0u : 0x0F0F0F0Fu);
      } else if constexpr (kCodes == Codes::signed_nibbles) {
        a[r] = (r % 2 ? word : word << 4) & 0xF0F0F0F0u;
      } else if constexpr (kCodes == Codes::five) {
        a[r] = ((r % 2 ? word >> 4 : word) & 0x0F0F0F0Fu) | fifth << 4;
      } else if constexpr (kCodes == Codes::signed_five) {
        a[r] = ((r % 2 ? word >> 1 : word << 3) & 0x78787878u) | fifth << 7;
      } else if constexpr (kCodes == Codes::signed_six) {
        a[r] = ((r % 2 ? word >> 2 : word << 2) & 0x3C3C3C3Cu) | (high >> (2 * r) & 0x03030303u)
                                                                     << 6;
      } else {
        const uint32_t index = (r % 2 ? word >> 16 : word) & 0xFFFFu;
        const uint32_t low_half = pick_bytes(table[0], table[1], index & 0x7777u);
        const uint32_t high_half = pick_bytes(table[2], table[3], index & 0x7777u);
        a[r] = pick_bytes(low_half, high_half, 0x3210u | (index & 0x8888u) >> 1);
      }
    }
  }
}

// Two factors of rows g and g + 8.
struct RowPair {
  float low, high;
};
__device__ inline RowPair row_pair(const unsigned char* at, int g, bool wide) {
  const uint32_t both = reinterpret_cast<const uint32_t*>(at)[g];
  if (wide) {
    return {math::f32_from_bits(both << 16), math::f32_from_bits(both & 0xFFFF0000u)};
  }
  return {half_to_float(both & 0xFFFFu), half_to_float(both >> 16)};
}

__device__ inline int32_t signed_byte(uint32_t word, int i) {
  return static_cast<int8_t>(word >> (8 * i));
}

// The A fragment of a superblock's minimums for mma_k16: rows g and g + 8, sums 4t … 4t + 3.
template <Format kFormat>
__device__ inline void fetch_minimums(const unsigned char* unit, int lane, uint32_t& low,
                                      uint32_t& high) {
  using Own = Unit<kFormat>;
  if constexpr (Own::kInfo.mins == 16) {
    const Words2 words = *reinterpret_cast<const Words2*>(unit + Own::kAt.mins + 8 * lane);
    low = words.word[0];
    high = words.word[1];
  } else {
    const uint32_t words = *reinterpret_cast<const uint32_t*>(unit + Own::kAt.mins + 4 * lane);
    low = pick_bytes(words, 0, 0x1100u);
    high = pick_bytes(words, 0, 0x3322u);
  }
}

}  // namespace
}  // namespace lockstep::kernels::cuda
