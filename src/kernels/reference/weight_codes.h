// Integer codes and factors of quantised weight blocks, as the product needs them (formats:
// docs/numerics/weight-types.md). Codes are int16, so that the compiler finds the multiply-add of
// int16 pairs; every product fits.
#pragma once

#include "kernels/math/half.h"
#include "kernels/reference/isa.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

inline float load_f16(const std::byte* p) {
  return math::f16_to_f32(load<uint16_t>(p));
}

// Form q32: 32 elements a block; value = d·code (+ m).
struct Q4_0 {
  static constexpr int64_t kBytes = 18;
  static constexpr bool kHasMin = false;
  static constexpr int kMaxCode = 8;
  static void decode(const std::byte* block, int16_t* code, float* d, float*) {
    *d = load_f16(block);
    const auto* q = reinterpret_cast<const uint8_t*>(block + 2);
    for (int i = 0; i < 16; ++i) {
      code[i] = static_cast<int16_t>((q[i] & 15) - 8);
      code[i + 16] = static_cast<int16_t>((q[i] >> 4) - 8);
    }
  }
};

struct Q4_1 {
  static constexpr int64_t kBytes = 20;
  static constexpr bool kHasMin = true;
  static constexpr int kMaxCode = 15;
  static void decode(const std::byte* block, int16_t* code, float* d, float* m) {
    *d = load_f16(block);
    *m = load_f16(block + 2);
    const auto* q = reinterpret_cast<const uint8_t*>(block + 4);
    for (int i = 0; i < 16; ++i) {
      code[i] = static_cast<int16_t>(q[i] & 15);
      code[i + 16] = static_cast<int16_t>(q[i] >> 4);
    }
  }
};

// Bit i of the 32 high bits belongs to element i.
inline void add_fifth_bits(uint32_t high, int16_t* code) {
  for (int i = 0; i < 32; ++i) code[i] = static_cast<int16_t>(code[i] + (high >> i & 1) * 16);
}

struct Q5_0 {
  static constexpr int64_t kBytes = 22;
  static constexpr bool kHasMin = false;
  static constexpr int kMaxCode = 16;
  static void decode(const std::byte* block, int16_t* code, float* d, float*) {
    *d = load_f16(block);
    const auto* q = reinterpret_cast<const uint8_t*>(block + 6);
    for (int i = 0; i < 16; ++i) {
      code[i] = static_cast<int16_t>((q[i] & 15) - 16);
      code[i + 16] = static_cast<int16_t>((q[i] >> 4) - 16);
    }
    add_fifth_bits(load<uint32_t>(block + 2), code);
  }
};

struct Q5_1 {
  static constexpr int64_t kBytes = 24;
  static constexpr bool kHasMin = true;
  static constexpr int kMaxCode = 31;
  static void decode(const std::byte* block, int16_t* code, float* d, float* m) {
    *d = load_f16(block);
    *m = load_f16(block + 2);
    const auto* q = reinterpret_cast<const uint8_t*>(block + 8);
    for (int i = 0; i < 16; ++i) {
      code[i] = static_cast<int16_t>(q[i] & 15);
      code[i + 16] = static_cast<int16_t>(q[i] >> 4);
    }
    add_fifth_bits(load<uint32_t>(block + 4), code);
  }
};

struct Q8_0 {
  static constexpr int64_t kBytes = 34;
  static constexpr bool kHasMin = false;
  static constexpr int kMaxCode = 128;
  static void decode(const std::byte* block, int16_t* code, float* d, float*) {
    *d = load_f16(block);
    const auto* q = reinterpret_cast<const int8_t*>(block + 2);
    for (int i = 0; i < 32; ++i) code[i] = q[i];
  }
};

// Indices of four bits into a table of codes.
inline constexpr int8_t kCodesIQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kCodesMXFP4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

