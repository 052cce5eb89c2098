#include "kernels/cpu/tiles/pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/tiles/layout.h"

namespace lockstep::kernels::tiles {
namespace {

// Bytes of a file's block (docs/numerics/weight-types.md).
int64_t block_bytes(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
      return 18;
    case TensorType::q4_1:
      return 20;
    case TensorType::q5_0:
      return 22;
    case TensorType::q5_1:
      return 24;
    case TensorType::q8_0:
      return 34;
    case TensorType::iq4_nl:
      return 18;
    case TensorType::mxfp4:
      return 17;
    case TensorType::q2_k:
      return 84;
    case TensorType::q3_k:
      return 110;
    case TensorType::q4_k:
      return 144;
    case TensorType::q5_k:
      return 176;
    case TensorType::q6_k:
      return 210;
    case TensorType::iq4_xs:
      return 136;
    default:
      return 0;
  }
}
// Bytes of sixteen columns' superblock; 0 for a type of form 32.
int64_t superblock_bytes(TensorType type) {
  switch (type) {
    case TensorType::q2_k:
      return Q2_K::kBytes;
    case TensorType::q3_k:
      return Q3_K::kBytes;
    case TensorType::q4_k:
      return Q45_K::kBytes4;
    case TensorType::q5_k:
      return Q45_K::kBytes5;
    case TensorType::q6_k:
      return Q6_K::kBytes;
    case TensorType::iq4_xs:
      return IQ4_XS::kBytes;
    default:
      return 0;
  }
}
bool is_superblock(TensorType type) {
  return superblock_bytes(type) > 0;
}
bool has_min(TensorType type) {
  return type == TensorType::q4_1 || type == TensorType::q5_1;
}
bool has_fifth_bits(TensorType type) {
  return type == TensorType::q5_0 || type == TensorType::q5_1;
}
int64_t code_bytes(TensorType type) {
  if (type == TensorType::q8_0) return kCodes8;
  return kCodes4 + (has_fifth_bits(type) ? kFifthBits : 0);
}
int64_t factors_of(TensorType type, int64_t blocks) {
  return factor_bytes(blocks, type == TensorType::mxfp4 ? kExponent
                              : has_min(type)           ? kScaleAndMin
                                                        : kScale);
}
int64_t segment_bytes(TensorType type, int64_t blocks) {
  return factors_of(type, blocks) + blocks * code_bytes(type);
}

int64_t tile_bytes(const Weight& w) {
  if (is_superblock(w.type)) return w.n_in / 256 * superblock_bytes(w.type);
  const int64_t blocks = w.n_in / 32, rest = blocks % kBlocksPerSegment;
  return blocks / kBlocksPerSegment * segment_bytes(w.type, kBlocksPerSegment) +
         (rest > 0 ? segment_bytes(w.type, rest) : 0);
}

// `count` dwords of one column, 64 bytes apart.
void spread(const std::byte* from, int64_t count, std::byte* to, uint32_t flip = 0) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t dword;
    std::memcpy(&dword, from + 4 * i, 4);
    dword ^= flip;
    std::memcpy(to + 64 * i, &dword, 4);
  }
}

// Four bits a group into the column's place of eight 64-bit words.
void spread_bits(uint32_t bits, int64_t column, std::byte* to) {
  for (int g = 0; g < 8; ++g) {
    const auto two = static_cast<unsigned>(bits >> (4 * g) & 15u) << (column % 2 * 4);
    to[8 * g + column / 2] |= static_cast<std::byte>(two);
  }
}

