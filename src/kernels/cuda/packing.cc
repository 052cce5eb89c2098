#include "kernels/cuda/packing.h"

#include <bit>
#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "quant/blocks.h"

namespace lockstep::kernels::cuda {
namespace {

// A block of one row, taken apart: 32 codes, or 256 with their scales and minimums.
struct Parts {
  int8_t code[256];
  int8_t scale[16];
  uint8_t min[16];
  uint16_t d, m;
};

template <typename Block>
constexpr bool kTable =
    std::is_same_v<Block, quant::BlockIQ4_NL> || std::is_same_v<Block, quant::BlockIQ4_XS> ||
    std::is_same_v<Block, quant::BlockMXFP4>;

template <typename Block>
void take_apart(const std::byte* at, Parts& to) {
  Block block;
  std::memcpy(&block, at, sizeof block);
  constexpr int kElements = sizeof(Block) > 40 ? 256 : 32;
  for (int i = 0; i < kElements; ++i) {
    if constexpr (kTable<Block>) {
      const uint8_t pair = block.qs[i / 32 * 16 + i % 16];
      to.code[i] = static_cast<int8_t>(i % 32 < 16 ? pair & 15 : pair >> 4);
    } else {
      to.code[i] = static_cast<int8_t>(quant::code(block, i));
    }
  }
  if constexpr (requires { block.e; }) {
    to.d = static_cast<uint16_t>(std::bit_cast<uint32_t>(quant::scale_mxfp4(block.e)) >> 16);
  } else {
    to.d = block.d;
  }
  if constexpr (requires { block.m; }) to.m = block.m;
  if constexpr (requires { block.dmin; }) to.m = block.dmin;
  if constexpr (kElements == 256) {
    if constexpr (!requires { quant::sub_scale(block, 0); }) {  // Q4_K, Q5_K
      for (int j = 0; j < 8; ++j) {
        const quant::ScaleMin pair = quant::scale_min_k(block.scales, j);
        to.scale[j] = static_cast<int8_t>(pair.scale);
        to.min[j] = pair.min;
      }
    } else {
      for (int j = 0; j < (std::is_same_v<Block, quant::BlockIQ4_XS> ? 8 : 16); ++j) {
        to.scale[j] = static_cast<int8_t>(quant::sub_scale(block, j));
        if constexpr (requires { quant::sub_min(block, 0); }) {
          to.min[j] = static_cast<uint8_t>(quant::sub_min(block, j));
        }
      }
    }
  }
}

void (*taker(TensorType type))(const std::byte*, Parts&) {
  switch (type) {
    case TensorType::q4_0:
      return take_apart<quant::BlockQ4_0>;
    case TensorType::q4_1:
      return take_apart<quant::BlockQ4_1>;
    case TensorType::q5_0:
      return take_apart<quant::BlockQ5_0>;
    case TensorType::q5_1:
      return take_apart<quant::BlockQ5_1>;
    case TensorType::q8_0:
      return take_apart<quant::BlockQ8_0>;
    case TensorType::iq4_nl:
      return take_apart<quant::BlockIQ4_NL>;
    case TensorType::mxfp4:
      return take_apart<quant::BlockMXFP4>;
    case TensorType::q2_k:
      return take_apart<quant::BlockQ2_K>;
    case TensorType::q3_k:
      return take_apart<quant::BlockQ3_K>;
    case TensorType::q4_k:
      return take_apart<quant::BlockQ4_K>;
    case TensorType::q5_k:
      return take_apart<quant::BlockQ5_K>;
    case TensorType::q6_k:
      return take_apart<quant::BlockQ6_K>;
    case TensorType::iq4_xs:
      return take_apart<quant::BlockIQ4_XS>;
    default:
      throw std::logic_error("packing: a type without blocks");
  }
}

// 16 × 32 codes in fragment order; codes(row)[i] is element i of the row.
template <Codes kCodes, typename CodesOf>
void pack_codes(const CodesOf& codes_of, uint8_t* out) {
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4;
    uint64_t low = 0;
    uint32_t high = 0;
    for (int r = 0; r < 4; ++r) {
      const int8_t* code = codes_of(g + 8 * (r % 2)) + 16 * (r / 2) + 4 * t;
      for (int i = 0; i < 4; ++i) {
        const auto bits = static_cast<uint8_t>(code[i]);
        if constexpr (kCodes == Codes::bytes) {
          out[16 * lane + 4 * r + i] = bits;
        } else if constexpr (kCodes == Codes::table) {
          low |= uint64_t{bits} << (16 * r + 4 * i);
        } else {
          low |= uint64_t{bits & 15u} << (32 * (r / 2) + 8 * i + 4 * (r % 2));
          if constexpr (kCodes == Codes::signed_six) {
            high |= (bits >> 4 & 3u) << (8 * i + 2 * r);
          } else {
            high |= (bits >> 4 & 1u) << (4 * r + i);
          }
        }
      }
    }
    if constexpr (kCodes == Codes::bytes) continue;
    std::memcpy(out + 8 * lane, &low, 8);
    if constexpr (kCodes == Codes::signed_six) std::memcpy(out + 256 + 4 * lane, &high, 4);
    if constexpr (kCodes == Codes::five || kCodes == Codes::signed_five) {
      std::memcpy(out + 256 + 2 * lane, &high, 2);
    }
  }
}

// One block of a tile from the parts of its sixteen rows.
template <Format kFormat>
void pack_block(const Parts (&parts)[kTileRows], uint8_t* out) {
  constexpr FormatInfo kInfo = format_info(kFormat);
  constexpr BlockLayout kAt = block_layout(kFormat);
  for (int b = 0; b < (kInfo.superblocks ? 8 : 1); ++b) {
    pack_codes<kInfo.codes>([&](int row) { return parts[row].code + 32 * b; },
                            out + b * code_bytes(kInfo.codes));
  }
  for (int row = 0; row < kTileRows; ++row) {
    const int g = row % 8, half = row / 8;
    std::memcpy(out + kAt.d + 4 * g + 2 * half, &parts[row].d, 2);
    if (kInfo.mins > 0) std::memcpy(out + kAt.m + 4 * g + 2 * half, &parts[row].m, 2);
    if (!kInfo.superblocks) continue;
    std::memcpy(out + kAt.scales + (2 * g + half) * kInfo.scales, parts[row].scale,
                static_cast<size_t>(kInfo.scales));
    constexpr int kOwn = kInfo.superblocks ? kInfo.mins / 4 : 0;
    for (int t = 0; t < 4 && kOwn > 0; ++t) {
      std::memcpy(out + kAt.mins + ((4 * g + t) * 2 + half) * kOwn, parts[row].min + t * kOwn,
                  static_cast<size_t>(kOwn));
    }
  }
}

void (*packer(Format format))(const Parts (&)[kTileRows], uint8_t*) {
  switch (format) {
    case Format::q8_0:
      return pack_block<Format::q8_0>;
    case Format::q4_0:
      return pack_block<Format::q4_0>;
    case Format::q4_1:
      return pack_block<Format::q4_1>;
    case Format::q5_0:
      return pack_block<Format::q5_0>;
    case Format::q5_1:
      return pack_block<Format::q5_1>;
    case Format::table32:
      return pack_block<Format::table32>;
    case Format::q2_k:
      return pack_block<Format::q2_k>;
    case Format::q3_k:
      return pack_block<Format::q3_k>;
    case Format::q4_k:
      return pack_block<Format::q4_k>;
    case Format::q5_k:
      return pack_block<Format::q5_k>;
    case Format::q6_k:
      return pack_block<Format::q6_k>;
    default:
      return pack_block<Format::iq4_xs>;
  }
}

}  // namespace

