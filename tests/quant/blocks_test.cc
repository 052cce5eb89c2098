// Block layouts, packing of scales, and what counts as finite.
#include "quant/blocks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "gguf/types.h"
#include "quant/dequantize.h"

namespace lockstep::quant {
namespace {

using gguf::TensorType;

constexpr TensorType kSupported[] = {
    TensorType::f32,  TensorType::f16,    TensorType::bf16,   TensorType::q4_0,
    TensorType::q4_1, TensorType::q5_0,   TensorType::q5_1,   TensorType::q8_0,
    TensorType::q2_k, TensorType::q3_k,   TensorType::q4_k,   TensorType::q5_k,
    TensorType::q6_k, TensorType::iq4_nl, TensorType::iq4_xs, TensorType::mxfp4};

TEST(Blocks, ScalesAndMinimumsPackBothWays) {
  for (uint32_t round = 0; round < 1000; ++round) {
    ScaleMin pairs[8];
    for (uint32_t j = 0; j < 8; ++j) {
      const auto random = philox4x32_10({round, j, 0, 0}, {7, 7});
      pairs[j] = {static_cast<uint8_t>(random[0] & 63), static_cast<uint8_t>(random[1] & 63)};
    }
    const auto packed = pack_scale_min_k(pairs);
    for (int j = 0; j < 8; ++j) {
      EXPECT_EQ(scale_min_k(packed.data(), j).scale, pairs[j].scale);
      EXPECT_EQ(scale_min_k(packed.data(), j).min, pairs[j].min);
    }
  }
}

TEST(Blocks, SubScalesPackBothWays) {
  for (int scale = -32; scale <= 31; ++scale) {
    for (int j = 0; j < 16; ++j) {
      BlockQ3_K q3{};
      BlockIQ4_XS iq4{};
      for (int k = 0; k < 16; ++k) set_sub_scale(q3, k, k == j ? scale : -1 - k);
      for (int k = 0; k < 8; ++k) set_sub_scale(iq4, k, k == j ? scale : -1 - k);
      for (int k = 0; k < 16; ++k) EXPECT_EQ(sub_scale(q3, k), k == j ? scale : -1 - k);
      for (int k = 0; k < 8; ++k) EXPECT_EQ(sub_scale(iq4, k), k == j ? scale : -1 - k);
    }
  }
}

TEST(Blocks, ScaleOfMxfp4IsAPowerOfTwo) {
  for (int e = 0; e < 255; ++e) {
    EXPECT_EQ(scale_mxfp4(static_cast<uint8_t>(e)), std::ldexp(1.0f, e - 128)) << e;
  }
  EXPECT_TRUE(std::isinf(scale_mxfp4(255)));
}

TEST(Blocks, SizesAreTheFilesOwn) {
  EXPECT_EQ(gguf::type_info(TensorType::q2_k).block_bytes, static_cast<int64_t>(sizeof(BlockQ2_K)));
  EXPECT_EQ(gguf::type_info(TensorType::q3_k).block_bytes, static_cast<int64_t>(sizeof(BlockQ3_K)));
  EXPECT_EQ(gguf::type_info(TensorType::iq4_nl).block_bytes,
            static_cast<int64_t>(sizeof(BlockIQ4_NL)));
  EXPECT_EQ(gguf::type_info(TensorType::iq4_xs).block_bytes,
            static_cast<int64_t>(sizeof(BlockIQ4_XS)));
  EXPECT_EQ(gguf::type_info(TensorType::mxfp4).block_bytes,
            static_cast<int64_t>(sizeof(BlockMXFP4)));
  EXPECT_EQ(gguf::type_info(TensorType::q4_k).block_bytes, static_cast<int64_t>(sizeof(BlockQ4_K)));
  EXPECT_EQ(gguf::type_info(TensorType::q5_k).block_bytes, static_cast<int64_t>(sizeof(BlockQ5_K)));
  EXPECT_EQ(gguf::type_info(TensorType::q6_k).block_bytes, static_cast<int64_t>(sizeof(BlockQ6_K)));
  EXPECT_EQ(gguf::type_info(TensorType::q8_0).block_bytes, static_cast<int64_t>(sizeof(BlockQ8_0)));
}

TEST(Blocks, SupportedTypesAreTheListedOnes) {
  int supported = 0;
  for (uint32_t raw = 0; raw < 64; ++raw) {
    if (const gguf::TypeInfo* info = gguf::type_info(raw)) supported += is_supported(info->type);
  }
  EXPECT_EQ(supported, static_cast<int>(std::size(kSupported)));
  for (const TensorType type : kSupported) EXPECT_TRUE(is_supported(type));
}

// A non-finite factor in any block of a row is found, in each of its places.
TEST(Blocks, NonFiniteFactorsAreFound) {
  const auto places = [](TensorType type) -> std::vector<size_t> {
    switch (type) {
      case TensorType::q4_1:
      case TensorType::q5_1:
      case TensorType::q4_k:
      case TensorType::q5_k:
        return {0, 2};
      case TensorType::q2_k:
        return {80, 82};
      case TensorType::q3_k:
        return {108};
      case TensorType::q6_k:
        return {208};
      default:
        return {0};
    }
  };
  for (const TensorType type : kSupported) {
    const gguf::TypeInfo& info = gguf::type_info(type);
    constexpr int64_t kBlocks = 5;
    const std::vector<std::byte> zeros(static_cast<size_t>(info.block_bytes * kBlocks));
    EXPECT_TRUE(row_is_finite(type, zeros.data(), info.block_elements * kBlocks)) << info.name;
    for (const size_t place : places(type)) {
      for (size_t block = 0; block < kBlocks; ++block) {
        for (const uint32_t high : {0x7F80u, 0xFF80u, 0x7FC0u, 0xFFFFu}) {  // ±infinity and NaN
          std::vector<std::byte> row = zeros;
          const size_t at = block * static_cast<size_t>(info.block_bytes) + place;
          if (type == TensorType::f32) {
            const uint32_t bits = high << 16;
            std::memcpy(row.data() + at, &bits, 4);
          } else if (type == TensorType::mxfp4) {
            row[at] = std::byte{0xFF};  // its one special
          } else {
            // The same specials in binary16: the top of the exponent lies at 0x7C00.
            const auto bits = static_cast<uint16_t>(
                type == TensorType::bf16 ? high : (high & 0x8000u) | 0x7C00u | (high & 0x7Fu));
            std::memcpy(row.data() + at, &bits, 2);
          }
          EXPECT_FALSE(row_is_finite(type, row.data(), info.block_elements * kBlocks))
              << info.name << " block " << block << " place " << place;
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::quant
