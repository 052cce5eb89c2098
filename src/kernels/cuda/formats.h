// The packed forms of quantised matrices: what packing.h writes on the CPU and products.cuh reads
// on the device. Weight types that differ in their factors alone share a form.
//
// A matrix is cut into tiles of 16 rows of n_in elements; a tile is its blocks of 32 (form q32) or
// superblocks of 256 (q256) in ascending order, each with everything that belongs to it:
//
//   q32    codes of 16 × 32; d of the 16 rows; m of the 16 rows where the type has a minimum
//   q256   eight times the codes of 16 × 32; scales; minimums; d; dmin
//
// Codes lie in the order of the A fragment of mma.m16n8k32 (kFragment…): lane 4g + t of a warp has
// rows g and g + 8, elements 4t … 4t + 3 and 16 + 4t … 16 + 4t + 3. Its 16 codes are four registers
// of four: register r is row g + 8·(r mod 2), elements 16·(r ÷ 2) + 4t …. A kind of codes says how
// many bits they take and what the kernel makes of them:
//
//   bytes            int8
//   nibbles          0 … 15; register r in nibbles r mod 2 of word r ÷ 2 of the lane, so the upper
//                    are of rows g + 8; the kernel has 16 times the code of these
//   signed_nibbles   −8 … 7 in two's complement; the kernel has 16 times the code
//   five, signed_five   a fifth bit apart: bits 4r … 4r + 3 of the lane's 16; signed: 8 times
//   signed_six       two bits apart: bits 2r, 2r + 1 of byte i of the lane's word; 4 times
//   table            an index; register r in bits 16r … of the lane's 64
//
// Padding rows of the last tile have codes and factors 0.
#pragma once

#include <cstdint>

namespace lockstep::kernels::cuda {

enum class Format : uint8_t {
  q8_0,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  table32,  // IQ4_NL, MXFP4
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  iq4_xs
};

enum class Codes : uint8_t { bytes, nibbles, signed_nibbles, five, signed_five, signed_six, table };

inline constexpr int kTileRows = 16;

struct FormatInfo {
  Codes codes;
  bool superblocks;  // form q256
  int scales;        // of a superblock: 8 (a scale for 32 elements) or 16
  int mins;          // of a superblock: 0, 8 or 16; of a block of 32: 0 or 1
};

constexpr FormatInfo format_info(Format format) {
  switch (format) {
    case Format::q8_0:
      return {Codes::bytes, false, 0, 0};
    case Format::q4_0:
      return {Codes::signed_nibbles, false, 0, 0};
    case Format::q4_1:
      return {Codes::nibbles, false, 0, 1};
    case Format::q5_0:
      return {Codes::signed_five, false, 0, 0};
    case Format::q5_1:
      return {Codes::five, false, 0, 1};
    case Format::table32:
      return {Codes::table, false, 0, 0};
    case Format::q2_k:
      return {Codes::nibbles, true, 16, 16};
    case Format::q3_k:
      return {Codes::signed_nibbles, true, 16, 0};
    case Format::q4_k:
      return {Codes::nibbles, true, 8, 8};
    case Format::q5_k:
      return {Codes::five, true, 8, 8};
    case Format::q6_k:
      return {Codes::signed_six, true, 16, 0};
    default:
      return {Codes::table, true, 8, 0};
  }
}

// Of 16 × 32 codes, in bytes.
constexpr int code_bytes(Codes codes) {
  switch (codes) {
    case Codes::bytes:
      return 512;
    case Codes::five:
    case Codes::signed_five:
      return 256 + 64;
    case Codes::signed_six:
      return 256 + 128;
    default:
      return 256;
  }
}

// The kernel has 2^this times the code, in rows g and g + 8 of a tile: it takes nibbles where they
// lie.
struct CodeShift {
  int low, high;
};
constexpr CodeShift code_shift(Codes codes) {
  switch (codes) {
    case Codes::nibbles:
      return {0, 4};
    case Codes::signed_nibbles:
      return {4, 4};
    case Codes::signed_five:
      return {3, 3};
    case Codes::signed_six:
      return {2, 2};
    default:
      return {0, 0};
  }
}
// Whether its bytes are unsigned: else they are signed.
constexpr bool unsigned_codes(Codes codes) {
  return codes == Codes::nibbles;
}

// Where the parts of a block of a tile begin, in bytes; each begins at a multiple of 16.
//   scales   [8 g][2: rows g, g + 8][scales] int8
//   mins     [8 g][4 t][2: rows g, g + 8][mins ÷ 4] uint8: an A fragment of mma.m16n8k16
//   d, m     [8 g][2: rows g, g + 8] binary16, or the upper half of a binary32 (MXFP4)
struct BlockLayout {
  int scales, mins, d, m, bytes;
};
constexpr BlockLayout block_layout(Format format) {
  const FormatInfo info = format_info(format);
  BlockLayout at{};
  at.scales = code_bytes(info.codes) * (info.superblocks ? 8 : 1);
  at.mins = at.scales + (info.superblocks ? 16 * info.scales : 0);
  at.d = at.mins + (info.superblocks ? 16 * info.mins : 0);
  at.m = at.d + 32;
  at.bytes = at.m + (info.mins > 0 ? 32 : 0);
  return at;
}

// --- activations ---------------------------------------------------------------------------------

constexpr int64_t segments_of(int64_t n) {
  return (n + 255) / 256;
}

// Where element k of a row of int8 activations lies. Rows lie by eights, the columns of a B
// fragment, and in whole segments of 256 elements: [eight rows][segment][two blocks of 32][row][t].
// A warp reads two blocks of eight rows side by side; lane 4g + t has of row g the elements 4t …
// and 16 + 4t … of both.
inline constexpr int kActivationRows = 8;
inline constexpr int kSegmentBytes = kActivationRows * 256, kTwoBlocksBytes = kActivationRows * 64;
template <typename Int>
constexpr Int activation_place(Int row, Int k, Int segments) {
  const Int in_block = k % 32, t = in_block % 16 / 4, block = k % 256 / 32;
  return (row / 8 * segments + k / 256) * kSegmentBytes + block / 2 * kTwoBlocksBytes +
         row % 8 * 64 + t * 16 + block % 2 * 8 + in_block / 16 * 4 + k % 4;
}
// Bytes of so many rows.
constexpr int64_t activation_bytes(int64_t rows, int64_t segments) {
  return (rows + kActivationRows - 1) / kActivationRows * kActivationRows * segments * 256;
}

}  // namespace lockstep::kernels::cuda
