// How the tile kernels keep a quantised matrix: tiles of 16 consecutive output columns, whose codes
// are interleaved so that one 64-byte load holds four consecutive elements of K of all sixteen.
// Packed once at load (pack.h); the codes and factors are the file's own, only moved.
//
// A tile is the segments of K in order; missing columns of the last tile are zeros.
//   "dword g" of a block: bytes [column][4], elements 4g … 4g+3 of the block.
//   "nibbles g": the same of two groups of elements, one in the low and one in the high nibbles.
//   f16 factors: [column], 32 bytes.
//
// Form 32, a segment of n <= 8 blocks:
//   n × d (MXFP4: n × e, a byte [column]), then n × m (Q4_1, Q5_1), padded to 64 bytes; then n
//   blocks of codes:
//   Q8_0        dwords 0 … 7 as code + 128                                      512 bytes
//   Q4_0, Q4_1, IQ4_NL, MXFP4
//               nibbles 0 … 3: dword g low, dword g + 4 high                    256
//   Q5_0, Q5_1  the same, then fifth bits: 8 × 64 bits, bit 4·column + i of
//               group g belongs to element 4g + i                               256 + 64
// Form 256, a superblock:
//   Q2_K  d, dmin; the file's bytes of scale and minimum [8][column][2]: of 16 elements each; two
//         bits of each half of 128: 8 × [column][4], quarter k of 32 elements in bits 2k, 2k + 1
//   Q3_K  d; scales, low nibbles [4][column][2]: of 16 elements each, byte pair i of pairs i (low)
//         and i + 4 (high); their upper two bits [2][column][2]: byte pair i of pairs i, i + 2,
//         i + 4, i + 6 from bit 0 up; 32 bytes of nothing; third bits 8 × [column][4], half h's
//         quarter k in bit 4h + k; low bits as those of Q2_K
//   Q4_K  d, dmin; scale and minimum low nibbles [8][column] (minimum on top); their upper two bits
//         [4][column]: of scale i, minimum i, scale i + 4, minimum i + 4 from bit 0 up; then for
//         each pair of sub-blocks (2j, 2j + 1) eight nibbles: dword g of 2j low, of 2j + 1 high
//   Q5_K  the same, then fifth bits [sub-block][group g] as above
//   Q6_K  d, 32 bytes of nothing; scales [8][column][2]: of 16 elements each; nibbles of each half
//         of 128: of (quarters 0, 2), then of (1, 3), eight each; then the upper two bits of each
//         half: 8 × [column][4], quarter k in bits 2k, 2k + 1
//   IQ4_XS
//         d; scales, upper two bits [2][column]: of scales i, i + 2, i + 4, i + 6 from bit 0 up;
//         low nibbles [4][column]: of scales i (low) and i + 4 (high); then of each sub-block
//         nibbles 0 … 3 as of Q4_0
#pragma once

#include <cstdint>

namespace lockstep::kernels::tiles {

inline constexpr int64_t kColumns = 16;
inline constexpr int64_t kBlocksPerSegment = 8;

// Form 32.
constexpr int64_t factor_bytes(int64_t blocks, int64_t bytes_of_block) {
  return (blocks * bytes_of_block + 63) / 64 * 64;
}
inline constexpr int64_t kScale = 32, kScaleAndMin = 64, kExponent = 16;  // bytes of a block
inline constexpr int64_t kCodes8 = 512, kCodes4 = 256, kFifthBits = 64;

// Form 256: offsets in a superblock.
struct Q2_K {
  static constexpr int64_t kD = 0, kDmin = 32, kScales = 64, kCodes = 320, kBytes = 1344;
};
struct Q3_K {
  static constexpr int64_t kD = 0, kScaleLow = 32, kScaleUpper = 160, kThird = 256, kLow = 768,
                           kBytes = 1792;
};
struct Q45_K {
  static constexpr int64_t kD = 0, kDmin = 32, kLow = 64, kUpper = 192, kNibbles = 256,
                           kFifth = 2304;
  static constexpr int64_t kBytes4 = 2304, kBytes5 = 2816;
};
struct Q6_K {
  static constexpr int64_t kD = 0, kScales = 64, kNibbles = 320, kUpper = 2368, kBytes = 3392;
};
struct IQ4_XS {
  static constexpr int64_t kD = 0, kUpper = 32, kLow = 64, kNibbles = 128, kBytes = 2176;
};

}  // namespace lockstep::kernels::tiles
