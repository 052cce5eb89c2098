// The quantiser is plain nearest rounding: near enough, the same every time, and finite.
#include "quant/quantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/philox.h"
#include "gguf/types.h"
#include "quant/dequantize.h"

namespace lockstep::quant {
namespace {

using gguf::TensorType;

// Roughly normal: the sum of four uniforms.
std::vector<float> random_row(int64_t n, uint32_t seed, float scale) {
  std::vector<float> row(static_cast<size_t>(n));
  for (uint32_t i = 0; i < row.size(); ++i) {
    const auto random = philox4x32_10({i, 0, 0, 0}, {seed, 9});
    float sum = 0;
    for (const uint32_t word : random) sum += static_cast<float>(word) * 0x1p-32f - 0.5f;
    row[i] = sum * scale;
  }
  return row;
}

std::vector<std::byte> quantized(TensorType type, const std::vector<float>& row) {
  const gguf::TypeInfo& info = gguf::type_info(type);
  std::vector<std::byte> blocks(row.size() / static_cast<size_t>(info.block_elements) *
                                static_cast<size_t>(info.block_bytes));
  quantize_row(type, row.data(), blocks.data(), static_cast<int64_t>(row.size()));
  return blocks;
}

std::vector<float> there_and_back(TensorType type, const std::vector<float>& row) {
  const std::vector<std::byte> blocks = quantized(type, row);
  EXPECT_TRUE(row_is_finite(type, blocks.data(), static_cast<int64_t>(row.size())));
  std::vector<float> back(row.size());
  dequantize_row(type, blocks.data(), back.data(), static_cast<int64_t>(row.size()));
  return back;
}

double relative_error(const std::vector<float>& row, const std::vector<float>& back) {
  double error = 0, power = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    error += std::pow(static_cast<double>(row[i]) - back[i], 2);
    power += std::pow(static_cast<double>(row[i]), 2);
  }
  return std::sqrt(error / power);
}

struct Case {
  TensorType type;
  double bound;  // relative root mean square error, about 1.3 times what plain nearest gives
};
constexpr Case kCases[] = {
    {TensorType::f32, 0.0},    {TensorType::f16, 3e-4},    {TensorType::bf16, 2.5e-3},
    {TensorType::q4_0, 0.12},  {TensorType::q4_1, 0.10},   {TensorType::q5_0, 0.06},
    {TensorType::q5_1, 0.05},  {TensorType::q8_0, 0.007},  {TensorType::q4_k, 0.10},
    {TensorType::q5_k, 0.05},  {TensorType::q6_k, 0.03},   {TensorType::q2_k, 0.42},
    {TensorType::q3_k, 0.20},  {TensorType::iq4_nl, 0.10}, {TensorType::iq4_xs, 0.10},
    {TensorType::mxfp4, 0.15},
};

TEST(Quantize, ErrorIsThatOfNearestRounding) {
  for (const Case& c : kCases) {
    for (const float scale : {1.0f, 0.02f, 100.0f}) {
      const std::vector<float> row = random_row(4096, 3, scale);
      const double error = relative_error(row, there_and_back(c.type, row));
      EXPECT_LE(error, c.bound) << gguf::type_info(c.type).name << " scale " << scale;
      EXPECT_GE(error, c.bound / 8) << gguf::type_info(c.type).name;
    }
  }
}

TEST(Quantize, ZerosStayZeros) {
  for (const Case& c : kCases) {
    const std::vector<float> back = there_and_back(c.type, std::vector<float>(512, 0.0f));
    for (const float value : back) ASSERT_EQ(value, 0.0f) << gguf::type_info(c.type).name;
  }
}

TEST(Quantize, ExtremesStayFiniteAndOrdered) {
  for (const Case& c : kCases) {
    if (c.type == TensorType::f16) continue;  // 1e30 is beyond a half, and a half is all it is
    for (const float magnitude : {1e30f, 1e-30f, 1e-42f}) {
      std::vector<float> row(256);
      for (size_t i = 0; i < row.size(); ++i) row[i] = i % 2 ? magnitude : -magnitude;
      const std::vector<float> back = there_and_back(c.type, row);
      for (size_t i = 0; i < row.size(); ++i) {
        ASSERT_TRUE(std::isfinite(back[i]));
        ASSERT_LE(std::fabs(back[i]), magnitude * 1.1f + 1e-6f) << gguf::type_info(c.type).name;
      }
    }
  }
}

TEST(Quantize, ConstantRows) {
  for (const Case& c : kCases) {
    for (const float value : {0.75f, -0.75f}) {
      const std::vector<float> back = there_and_back(c.type, std::vector<float>(256, value));
      for (const float got : back) ASSERT_NEAR(got, value, 0.03) << gguf::type_info(c.type).name;
    }
  }
}

TEST(Quantize, SameEveryTime) {
  for (const Case& c : kCases) {
    const std::vector<float> row = random_row(1024, 5, 1.0f);
    EXPECT_EQ(quantized(c.type, row), quantized(c.type, row));
  }
}

// A value that a block can hold exactly comes back exactly.
TEST(Quantize, CodesComeBack) {
  std::vector<float> row(256);
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = 0.125f * static_cast<float>(static_cast<int>(i % 16) - 8);
  EXPECT_EQ(there_and_back(TensorType::q4_0, row), row);
  EXPECT_EQ(there_and_back(TensorType::q4_1, row), row);
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = 0.125f * static_cast<float>(static_cast<int>(i % 32) - 16);
  EXPECT_EQ(there_and_back(TensorType::q5_0, row), row);
  EXPECT_EQ(there_and_back(TensorType::q5_1, row), row);
  for (size_t i = 0; i < row.size(); ++i)
    row[i] = 0.125f * static_cast<float>(i % 32 == 0 ? 127 : static_cast<int>(i % 32));
  EXPECT_EQ(there_and_back(TensorType::q8_0, row), row);
}

}  // namespace
}  // namespace lockstep::quant
