// Random blocks: the generator's own stream, the spread asked for, and the same bytes everywhere.
#include "synth/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/philox.h"
#include "base/sha256.h"
#include "gguf/types.h"
#include "quant/dequantize.h"

namespace lockstep::synth {
namespace {

using gguf::TensorType;

struct Case {
  TensorType type;
  const char* sha256;  // of 1024 x 64 weights of spread 1/32, seed 5, stream of "w"
};
constexpr Case kCases[] = {
    {TensorType::f32, "aaa000c7d979337660cdb0fcea26718170d3bc8b1d649db6d831d2195098bd95"},
    {TensorType::f16, "cd3ef3b15bd11b17382a2c41026bc66837cabf793d089971f7cf487362903651"},
    {TensorType::bf16, "23ef2ec5d53e386bc97636c4cf326d046a34652b8e831643d86ff9a7a7b24bf9"},
    {TensorType::q4_0, "7169a524dd8812f458342eef50aa9468844c5687992876bfb972b3f8e2e6a858"},
    {TensorType::q4_1, "f7c0deab7a7f86b241266f7a4aeee2df9535bbeaf825a71f7b10bd188ddb3f34"},
    {TensorType::q5_0, "02407b3d7f076bc40218ebe4e9fa1c179cd593359710581dfa8d680a8062e367"},
    {TensorType::q5_1, "8b3a1a026a5c59987ab43714390df3e659e01285a1a3a3dcb31dde0acd88f52b"},
    {TensorType::q8_0, "910b289a2d70c6f8f2636ba3a44794ad9e277263776707fa44a95662f839d543"},
    {TensorType::q4_k, "a90722d04264e6bca7a9f502baa38cf4f2caadd538aa9b31e611e9516f4586ec"},
    {TensorType::q5_k, "2fa3927067cfd534818b05759d38fd2ef7d39a6dd0bbc1752a402442fdd23f75"},
    {TensorType::q6_k, "a298be1fa942d9382a81f2f328aea1d01e880f38857f106819950d25e7d04982"},
    {TensorType::q2_k, "de56ab0688e53b444236836e6bf16748e41e22dd3774c3bd75b4fa1141df9269"},
    {TensorType::q3_k, "1c7ffff3123e48cfd52c8bafc5cc309bd1778b9c26b7fb21da21ab5704e108b8"},
    {TensorType::iq4_nl, "3b1ee59324b1408c4adcb256317342d02a473885d5ff58d10dc9edc77b8ea02b"},
    {TensorType::iq4_xs, "b1f0373bb976cc77f23a610502c88482478c0c6cce9d6f7fb42f3b599cb9a3df"},
    {TensorType::mxfp4, "0ac9fad3b4b42c3118e0e3fbe57864f199987f91203f81ffa1027e26467a4c28"},
};

constexpr int64_t kRow = 1024, kRows = 64;

std::vector<std::byte> weights(TensorType type, uint64_t seed, std::string_view name,
                               float spread) {
  const gguf::TypeInfo& info = gguf::type_info(type);
  std::vector<std::byte> out(
      static_cast<size_t>(kRow * kRows / info.block_elements * info.block_bytes));
  fill_weights(type, seed, stream_of(name), spread, out);
  return out;
}

TEST(SynthWeights, WordsArePhiloxs) {
  for (const uint64_t first : {uint64_t{0}, uint64_t{7}, (uint64_t{1} << 32) - 3}) {
    std::vector<uint32_t> words(4 * 21);
    random_words(0x123456789ABCDEFu, 0xFEDCBA9876543210u, first, words);
    for (uint32_t c = 0; c < words.size() / 4; ++c) {
      const uint64_t counter = first + c;
      const auto expected =
          philox4x32_10({static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                         0x76543210u, 0xFEDCBA98u},
                        {0x89ABCDEFu, 0x01234567u});
      for (size_t k = 0; k < 4; ++k) ASSERT_EQ(words[4 * c + k], expected[k]) << c;
    }
  }
}

TEST(SynthWeights, SameBytesEverywhere) {
  for (const Case& c : kCases) {
    EXPECT_EQ(to_hex(sha256(weights(c.type, 5, "w", 1.0f / 32))), c.sha256)
        << gguf::type_info(c.type).name;
  }
}

TEST(SynthWeights, SeedAndNameMatter) {
  for (const Case& c : kCases) {
    const auto base = weights(c.type, 1, "blk.0.attn_q.weight", 0.02f);
    EXPECT_NE(base, weights(c.type, 2, "blk.0.attn_q.weight", 0.02f));
    EXPECT_NE(base, weights(c.type, 1, "blk.1.attn_q.weight", 0.02f));
  }
}

// Mean 0, the spread asked for, nothing non-finite, no row and no column far from the others.
TEST(SynthWeights, WellScaled) {
  for (const Case& c : kCases) {
    for (const float spread : {0.25f, 1.0f / 64, 0.001f}) {
      const char* name = gguf::type_info(c.type).name.data();
      const auto bytes = weights(c.type, 3, "w", spread);
      const size_t row_bytes = bytes.size() / kRows;
      std::vector<float> row(kRow);
      std::vector<double> column_sum(kRow);
      double sum = 0, squares = 0;
      for (size_t r = 0; r < kRows; ++r) {
        ASSERT_TRUE(quant::row_is_finite(c.type, bytes.data() + r * row_bytes, kRow)) << name;
        quant::dequantize_row(c.type, bytes.data() + r * row_bytes, row.data(), kRow);
        double row_squares = 0;
        for (size_t i = 0; i < row.size(); ++i) {
          sum += row[i];
          row_squares += static_cast<double>(row[i]) * row[i];
          column_sum[i] += row[i];
        }
        EXPECT_NEAR(std::sqrt(row_squares / kRow) / spread, 1.0, 0.35) << name << " row " << r;
        squares += row_squares;
      }
      constexpr double kCount = static_cast<double>(kRow) * kRows;
      EXPECT_NEAR(std::sqrt(squares / kCount) / spread, 1.0, 0.06) << name << " spread " << spread;
      EXPECT_LT(std::fabs(sum / kCount) / spread, 0.03) << name << " spread " << spread;
      for (const double total : column_sum) {
        EXPECT_LT(std::fabs(total / std::sqrt(double{kRows})) / spread, 6.0) << name;
      }
    }
  }
}

TEST(SynthWeights, NoBlockHasAScaleOfZero) {
  for (const Case& c : kCases) {
    if (gguf::type_info(c.type).block_elements == 1) continue;
    const auto bytes = weights(c.type, 3, "w", 1e-9f);  // below what a binary16 scale can say
    std::vector<float> all(kRow * kRows);
    quant::dequantize_row(c.type, bytes.data(), all.data(), kRow * kRows);
    const auto block = static_cast<size_t>(gguf::type_info(c.type).block_elements);
    for (size_t i = 0; i < all.size(); i += block) {
      bool any = false;
      for (size_t k = 0; k < block; ++k) any |= all[i + k] != 0.0f;
      EXPECT_TRUE(any) << gguf::type_info(c.type).name << " block " << i / block;
    }
  }
}

TEST(SynthWeights, NormsAreNearOne) {
  std::vector<float> norm(1000);
  fill_norm(1, stream_of("output_norm.weight"), 1.0f, std::as_writable_bytes(std::span(norm)));
  double sum = 0;
  for (const float value : norm) {
    EXPECT_GE(value, 0.9f);
    EXPECT_LE(value, 1.1f);
    sum += value;
  }
  EXPECT_NEAR(sum / 1000, 1.0, 0.01);
}

}  // namespace
}  // namespace lockstep::synth