Format format_of(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
      return Format::q4_0;
    case TensorType::q4_1:
      return Format::q4_1;
    case TensorType::q5_0:
      return Format::q5_0;
    case TensorType::q5_1:
      return Format::q5_1;
    case TensorType::q8_0:
      return Format::q8_0;
    case TensorType::iq4_nl:
    case TensorType::mxfp4:
      return Format::table32;
    case TensorType::q2_k:
      return Format::q2_k;
    case TensorType::q3_k:
      return Format::q3_k;
    case TensorType::q4_k:
      return Format::q4_k;
    case TensorType::q5_k:
      return Format::q5_k;
    case TensorType::q6_k:
      return Format::q6_k;
    case TensorType::iq4_xs:
      return Format::iq4_xs;
    default:
      throw std::logic_error("packing: a type without blocks");
  }
}

int64_t tile_bytes(Format format, int64_t n_in) {
  return n_in / (format_info(format).superblocks ? 256 : 32) * block_layout(format).bytes;
}

void pack_tiles(const Weight& weight, int64_t begin, int64_t tiles, std::byte* packed) {
  const Format format = format_of(weight.type);
  const gguf::TypeInfo& info = gguf::type_info(weight.type);
  const int64_t blocks = weight.n_in / info.block_elements;
  const auto take = taker(weight.type);
  const auto pack = packer(format);
  auto* out = reinterpret_cast<uint8_t*>(packed);
  for (int64_t tile = begin; tile < begin + tiles; ++tile) {
    const int64_t first = tile * kTileRows;
    for (int64_t b = 0; b < blocks; ++b, out += block_layout(format).bytes) {
      Parts parts[kTileRows];
      for (int64_t row = 0; row < kTileRows; ++row) {
        if (first + row < weight.n_out) {
          take(weight.data + (first + row) * weight.row_bytes + b * info.block_bytes, parts[row]);
        } else {
          parts[row] = {};
        }
      }
      pack(parts, out);
    }
  }
}

CodeTable code_table(TensorType type) {
  CodeTable table;
  const auto& codes = type == TensorType::mxfp4 ? quant::kCodesMXFP4 : quant::kCodesIQ4;
  std::memcpy(table.words, codes, sizeof table.words);
  return table;
}

}  // namespace lockstep::kernels::cuda
