// The conversions: all 65,536 halves, every border between two of them, and each 4,099th binary32
// (all of them with LOCKSTEP_FULL=1), against what the formats mean rather than how the code goes
// about it.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

#include "variant.h"

namespace lockstep::math_test {
namespace {

constexpr uint64_t kAllFloats = uint64_t{1} << 32;

bool full() {
  const char* value = std::getenv("LOCKSTEP_FULL");
  return value != nullptr && value[0] == '1';
}

uint32_t bits(float x) {
  return std::bit_cast<uint32_t>(x);
}
float real(uint64_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b));
}

// The magnitude of a finite half, or of the infinity as if the format went on: 65536.
double magnitude(uint32_t h) {
  const int exponent = static_cast<int>(h >> 10), fraction = static_cast<int>(h & 0x3FF);
  return exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
}

// The nearest half by looking upwards from `*below`, which goes with rising |x|.
uint32_t nearest(double x, uint32_t* below) {
  while (*below < 0x7C00 && magnitude(*below + 1) <= x) ++*below;
  if (*below == 0x7C00) return 0x7C00;
  const double low = x - magnitude(*below), high = magnitude(*below + 1) - x;
  if (low != high) return low < high ? *below : *below + 1;
  return *below % 2 == 0 ? *below : *below + 1;
}

uint16_t expected_nan(uint32_t b) {
  return static_cast<uint16_t>(((b >> 16) & 0x8000) | 0x7E00 | ((b >> 13) & 0x3FF));
}

class Conversions : public testing::TestWithParam<const Variant*> {};

TEST_P(Conversions, EveryHalfToBinary32) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float y = GetParam()->f16_to_f32(static_cast<uint16_t>(h));
    const uint32_t sign = (h & 0x8000) << 16, a = h & 0x7FFF;
    if (a < 0x7C00) {
      ASSERT_EQ(bits(y), bits(static_cast<float>(magnitude(a))) | sign) << h;
    } else if (a == 0x7C00) {
      ASSERT_EQ(bits(y), 0x7F800000u | sign) << h;
    } else {
      ASSERT_EQ(bits(y), 0x7FC00000u | sign | ((a & 0x3FF) << 13)) << h;
    }
  }
}

TEST_P(Conversions, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const bool nan = (h & 0x7FFF) > 0x7C00;
    ASSERT_EQ(GetParam()->f32_to_f16(GetParam()->f16_to_f32(static_cast<uint16_t>(h))),
              nan ? h | 0x200 : h);
  }
}

TEST_P(Conversions, BordersBetweenHalvesRoundToEven) {
  for (uint32_t h = 0; h < 0x7C00; ++h) {
    const float border = static_cast<float>((magnitude(h) + magnitude(h + 1)) / 2);  // exact
    const uint32_t even = h % 2 == 0 ? h : h + 1;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float flip = sign != 0 ? -1.0f : 1.0f;
      ASSERT_EQ(GetParam()->f32_to_f16(flip * real(bits(border) - 1)), h | sign);
      ASSERT_EQ(GetParam()->f32_to_f16(flip * border), even | sign);
      ASSERT_EQ(GetParam()->f32_to_f16(flip * real(bits(border) + 1)), (h + 1) | sign);
    }
  }
}

TEST_P(Conversions, SampledBinary32ToTheNearestHalf) {
  const uint64_t step = full() ? 1 : 4099, part = kAllFloats / 16;
  std::vector<std::thread> team;
  std::vector<uint64_t> wrong(16);
  const unsigned width = std::max(1u, std::thread::hardware_concurrency());
  for (unsigned t = 0; t < width; ++t) {
    team.emplace_back([&, t] {
      for (uint64_t p = t; p < 16; p += width) {
        uint32_t below = 0;
        for (uint64_t b = (p * part + step - 1) / step * step; b < (p + 1) * part; b += step) {
          const float x = real(b);
          const uint32_t expected = std::isnan(x)
                                        ? expected_nan(static_cast<uint32_t>(b))
                                        : nearest(std::fabs(x), &below) | ((b >> 16) & 0x8000);
          wrong[p] += GetParam()->f32_to_f16(x) != expected;
        }
      }
    });
  }
  for (std::thread& t : team) t.join();
  for (const uint64_t w : wrong) EXPECT_EQ(w, 0u);
}

TEST_P(Conversions, EveryBfloat16ToBinary32) {
  for (uint32_t h = 0; h < 0x10000; ++h)
    ASSERT_EQ(bits(GetParam()->bf16_to_f32(static_cast<uint16_t>(h))), h << 16);
}

TEST_P(Conversions, RoundEvenToInt8) {
  for (int q = -127; q <= 127; ++q) {
    const float x = static_cast<float>(q);
    EXPECT_EQ(GetParam()->round_even_i8(x), q);
    EXPECT_EQ(GetParam()->round_even_i8(x + 0.499f), q);
    EXPECT_EQ(GetParam()->round_even_i8(x - 0.499f), q);
  }
  for (int q = -128; q < 127; ++q) {
    EXPECT_EQ(GetParam()->round_even_i8(static_cast<float>(q) + 0.5f), q % 2 == 0 ? q : q + 1);
  }
  EXPECT_EQ(GetParam()->round_even_i8(-0.0f), 0);
  EXPECT_EQ(GetParam()->round_even_i8(0x1p-149f), 0);
  EXPECT_EQ(GetParam()->round_even_i8(127.0f + 0x1p-17f), 127);
}

std::vector<const Variant*> variants() {
  const Runnable r = runnable();
  return {r.variants, r.variants + r.count};
}
INSTANTIATE_TEST_SUITE_P(Variants, Conversions, testing::ValuesIn(variants()),
                         [](const auto& p) { return std::string(p.param->name); });

}  // namespace
}  // namespace lockstep::math_test
