// The bytes of weight blocks, and where their scales hide. Source: ggml's format; the law's own
// words are docs/numerics/weight-types.md. Blocks in a file stand at any even address: copy one
// into a local before use.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace lockstep::quant {

// 32 elements. d and m are binary16. qs[k] holds element k in its low half and k + 16 in its high
// half; bit i of qh (little-endian) is element i's fifth bit.
struct BlockQ4_0 {
  uint16_t d;
  uint8_t qs[16];
};
struct BlockQ4_1 {
  uint16_t d, m;
  uint8_t qs[16];
};
struct BlockQ5_0 {
  uint16_t d;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ5_1 {
  uint16_t d, m;
  uint8_t qh[4];
  uint8_t qs[16];
};
struct BlockQ8_0 {
  uint16_t d;
  int8_t qs[32];
};
struct BlockIQ4_NL {
  uint16_t d;
  uint8_t qs[16];  // indices into kCodesIQ4
};
struct BlockMXFP4 {
  uint8_t e;       // an E8M0 exponent: scale_mxfp4
  uint8_t qs[16];  // indices into kCodesMXFP4
};

// 256 elements. d and dmin are binary16.
struct BlockQ2_K {
  uint8_t scales[16];  // a 4-bit scale low, a 4-bit minimum high
  uint8_t qs[64];
  uint16_t d, dmin;
};
struct BlockQ3_K {
  uint8_t hmask[32];  // bit i / 32 of byte i mod 32 is element i's third bit
  uint8_t qs[64];
  uint8_t scales[12];  // sixteen 6-bit scales: sub_scale
  uint16_t d;
};
struct BlockQ4_K {
  uint16_t d, dmin;
  uint8_t scales[12];  // eight 6-bit scales and eight 6-bit minimums: scale_min_k
  uint8_t qs[128];
};
struct BlockQ5_K {
  uint16_t d, dmin;
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;
};
struct BlockIQ4_XS {
  uint16_t d;
  uint16_t scales_h;    // upper two bits of eight 6-bit scales: sub_scale
  uint8_t scales_l[4];  // their low four
  uint8_t qs[128];      // as IQ4_NL, sixteen bytes a sub-block
};

static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22 &&
              sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34 && sizeof(BlockIQ4_NL) == 18 &&
              sizeof(BlockMXFP4) == 17);
static_assert(sizeof(BlockQ2_K) == 84 && sizeof(BlockQ3_K) == 110 && sizeof(BlockQ4_K) == 144 &&
              sizeof(BlockQ5_K) == 176 && sizeof(BlockQ6_K) == 210 && sizeof(BlockIQ4_XS) == 136);

// Codes that an index of four bits stands for: IQ4_NL and IQ4_XS; MXFP4 (twice the E2M1 values).
inline constexpr int8_t kCodesIQ4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr int8_t kCodesMXFP4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The same in two words each, which code for a device has as constants (it has no tables).
static constexpr uint64_t eight_codes(const int8_t* codes) {
  uint64_t word = 0;
  for (int i = 0; i < 8; ++i) word |= uint64_t{static_cast<uint8_t>(codes[i])} << (8 * i);
  return word;
}
inline constexpr uint64_t kLowIQ4 = eight_codes(kCodesIQ4), kHighIQ4 = eight_codes(kCodesIQ4 + 8);
inline constexpr uint64_t kLowMXFP4 = eight_codes(kCodesMXFP4),
                          kHighMXFP4 = eight_codes(kCodesMXFP4 + 8);
static constexpr int code_of(uint64_t low, uint64_t high, int index) {
  return static_cast<int8_t>((index < 8 ? low : high) >> (index % 8 * 8) & 255);
}

// d of a block of MXFP4: 2^(e - 128), half the E8M0 scale, because the codes are doubled. Subnormal
// for e = 0 and 1; infinite for e = 255, E8M0's NaN.
static constexpr float scale_mxfp4(uint8_t e) {
  return std::bit_cast<float>(e == 0 ? 0x00400000u : uint32_t{e} << 23) * 0.5f;
}

struct ScaleMin {
  uint8_t scale, min;
};

// Scale and minimum of sub-block j (0 to 7) of Q4_K and Q5_K. The first four lie in the low six
// bits of bytes 0-3 and 4-7; the others have their low four bits in bytes 8-11 and their upper two
// in the top of bytes 0-7.
static constexpr ScaleMin scale_min_k(const uint8_t* scales, int j) {
  if (j < 4) {
    return {static_cast<uint8_t>(scales[j] & 63), static_cast<uint8_t>(scales[j + 4] & 63)};
  }
  return {static_cast<uint8_t>((scales[j + 4] & 15) | (scales[j - 4] >> 6) << 4),
          static_cast<uint8_t>((scales[j + 4] >> 4) | (scales[j] >> 6) << 4)};
}

// The other way: packs eight scales and eight minimums, each below 64, into twelve bytes.
static inline std::array<uint8_t, 12> pack_scale_min_k(const ScaleMin (&pairs)[8]) {
  std::array<uint8_t, 12> bytes{};
  for (int j = 0; j < 4; ++j) {
    const ScaleMin low = pairs[j], high = pairs[j + 4];
    bytes[j] = static_cast<uint8_t>(low.scale | (high.scale >> 4) << 6);
    bytes[j + 4] = static_cast<uint8_t>(low.min | (high.min >> 4) << 6);
    bytes[j + 8] = static_cast<uint8_t>((high.scale & 15) | (high.min & 15) << 4);
  }
  return bytes;
}