inline void look_up(const int8_t* table, const std::byte* indices, int16_t* code) {
  const auto* q = reinterpret_cast<const uint8_t*>(indices);
  for (int i = 0; i < 16; ++i) {
    code[i] = table[q[i] & 15];
    code[i + 16] = table[q[i] >> 4];
  }
}

struct IQ4_NL {
  static constexpr int64_t kBytes = 18;
  static constexpr bool kHasMin = false;
  static constexpr int kMaxCode = 127;
  static void decode(const std::byte* block, int16_t* code, float* d, float*) {
    *d = load_f16(block);
    look_up(kCodesIQ4, block + 2, code);
  }
};

struct MXFP4 {
  static constexpr int64_t kBytes = 17;
  static constexpr bool kHasMin = false;
  static constexpr int kMaxCode = 12;
  static void decode(const std::byte* block, int16_t* code, float* d, float*) {
    // d = 2^(e - 128): subnormal for 0 and 1, infinite for 255.
    const uint32_t e = load<uint8_t>(block);
    *d = __builtin_bit_cast(float, e == 0 ? 0x00400000u : e << 23) * 0.5f;
    look_up(kCodesMXFP4, block + 1, code);
  }
};

// isum, and Σ q of a block, in int32 and exact as binary32.
template <typename Format>
constexpr bool q32_fits() {
  return 32 * Format::kMaxCode * 127 < 1 << 24;
}
static_assert(q32_fits<Q4_0>() && q32_fits<Q4_1>() && q32_fits<Q5_0>() && q32_fits<Q5_1>() &&
              q32_fits<Q8_0>() && q32_fits<IQ4_NL>() && q32_fits<MXFP4>());

// Form q256: 256 elements a superblock. Codes come already times their sub-block's scale, so that
// t is one integer dot (exact, so it is Σ scale_j·isum_j). Minimums per kMinElements.
struct Q2_K {
  static constexpr int64_t kBytes = 84;
  static constexpr bool kHasMin = true;
  static constexpr int kMinElements = 16;
  static constexpr int kMaxScaledCode = 15 * 3;
  static constexpr int kMaxMin = 15;
  static void decode(const std::byte* block, int16_t* scaled, int32_t* min, float* d, float* dmin);
};

struct Q3_K {
  static constexpr int64_t kBytes = 110;
  static constexpr bool kHasMin = false;
  static constexpr int kMaxScaledCode = 32 * 4;
  static constexpr int kMaxMin = 0;
  static void decode(const std::byte* block, int16_t* scaled, int32_t* min, float* d, float* dmin);
};

struct Q4_K {
  static constexpr int64_t kBytes = 144;
  static constexpr bool kHasMin = true;
  static constexpr int kMinElements = 32;
  static constexpr int kMaxScaledCode = 63 * 15;
  static constexpr int kMaxMin = 63;
  static void decode(const std::byte* block, int16_t* scaled, int32_t* min, float* d, float* dmin);
};

struct Q5_K {
  static constexpr int64_t kBytes = 176;
  static constexpr bool kHasMin = true;
  static constexpr int kMinElements = 32;
  static constexpr int kMaxScaledCode = 63 * 31;
  static constexpr int kMaxMin = 63;
  static void decode(const std::byte* block, int16_t* scaled, int32_t* min, float* d, float* dmin);
};

struct Q6_K {
  static constexpr int64_t kBytes = 210;
  static constexpr bool kHasMin = false;
  static constexpr int kMaxScaledCode = 128 * 32;
  static constexpr int kMaxMin = 0;
  static void decode(const std::byte* block, int16_t* scaled, int32_t* min, float* d, float* dmin);
};

struct IQ4_XS {
  static constexpr int64_t kBytes = 136;
  static constexpr bool kHasMin = false;
  static constexpr int kMaxScaledCode = 32 * 127;
  static constexpr int kMaxMin = 0;
  static void decode(const std::byte* block, int16_t* scaled, int32_t* min, float* d, float* dmin);
};