// One column's block of form 32 into place b of a segment of `blocks`.
void pack_block(TensorType type, const std::byte* block, int64_t b, int64_t blocks, int64_t column,
                std::byte* segment) {
  std::byte* codes = segment + factors_of(type, blocks) + b * code_bytes(type);
  if (type == TensorType::mxfp4) {
    segment[16 * b + column] = *block;
    spread(block + 1, 4, codes + 4 * column);
    return;
  }
  std::memcpy(segment + 32 * b + 2 * column, block, 2);
  if (has_min(type)) std::memcpy(segment + 32 * (blocks + b) + 2 * column, block + 2, 2);
  const std::byte* in = block + (has_min(type) ? 4 : 2);
  if (type == TensorType::q8_0) {
    spread(in, 8, codes + 4 * column, 0x80808080u);
    return;
  }
  if (has_fifth_bits(type)) {
    uint32_t bits;
    std::memcpy(&bits, in, 4);
    spread_bits(bits, column, codes + kCodes4);
    in += 4;
  }
  spread(in, 4, codes + 4 * column);
}

// Bit `bit` of 32 bytes as one word, byte i to bit i.
uint32_t gather_bit(const std::byte* bytes, int bit) {
  uint32_t out = 0;
  for (int k = 0; k < 4; ++k) {
    uint64_t eight;
    std::memcpy(&eight, bytes + 8 * k, 8);
    // Each byte is 0 or 1; the product moves byte i's to bit 56 + i.
    eight = (eight >> bit & 0x0101010101010101u) * 0x0102040810204080u >> 56;
    out |= static_cast<uint32_t>(eight) << (8 * k);
  }
  return out;
}

void pack_q2_k(const std::byte* block, int64_t column, std::byte* out) {
  std::memcpy(out + Q2_K::kD + 2 * column, block + 80, 2);
  std::memcpy(out + Q2_K::kDmin + 2 * column, block + 82, 2);
  for (int j = 0; j < 8; ++j) {
    std::memcpy(out + Q2_K::kScales + 32 * j + 2 * column, block + 2 * j, 2);
  }
  spread(block + 16, 16, out + Q2_K::kCodes + 4 * column);
}

void pack_q3_k(const std::byte* block, int64_t column, std::byte* out) {
  std::memcpy(out + Q3_K::kD + 2 * column, block + 108, 2);
  // Twelve bytes: low nibbles of scales 0-7 (low) and 8-15 (high) in 0-7, upper bits of scales j,
  // j + 4, j + 8, j + 12 in 8 + j. Two neighbours are a pair.
  for (int i = 0; i < 4; ++i) {
    std::memcpy(out + Q3_K::kScaleLow + 32 * i + 2 * column, block + 96 + 2 * i, 2);
  }
  for (int i = 0; i < 2; ++i) {
    std::memcpy(out + Q3_K::kScaleUpper + 32 * i + 2 * column, block + 104 + 2 * i, 2);
  }
  spread(block, 8, out + Q3_K::kThird + 4 * column);
  spread(block + 32, 16, out + Q3_K::kLow + 4 * column);
}

void pack_iq4_xs(const std::byte* block, int64_t column, std::byte* out) {
  std::memcpy(out + IQ4_XS::kD + 2 * column, block, 2);
  // The file's six bytes: two bits of scales 0-3 and 4-7 in bytes 0 and 1, low nibbles of scales 2i
  // and 2i + 1 in 2 + i.
  uint8_t b[6];
  std::memcpy(b, block + 2, 6);
  const auto upper = [&b](int j) { return b[j / 4] >> (j % 4 * 2) & 3; };
  const auto low = [&b](int j) { return b[2 + j / 2] >> (j % 2 * 4) & 15; };
  for (int i = 0; i < 2; ++i) {
    out[IQ4_XS::kUpper + 16 * i + column] = static_cast<std::byte>(
        upper(i) | upper(i + 2) << 2 | upper(i + 4) << 4 | upper(i + 6) << 6);
  }
  for (int i = 0; i < 4; ++i) {
    out[IQ4_XS::kLow + 16 * i + column] = static_cast<std::byte>(low(i) | low(i + 4) << 4);
  }
  spread(block + 8, 32, out + IQ4_XS::kNibbles + 4 * column);
}

