// The bits themselves: every instruction set gives the same ones, and they are the ones that the
// law has always had. A changed checksum is a change of the law (docs/numerics.md: `ls2`), never an
// update of a constant.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reference.h"

namespace lockstep::math_test {
namespace {

uint64_t mix(uint64_t h, uint64_t word) {  // the finaliser of splitmix64
  h ^= word;
  h += 0x9E3779B97F4A7C15u;
  h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
  h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
  return h ^ (h >> 31);
}

// NaN bits differ between machines and are no part of the law.
uint64_t canonical(float y) {
  return std::isnan(y) ? 0x7FC00000u : std::bit_cast<uint32_t>(y);
}
uint64_t canonical(double y) {
  return std::isnan(y) ? 0x7FF8000000000000u : std::bit_cast<uint64_t>(y);
}

template <typename T>
uint64_t checksum(const std::vector<T>& results) {
  uint64_t h = 0;
  for (const T y : results) h = mix(h, canonical(y));
  return h;
}

uint64_t checksum(const Variant& variant, Fn32 fn) {
  std::vector<float> x;
  for (uint64_t b = 0; b < uint64_t{1} << 32; b += 40961) {
    const float v = std::bit_cast<float>(static_cast<uint32_t>(b));
    if (fn != Fn32::kExpNonpos || v <= 0) x.push_back(v);
  }
  for (int i = -14080; i <= 14080; ++i) {
    const float v = static_cast<float>(i) * (0x1.00009p-7f);
    if (fn != Fn32::kExpNonpos || v <= 0) x.push_back(v);
  }
  std::vector<float> y(x.size());
  variant.f32(fn, x.data(), y.data(), x.size());
  return checksum(y);
}

uint64_t checksum(const Variant& variant, Fn64 fn) {
  std::vector<double> x;
  for (uint64_t i = 0; i < 100'000; ++i) {
    const uint64_t w = mix(0, i);
    const double whole = static_cast<double>(static_cast<int64_t>(w) >> 11);  // |whole| <= 2^52
    if (fn == Fn64::kLog) {
      x.push_back(i % 2 ? std::bit_cast<double>(w)
                        : (static_cast<double>(w >> 32) + 0.5) * 0x1p-32);
    } else if (fn == Fn64::kExp2) {
      x.push_back(whole * (i % 2 ? 0x1p-41 : 0x1p-48));
    } else {
      x.push_back(whole * (i % 3 == 0 ? 0x1p-21 : i % 3 == 1 ? 0x1p-31 : 0x1p-50));
    }
  }
  std::vector<double> y(x.size());
  variant.f64(fn, x.data(), y.data(), x.size());
  return checksum(y);
}

struct Golden32 {
  Fn32 fn;
  uint64_t checksum;
};
constexpr Golden32 kGolden32[] = {
    {Fn32::kExp, 0x31D6753C00803361u},      {Fn32::kExpNonpos, 0x0E853F83D32B26EBu},
    {Fn32::kSigmoid, 0xB840FE61B88EF2C6u},  {Fn32::kSilu, 0xE28088906FE0D60Fu},
    {Fn32::kGelu, 0x90B49DE5353C85E1u},     {Fn32::kTanh, 0x4FE9DFEC813E021Cu},
    {Fn32::kSoftplus, 0xC64B7CE7B1CE3909u},
};
struct Golden64 {
  Fn64 fn;
  uint64_t checksum;
};
constexpr Golden64 kGolden64[] = {
    {Fn64::kLog, 0x282743843D6F04BDu},
    {Fn64::kExp2, 0xFDB63F66D29B8AF1u},
    {Fn64::kSin, 0xD1F8A705049363E5u},
    {Fn64::kCos, 0x1F852D6CA6920AF2u},
};

class Bits : public testing::TestWithParam<const Variant*> {};

TEST_P(Bits, AreThoseOfTheLaw) {
  for (const auto& [fn, golden] : kGolden32)
    EXPECT_EQ(checksum(*GetParam(), fn), golden) << name_of(fn);
  for (const auto& [fn, golden] : kGolden64)
    EXPECT_EQ(checksum(*GetParam(), fn), golden) << name_of(fn);
}

std::string hex(uint64_t value, int digits) {
  std::string text = "0x";
  for (int i = digits - 1; i >= 0; --i) text += "0123456789abcdef"[(value >> (4 * i)) & 15];
  return text;
}

// One function of the vector file: from the input's bits to the output's as text.
using Evaluate = std::function<std::string(const Variant&, uint64_t)>;

Evaluate evaluator(const std::string& name) {
  for (const Fn32 fn : kAllFn32) {
    if (name != name_of(fn)) continue;
    return [fn](const Variant& v, uint64_t b) {
      const float x = std::bit_cast<float>(static_cast<uint32_t>(b));
      float y = 0;
      v.f32(fn, &x, &y, 1);
      return std::isnan(y) ? "nan" : hex(canonical(y), 8);
    };
  }
  for (const Fn64 fn : kAllFn64) {
    if (name != name_of(fn)) continue;
    return [fn](const Variant& v, uint64_t b) {
      const double x = std::bit_cast<double>(b);
      double y = 0;
      v.f64(fn, &x, &y, 1);
      return std::isnan(y) ? "nan" : hex(canonical(y), 16);
    };
  }
  if (name == "f16_to_f32")
    return [](const Variant& v, uint64_t b) {
      return hex(std::bit_cast<uint32_t>(v.f16_to_f32(static_cast<uint16_t>(b))), 8);
    };
  if (name == "f32_to_f16")
    return [](const Variant& v, uint64_t b) {
      return hex(v.f32_to_f16(std::bit_cast<float>(static_cast<uint32_t>(b))), 4);
    };
  if (name == "bf16_to_f32")
    return [](const Variant& v, uint64_t b) {
      return hex(std::bit_cast<uint32_t>(v.bf16_to_f32(static_cast<uint16_t>(b))), 8);
    };
  if (name == "round_even_i8")
    return [](const Variant& v, uint64_t b) {
      const int8_t q = v.round_even_i8(std::bit_cast<float>(static_cast<uint32_t>(b)));
      return hex(static_cast<uint8_t>(q), 2);
    };
  return nullptr;
}

TEST_P(Bits, MatchTheCommittedVectors) {
  std::ifstream file(LOCKSTEP_SOURCE_DIR "/tests/law/vectors/elementary.json");
  const auto vectors = nlohmann::json::parse(file);
  EXPECT_EQ(vectors.at("law"), "ls1");
  int pairs = 0;
  for (const auto& [name, list] : vectors.at("functions").items()) {
    const Evaluate evaluate = evaluator(name);
    ASSERT_TRUE(evaluate) << name;
    for (const auto& pair : list) {
      const auto x = pair.at(0).get<std::string>();
      EXPECT_EQ(evaluate(*GetParam(), std::stoull(x, nullptr, 16)), pair.at(1)) << name << " " << x;
      ++pairs;
    }
  }
  EXPECT_GE(pairs, 300);
}

std::vector<const Variant*> variants() {
  const Runnable r = runnable();
  return {r.variants, r.variants + r.count};
}
INSTANTIATE_TEST_SUITE_P(Variants, Bits, testing::ValuesIn(variants()),
                         [](const auto& p) { return std::string(p.param->name); });

TEST(PerturbedBits, AreNoticed) {
  for (const auto& [fn, golden] : kGolden32)
    EXPECT_NE(checksum(kPerturbed, fn), golden) << name_of(fn);
  for (const auto& [fn, golden] : kGolden64)
    EXPECT_NE(checksum(kPerturbed, fn), golden) << name_of(fn);
}

}  // namespace
}  // namespace lockstep::math_test