// t, u, and every sum of two products of int16 pairs, in int32.
template <typename Format>
constexpr bool q256_fits() {
  return Format::kMaxScaledCode < 1 << 15 && 256LL * Format::kMaxScaledCode * 127 < 1LL << 31 &&
         256LL * Format::kMaxMin * 127 < 1LL << 31;
}
static_assert(q256_fits<Q2_K>() && q256_fits<Q3_K>() && q256_fits<Q4_K>() && q256_fits<Q5_K>() &&
              q256_fits<Q6_K>() && q256_fits<IQ4_XS>());

inline void Q2_K::decode(const std::byte* block, int16_t* scaled, int32_t* min, float* d,
                         float* dmin) {
  *d = load_f16(block + 80);
  *dmin = load_f16(block + 82);
  const auto* sub = reinterpret_cast<const uint8_t*>(block);
  const auto* q = reinterpret_cast<const uint8_t*>(block + 16);
  for (int j = 0; j < 16; ++j) min[j] = sub[j] >> 4;
  // 32 bytes hold 128 elements: 32 in each pair of bits, a scale for every 16.
  for (int j = 0; j < 16; j += 2, scaled += 32) {
    const uint8_t* bytes = q + j / 8 * 32;
    const int shift = j / 2 % 4 * 2;
    for (int i = 0; i < 32; ++i) {
      scaled[i] = static_cast<int16_t>((bytes[i] >> shift & 3) * (sub[j + i / 16] & 15));
    }
  }
}

inline void Q3_K::decode(const std::byte* block, int16_t* scaled, int32_t*, float* d, float*) {
  *d = load_f16(block + 108);
  const auto* high = reinterpret_cast<const uint8_t*>(block);
  const auto* q = reinterpret_cast<const uint8_t*>(block + 32);
  const auto* s = reinterpret_cast<const uint8_t*>(block + 96);
  // Sixteen scales: low nibbles of 0-7 and high nibbles of 8-15 in bytes 0-7; the upper two bits of
  // scales j, j + 4, j + 8, j + 12 in byte 8 + j.
  int16_t scale[16];
  for (int j = 0; j < 8; ++j) {
    const int upper = s[8 + j % 4] >> (j / 4 * 2);
    scale[j] = static_cast<int16_t>(((s[j] & 15) | (upper & 3) << 4) - 32);
    scale[j + 8] = static_cast<int16_t>((s[j] >> 4 | (upper >> 4 & 3) << 4) - 32);
  }
  // As Q2_K; bit k of the 32 high bytes is the third bit of elements 32k ….
  for (int k = 0; k < 8; ++k, scaled += 32) {
    const uint8_t* bytes = q + k / 4 * 32;
    const int shift = k % 4 * 2;
    for (int i = 0; i < 32; ++i) {
      const int code = ((bytes[i] >> shift & 3) | (high[i] >> k & 1) << 2) - 4;
      scaled[i] = static_cast<int16_t>(code * scale[2 * k + i / 16]);
    }
  }
}

// Twelve bytes of eight 6-bit scales and eight 6-bit minimums: the first four of each whole in the
// low six bits of bytes 0-3 and 4-7, the last four with their low nibbles in bytes 8-11 (scale low,
// minimum high) and their upper two bits on top of bytes 0-3 and 4-7.
inline void unpack_scales_and_minimums(const std::byte* bytes, int32_t* scale, int32_t* min) {
  const auto* b = reinterpret_cast<const uint8_t*>(bytes);
  for (int j = 0; j < 4; ++j) {
    scale[j] = b[j] & 63;
    min[j] = b[j + 4] & 63;
    scale[j + 4] = (b[j + 8] & 15) | (b[j] >> 6) << 4;
    min[j + 4] = b[j + 8] >> 4 | (b[j + 4] >> 6) << 4;
  }
}

