// Rotary frequencies and rows: near the textbook formulas in long double, and the special cases of
// docs/numerics/rotary.md.
#include "kernels/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"

namespace lockstep::kernels::test {
namespace {

using Scaling = RopeSpec::Scaling;
constexpr long double kPi = 3.14159265358979323846264338327950288L;

RopeSpec spec_of(int n_rot, float base, Scaling scaling = Scaling::none, float factor = 1.0f) {
  RopeSpec spec;
  spec.n_rot = n_rot;
  spec.base = base;
  spec.scaling = scaling;
  spec.linear_factor = factor;
  return spec;
}

long double plain_frequency(int i, int n_rot, long double base) {
  return std::pow(base, -2.0L * i / n_rot);
}

void expect_near(double got, long double want) {
  EXPECT_NEAR(got / static_cast<double>(want), 1.0, 4e-15);
}

TEST(RopeTable, PlainAndLinear) {
  for (const int n_rot : {2, 64, 96, 256}) {
    for (const float base : {10000.0f, 1e6f, 500000.0f}) {
      const auto plain = rope_frequencies(spec_of(n_rot, base));
      const auto linear = rope_frequencies(spec_of(n_rot, base, Scaling::linear, 8.0f));
      ASSERT_EQ(plain.f.size(), static_cast<size_t>(n_rot / 2));
      EXPECT_EQ(plain.f[0], 1.0);
      EXPECT_FALSE(plain.scaled);
      for (int i = 0; i < n_rot / 2; ++i) {
        expect_near(plain.f[static_cast<size_t>(i)], plain_frequency(i, n_rot, base));
        EXPECT_EQ(linear.f[static_cast<size_t>(i)], plain.f[static_cast<size_t>(i)] / 8.0);
      }
    }
  }
}

TEST(RopeTable, FactorsDivideBeforeTheStretch) {
  RopeSpec spec = spec_of(8, 10000.0f, Scaling::linear, 3.0f);
  const auto plain = rope_frequencies(spec_of(8, 10000.0f));
  spec.factors = {1.0f, 1.7f, 8.0f, 32.0f};
  const auto got = rope_frequencies(spec);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(got.f[i], (plain.f[i] / static_cast<double>(spec.factors[i])) / 3.0);
}

TEST(RopeTable, Llama3ComputesTheFactorsAConverterWrites) {
  RopeSpec spec = spec_of(128, 500000.0f, Scaling::llama3, 8.0f);
  spec.low_freq_factor = 1.0f;
  spec.high_freq_factor = 4.0f;
  spec.original_context = 8192;
  const auto plain = rope_frequencies(spec_of(128, 500000.0f));
  const auto got = rope_frequencies(spec);
  int kept = 0, stretched = 0, mixed = 0;
  RopeSpec tensor = spec;
  for (int i = 0; i < 64; ++i) {
    const long double f = plain_frequency(i, 128, 500000.0L), wave = 2 * kPi / f;
    long double g = 0;
    if (wave < 8192.0L / 4) {
      g = 1;
      ++kept;
    } else if (wave > 8192.0L) {
      g = 8;
      ++stretched;
    } else {
      const long double smooth = (8192.0L / wave - 1) / 3;
      g = 1 / ((1 - smooth) / 8 + smooth);
      ++mixed;
    }
    tensor.factors.push_back(static_cast<float>(g));
    EXPECT_EQ(got.f[static_cast<size_t>(i)],
              plain.f[static_cast<size_t>(i)] / static_cast<double>(static_cast<float>(g)));
  }
  EXPECT_GT(kept, 10);
  EXPECT_GT(stretched, 10);
  EXPECT_GT(mixed, 3);
  EXPECT_EQ(rope_frequencies(tensor).f, got.f);
}

TEST(RopeTable, Yarn) {
  RopeSpec spec = spec_of(64, 10000.0f, Scaling::yarn, 4.0f);
  spec.original_context = 4096;
  spec.attn_factor = 1.25f;
  const auto got = rope_frequencies(spec);
  const auto pair = [](long double beta) {
    return 64 * std::log(4096 / (beta * 2 * kPi)) / (2 * std::log(10000.0L));
  };
  const long double begin = std::floor(pair(32)), end = std::ceil(pair(1));
  ASSERT_GT(begin, 0);
  ASSERT_LT(end, 31);
  for (int i = 0; i < 32; ++i) {
    const long double f = plain_frequency(i, 64, 10000.0L);
    const long double mix = 1 - std::min(1.0L, std::max(0.0L, (i - begin) / (end - begin)));
    expect_near(got.f[static_cast<size_t>(i)], f / 4 * (1 - mix) + f * mix);
  }
  EXPECT_EQ(got.f[0], 1.0);  // short waves are kept
  EXPECT_TRUE(got.scaled);
  EXPECT_FLOAT_EQ(got.mscale, static_cast<float>(1.25L * (1 + 0.1L * std::log(4.0L))));

  float cos[32], sin[32];
  rope_row(got, 1000, cos, sin);
  for (int i = 0; i < 32; ++i) {
    const auto a = 1000 * static_cast<long double>(got.f[static_cast<size_t>(i)]);
    EXPECT_NEAR(cos[i], got.mscale * std::cos(a), 2e-7);
    EXPECT_NEAR(sin[i], got.mscale * std::sin(a), 2e-7);
  }

  spec.ext_factor = 0.0f;  // then only the stretch and the file's own magnitude
  const auto flat = rope_frequencies(spec);
  const auto plain = rope_frequencies(spec_of(64, 10000.0f));
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(flat.f[i], plain.f[i] / 4.0);
  EXPECT_EQ(flat.mscale, 1.25f);
}

TEST(RopeTable, ARowNeedsNoOtherAndStartsAtZero) {
  const auto frequencies = rope_frequencies(spec_of(64, 10000.0f));
  float cos[32], sin[32];
  rope_row(frequencies, 0, cos, sin);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(cos[i], 1.0f);
    EXPECT_EQ(sin[i], 0.0f);
  }
  for (const int64_t position : {1, 77, 4095, 131071}) {
    rope_row(frequencies, position, cos, sin);
    for (int i = 0; i < 32; ++i) {
      const auto a = static_cast<long double>(position) * plain_frequency(i, 64, 10000.0L);
      EXPECT_NEAR(cos[i], std::cos(a), 1e-7) << position;
      EXPECT_NEAR(sin[i], std::sin(a), 1e-7) << position;
    }
  }
}

TEST(RopeTable, RefusesWhatGivesNoAngles) {
  const auto refuses = [](RopeSpec spec, const char* word) {
    try {
      rope_frequencies(spec);
      ADD_FAILURE() << word;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_file);
      EXPECT_NE(std::strstr(error.what(), word), nullptr) << error.what();
    }
  };
  refuses(spec_of(0, 10000.0f), "even");
  refuses(spec_of(7, 10000.0f), "even");
  refuses(spec_of(8, 0.0f), "base");
  refuses(spec_of(8, -1.0f), "base");
  refuses(spec_of(8, INFINITY), "base");
  refuses(spec_of(8, 1e4f, Scaling::linear, 0.0f), "scaling factor");
  RopeSpec few = spec_of(8, 1e4f);
  few.factors = {1.0f, 1.0f, 1.0f};
  refuses(few, "factors tensor has 3");
  few.factors = {1.0f, 1.0f, NAN, 1.0f};
  refuses(few, "factors tensor");
  refuses(spec_of(8, 1e4f, Scaling::llama3, 8.0f), "original context");
  refuses(spec_of(8, 1e4f, Scaling::yarn, 8.0f), "original context");
}

}  // namespace
}  // namespace lockstep::kernels::test