void pack_q45_k(bool fifth, const std::byte* block, int64_t column, std::byte* out) {
  std::memcpy(out + Q45_K::kD + 2 * column, block, 2);
  std::memcpy(out + Q45_K::kDmin + 2 * column, block + 2, 2);
  // The file's twelve bytes: scales 0-3 and minimums 0-3 whole in the low six bits of bytes 0-7;
  // the low nibbles of scales and minimums 4-7 in bytes 8-11, their upper two bits atop bytes 0-7.
  uint8_t b[12];
  std::memcpy(b, block + 4, 12);
  for (int i = 0; i < 4; ++i) {
    out[Q45_K::kLow + 16 * i + column] = static_cast<std::byte>((b[i] & 15) | (b[i + 4] & 15) << 4);
    out[Q45_K::kLow + 16 * (i + 4) + column] = static_cast<std::byte>(b[i + 8]);
    out[Q45_K::kUpper + 16 * i + column] = static_cast<std::byte>(
        (b[i] >> 4 & 3) | (b[i + 4] >> 4 & 3) << 2 | (b[i] >> 6) << 4 | (b[i + 4] >> 6) << 6);
  }
  const std::byte* high = block + 16;
  const std::byte* q = block + (fifth ? 48 : 16);
  spread(q, 32, out + Q45_K::kNibbles + 4 * column);
  if (!fifth) return;
  for (int j = 0; j < 8; ++j)
    spread_bits(gather_bit(high, j), column, out + Q45_K::kFifth + 64 * j);
}

void pack_q6_k(const std::byte* block, int64_t column, std::byte* out) {
  std::memcpy(out + Q6_K::kD + 2 * column, block + 208, 2);
  for (int j = 0; j < 8; ++j) {
    std::memcpy(out + Q6_K::kScales + 32 * j + 2 * column, block + 192 + 2 * j, 2);
  }
  spread(block, 32, out + Q6_K::kNibbles + 4 * column);
  spread(block + 128, 16, out + Q6_K::kUpper + 4 * column);
}

void pack_superblock(TensorType type, const std::byte* block, int64_t column, std::byte* out) {
  switch (type) {
    case TensorType::q2_k:
      return pack_q2_k(block, column, out);
    case TensorType::q3_k:
      return pack_q3_k(block, column, out);
    case TensorType::q6_k:
      return pack_q6_k(block, column, out);
    case TensorType::iq4_xs:
      return pack_iq4_xs(block, column, out);
    default:
      return pack_q45_k(type == TensorType::q5_k, block, column, out);
  }
}

void pack_tile(const Weight& w, int64_t tile, std::byte* out) {
  std::memset(out, 0, static_cast<size_t>(tile_bytes(w)));
  const int64_t first = tile * kColumns, columns = std::min(kColumns, w.n_out - first);
  const int64_t bytes = block_bytes(w.type);
  const std::byte* row = w.data + first * w.row_bytes;
  if (is_superblock(w.type)) {
    for (int64_t s = 0; s < w.n_in / 256; ++s, out += superblock_bytes(w.type)) {
      for (int64_t c = 0; c < columns; ++c) {
        pack_superblock(w.type, row + c * w.row_bytes + s * bytes, c, out);
      }
    }
    return;
  }
  for (int64_t b0 = 0; b0 < w.n_in / 32; b0 += kBlocksPerSegment) {
    const int64_t blocks = std::min(kBlocksPerSegment, w.n_in / 32 - b0);
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t b = 0; b < blocks; ++b) {
        pack_block(w.type, row + c * w.row_bytes + (b0 + b) * bytes, b, blocks, c, out);
      }
    }
    out += segment_bytes(w.type, blocks);
  }
}

void pack(const Weight& weight, Range range, std::byte* packed) {
  const int64_t bytes = tile_bytes(weight);
  for (int64_t tile = range.begin; tile < range.end; ++tile) {
    pack_tile(weight, tile, packed + tile * bytes);
  }
}

}  // namespace

int64_t packed_bytes(const Weight& weight) {
  if (block_bytes(weight.type) == 0) return 0;
  return (weight.n_out + kColumns - 1) / kColumns * tile_bytes(weight);
}

const Packing kPacking = {packed_bytes, pack};

}  // namespace lockstep::kernels::tiles