inline void Q4_K::decode(const std::byte* block, int16_t* scaled, int32_t* min, float* d,
                         float* dmin) {
  *d = load_f16(block);
  *dmin = load_f16(block + 2);
  int32_t scale[8];
  unpack_scales_and_minimums(block + 4, scale, min);
  const auto* q = reinterpret_cast<const uint8_t*>(block + 16);
  // 32 bytes hold two sub-blocks: low nibbles the first, high nibbles the second.
  for (int j = 0; j < 8; j += 2, q += 32, scaled += 64) {
    const auto low = static_cast<int16_t>(scale[j]), high = static_cast<int16_t>(scale[j + 1]);
    for (int i = 0; i < 32; ++i) {
      scaled[i] = static_cast<int16_t>((q[i] & 15) * low);
      scaled[i + 32] = static_cast<int16_t>((q[i] >> 4) * high);
    }
  }
}

inline void Q5_K::decode(const std::byte* block, int16_t* scaled, int32_t* min, float* d,
                         float* dmin) {
  *d = load_f16(block);
  *dmin = load_f16(block + 2);
  int32_t scale[8];
  unpack_scales_and_minimums(block + 4, scale, min);
  const auto* high = reinterpret_cast<const uint8_t*>(block + 16);
  const auto* q = reinterpret_cast<const uint8_t*>(block + 48);
  // As Q4_K; bit j of the 32 high bytes is the fifth bit of sub-block j.
  for (int j = 0; j < 8; j += 2, q += 32, scaled += 64) {
    const auto first = static_cast<int16_t>(scale[j]), second = static_cast<int16_t>(scale[j + 1]);
    for (int i = 0; i < 32; ++i) {
      scaled[i] = static_cast<int16_t>(((q[i] & 15) | (high[i] >> j & 1) << 4) * first);
      scaled[i + 32] = static_cast<int16_t>(((q[i] >> 4) | (high[i] >> (j + 1) & 1) << 4) * second);
    }
  }
}

inline void Q6_K::decode(const std::byte* block, int16_t* scaled, int32_t*, float* d, float*) {
  const auto* low = reinterpret_cast<const uint8_t*>(block);
  const auto* high = reinterpret_cast<const uint8_t*>(block + 128);
  const auto* scale = reinterpret_cast<const int8_t*>(block + 192);
  *d = load_f16(block + 208);
  // Each half of 128 elements: 64 bytes of nibbles, 32 bytes of four 2-bit tops, eight scales of 16
  // elements. Quarter k of the half takes the low (k < 2) or high nibbles of bytes 32·(k mod 2)….
  for (int half = 0; half < 2; ++half, low += 64, high += 32, scale += 8) {
    for (int k = 0; k < 4; ++k, scaled += 32) {
      const uint8_t* nibbles = low + 32 * (k & 1);
      const int nibble_shift = k < 2 ? 0 : 4;
      const int16_t scales[2] = {scale[2 * k], scale[2 * k + 1]};
      for (int part = 0; part < 2; ++part) {
        for (int i = 16 * part; i < 16 * part + 16; ++i) {
          const int code = ((nibbles[i] >> nibble_shift & 15) | (high[i] >> 2 * k & 3) << 4) - 32;
          scaled[i] = static_cast<int16_t>(code * scales[part]);
        }
      }
    }
  }
}

inline void IQ4_XS::decode(const std::byte* block, int16_t* scaled, int32_t*, float* d, float*) {
  *d = load_f16(block);
  const auto high = load<uint16_t>(block + 2);
  const auto* low = reinterpret_cast<const uint8_t*>(block + 4);
  for (int j = 0; j < 8; ++j, scaled += 32) {
    const int bits = (low[j / 2] >> (j % 2 * 4) & 15) | (high >> 2 * j & 3) << 4;
    const auto scale = static_cast<int16_t>(bits - 32);
    look_up(kCodesIQ4, block + 8 + 16 * j, scaled);
    for (int i = 0; i < 32; ++i) scaled[i] = static_cast<int16_t>(scaled[i] * scale);
  }
}

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
