// binary16 and bfloat16 against their definition, computed here in binary64 without looking at bits
// of the result.
#include "base/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/philox.h"

namespace lockstep {
namespace {

// The value of a finite half by the format's formula.
double half_value(uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

TEST(Half, EveryHalfWidensToItsValue) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const float wide = f16_to_f32(half);
    const bool special = (half & 0x7C00) == 0x7C00;
    ASSERT_EQ(std::signbit(wide), (half & 0x8000) != 0) << h;
    if (special && (half & 0x3FF) == 0) {
      ASSERT_TRUE(std::isinf(wide)) << h;
    } else if (special) {
      ASSERT_TRUE(std::isnan(wide)) << h;
      ASSERT_EQ(std::bit_cast<uint32_t>(wide) & 0x7FFFFF, 0x400000u | (half & 0x3FFu) << 13) << h;
    } else {
      ASSERT_EQ(static_cast<double>(wide), half_value(half)) << h;
    }
  }
}

TEST(Half, EveryHalfComesBack) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    const bool nan = (half & 0x7C00) == 0x7C00 && (half & 0x3FF) != 0;
    ASSERT_EQ(f32_to_f16(f16_to_f32(half)), nan ? half | 0x200 : half) << h;
  }
}

#ifdef __FLT16_MAX__
TEST(Half, AgreesWithTheCompiler) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto half = static_cast<uint16_t>(h);
    if ((half & 0x7C00) == 0x7C00 && (half & 0x3FF) != 0) continue;
    ASSERT_EQ(f16_to_f32(half), static_cast<float>(std::bit_cast<_Float16>(half))) << h;
  }
  for (uint32_t i = 0; i < 1'000'000; ++i) {
    const float value = std::bit_cast<float>(philox4x32_10({i, 0, 0, 0}, {1, 2})[0]);
    if (std::isnan(value)) continue;
    ASSERT_EQ(f32_to_f16(value), std::bit_cast<uint16_t>(static_cast<_Float16>(value))) << value;
  }
}
#endif

// Between two neighbouring halves a and b: below the middle gives a, above it b, the middle the one
// whose last bit is 0.
TEST(Half, EveryBorderRoundsToNearestEven) {
  for (uint32_t h = 0; h < 0x7C00; ++h) {
    const double a = half_value(static_cast<uint16_t>(h));
    // Past the greatest finite half lies 65536, where infinity takes over.
    const double b = h == 0x7BFF ? 65536.0 : half_value(static_cast<uint16_t>(h + 1));
    const auto middle = static_cast<float>((a + b) / 2);  // exact: 12 significant bits
    ASSERT_EQ(static_cast<double>(middle), (a + b) / 2);
    const auto even = static_cast<uint16_t>(h & 1 ? h + 1 : h);
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float s = sign ? -1.0f : 1.0f;
      ASSERT_EQ(f32_to_f16(s * middle), even | sign) << h;
      ASSERT_EQ(f32_to_f16(s * std::nextafterf(middle, 0.0f)), h | sign) << h;
      ASSERT_EQ(f32_to_f16(s * std::nextafterf(middle, 1e9f)), (h + 1) | sign) << h;
    }
  }
}

TEST(Half, Extremes) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(f32_to_f16(infinity), 0x7C00);
  EXPECT_EQ(f32_to_f16(-infinity), 0xFC00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7C00);
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f32_to_f16(-std::numeric_limits<float>::denorm_min()), 0x8000);
  EXPECT_EQ(f32_to_f16(std::bit_cast<float>(0xFFC02000u)), 0xFE01);
  EXPECT_EQ(f32_to_f16(std::bit_cast<float>(0x7F800001u)), 0x7E00);
}

TEST(Brain, WidensAndRounds) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const auto brain = static_cast<uint16_t>(h);
    const float wide = bf16_to_f32(brain);
    ASSERT_EQ(std::bit_cast<uint32_t>(wide), h << 16);
    ASSERT_EQ(f32_to_bf16(wide), std::isnan(wide) ? (h | 0x40) : h);
    if (!std::isfinite(wide)) continue;
    const uint32_t bits = h << 16;
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(bits + 0x7FFF)), h);
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(bits + 0x8000)), h + (h & 1));
    ASSERT_EQ(f32_to_bf16(std::bit_cast<float>(bits + 0x8001)), h + 1);
  }
}

}  // namespace
}  // namespace lockstep