// Integer scale and minimum of sub-block j of the other formats of 256 elements (Q2_K, Q3_K and
// Q6_K: sixteen of 16 elements, IQ4_XS: eight of 32).
static constexpr int sub_scale(const BlockQ2_K& b, int j) {
  return b.scales[j] & 15;
}
static constexpr int sub_min(const BlockQ2_K& b, int j) {
  return b.scales[j] >> 4;
}
static constexpr int sub_scale(const BlockQ3_K& b, int j) {
  const int low = j < 8 ? b.scales[j] & 15 : b.scales[j - 8] >> 4;
  return (low | (b.scales[8 + j % 4] >> (j / 4 * 2) & 3) << 4) - 32;
}
static constexpr int sub_scale(const BlockQ6_K& b, int j) {
  return b.scales[j];
}
static constexpr int sub_scale(const BlockIQ4_XS& b, int j) {
  const int low = b.scales_l[j / 2] >> (j % 2 * 4) & 15;
  return (low | (b.scales_h >> (2 * j) & 3) << 4) - 32;
}

// The other way, into a block whose scales are all zero bytes; scale is -32 … 31.
static inline void set_sub_scale(BlockQ3_K& b, int j, int scale) {
  const int bits = scale + 32;
  b.scales[j % 8] |= static_cast<uint8_t>((bits & 15) << (j / 8 * 4));
  b.scales[8 + j % 4] |= static_cast<uint8_t>((bits >> 4) << (j / 4 * 2));
}
static inline void set_sub_scale(BlockIQ4_XS& b, int j, int scale) {
  const int bits = scale + 32;
  b.scales_l[j / 2] |= static_cast<uint8_t>((bits & 15) << (j % 2 * 4));
  b.scales_h = static_cast<uint16_t>(b.scales_h | (bits >> 4) << (2 * j));
}

// Code of element i of a block, as the products of the law take it: the implied offset is already
// taken off where the format has one.
static constexpr int code(const BlockQ4_0& b, int i) {
  return (b.qs[i % 16] >> (i / 16 * 4) & 15) - 8;
}
static constexpr int code(const BlockQ4_1& b, int i) {
  return b.qs[i % 16] >> (i / 16 * 4) & 15;
}
static constexpr int code(const BlockQ5_0& b, int i) {
  return ((b.qs[i % 16] >> (i / 16 * 4) & 15) | (b.qh[i / 8] >> (i % 8) & 1) << 4) - 16;
}
static constexpr int code(const BlockQ5_1& b, int i) {
  return (b.qs[i % 16] >> (i / 16 * 4) & 15) | (b.qh[i / 8] >> (i % 8) & 1) << 4;
}
static constexpr int code(const BlockQ8_0& b, int i) {
  return b.qs[i];
}
static constexpr int code(const BlockIQ4_NL& b, int i) {
  return code_of(kLowIQ4, kHighIQ4, b.qs[i % 16] >> (i / 16 * 4) & 15);
}
static constexpr int code(const BlockMXFP4& b, int i) {
  return code_of(kLowMXFP4, kHighMXFP4, b.qs[i % 16] >> (i / 16 * 4) & 15);
}
static constexpr int code(const BlockQ2_K& b, int i) {
  return b.qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}
static constexpr int code(const BlockQ3_K& b, int i) {
  const int low = b.qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
  return (low | (b.hmask[i % 32] >> (i / 32) & 1) << 2) - 4;
}
static constexpr int code(const BlockQ4_K& b, int i) {
  return b.qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
}
static constexpr int code(const BlockQ5_K& b, int i) {
  return (b.qs[i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15) | (b.qh[i % 32] >> (i / 32) & 1)
                                                                     << 4;
}
static constexpr int code(const BlockQ6_K& b, int i) {
  const int low = b.ql[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
  const int high = b.qh[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
  return (low | high << 4) - 32;
}
static constexpr int code(const BlockIQ4_XS& b, int i) {
  return code_of(kLowIQ4, kHighIQ4, b.qs[i / 32 * 16 + i % 16] >> (i / 16 % 2 * 4) & 15);
}

// The integers of the law's products (weight-types.md, "In the product") never pass int32, in any
// order of summation: isum over a sub-block of n elements, t and u over a superblock.
static constexpr int64_t max_isum(int64_t n, int64_t max_code) {
  return n * max_code * 127;
}
static constexpr int64_t max_t(int64_t n, int64_t max_scale, int64_t max_code) {
  return 256 / n * max_scale * max_isum(n, max_code);
}
static_assert(max_isum(32, 8) == 32'512);                                             // Q4_0
static_assert(max_isum(32, 15) == 60'960);                                            // Q4_1
static_assert(max_isum(32, 16) == 65'024);                                            // Q5_0
static_assert(max_isum(32, 31) == 125'984);                                           // Q5_1
static_assert(max_isum(32, 128) == 520'192);                                          // Q8_0
static_assert(max_isum(32, 127) == 516'128);                                          // IQ4_NL
static_assert(max_isum(32, 12) == 48'768);                                            // MXFP4
static_assert(max_t(16, 15, 3) == 1'463'040 && max_t(16, 15, 1) == 487'680);          // Q2_K
static_assert(max_t(16, 32, 4) == 4'161'536);                                         // Q3_K
static_assert(max_t(32, 63, 15) == 30'723'840 && max_t(32, 63, 15) <= INT32_MAX);     // Q4_K
static_assert(max_t(32, 63, 31) == 63'495'936 && max_t(32, 63, 31) <= INT32_MAX);     // Q5_K
static_assert(max_t(32, 63, 1) == 2'048'256);                                         // their u
static_assert(max_t(16, 128, 32) == 133'169'152 && max_t(16, 128, 32) <= INT32_MAX);  // Q6_K
static_assert(max_t(32, 32, 127) == 132'128'768 && max_t(32, 32, 127) <= INT32_MAX);  // IQ4_XS

}  // namespace lockstep::quant
