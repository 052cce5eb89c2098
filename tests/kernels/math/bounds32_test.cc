// Every bound of docs/numerics/elementary.md for the binary32 functions: each 4,099th binary32, or
// all of them with LOCKSTEP_FULL=1. The worst error found is printed.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "reference.h"

namespace lockstep::math_test {
namespace {

constexpr uint64_t kAllFloats = uint64_t{1} << 32;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr int kBlock = 4096;

bool full() {
  const char* value = std::getenv("LOCKSTEP_FULL");
  return value != nullptr && value[0] == '1';
}

struct Worst {
  double error = 0;  // in units of error_unit
  float at = 0;
  uint64_t asked_mpfr = 0;
  uint64_t out_of_range = 0;  // results outside what the function's shape allows
  void take(double e, float x) {
    if (!(e <= error)) {  // a NaN is taken
      error = e;
      at = x;
    }
  }
};

double measure(Fn32 fn, float x, float y, uint64_t* asked_mpfr) {
  double exact = reference(fn, x);
  if (std::isinf(y) && exact < 0x1p128) return (0x1p128 - exact) / ulp32(exact);
  if (exact >= 0x1p128) return std::isinf(y) ? 0 : kInf;
  double error = std::fabs(y - exact) / error_unit(fn, x, exact);
  if (std::fabs(error - bound(fn)) < 0.01 * bound(fn)) {
    ++*asked_mpfr;
    error = mpfr_error(fn, x, y, &exact);
    error /= error_unit(fn, x, exact);
  }
  return error;
}

// What attention and the gates rely on besides closeness.
bool in_range(Fn32 fn, float x, float y) {
  switch (fn) {
    case Fn32::kExp:
      return y >= 0 && (x <= 0 ? y <= 1 : y >= 1);
    case Fn32::kExpNonpos:
      return y >= 0 && y <= 1;
    case Fn32::kSigmoid:
      return y >= 0 && y <= 1;
    case Fn32::kSilu:
      return y >= -0.2785f && std::signbit(y) == std::signbit(x);
    case Fn32::kGelu:
      return y >= -0.1701f && std::signbit(y) == std::signbit(x);
    case Fn32::kTanh:
      return std::fabs(y) <= 1 && std::signbit(y) == std::signbit(x);
    case Fn32::kSoftplus:
      return y >= 0 && y >= x;
  }
  return false;
}

void sweep_blocks(const Variant& variant, Fn32 fn, uint64_t step, unsigned thread, unsigned threads,
                  Worst* worst) {
  std::vector<float> x(kBlock), y(kBlock);
  const uint64_t stride = step * kBlock;
  for (uint64_t start = thread * stride; start < kAllFloats; start += threads * stride) {
    int n = 0;
    for (uint64_t b = start; b < std::min(start + stride, kAllFloats); b += step) {
      const float v = std::bit_cast<float>(static_cast<uint32_t>(b));
      if (std::isfinite(v) && (fn != Fn32::kExpNonpos || v <= 0)) x[n++] = v;
    }
    variant.f32(fn, x.data(), y.data(), n);
    for (int i = 0; i < n; ++i) {
      worst->take(measure(fn, x[i], y[i], &worst->asked_mpfr), x[i]);
      worst->out_of_range += !in_range(fn, x[i], y[i]);
    }
  }
}

Worst sweep(const Variant& variant, Fn32 fn, uint64_t step) {
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Worst> parts(threads);
  std::vector<std::thread> team;
  for (unsigned t = 0; t < threads; ++t)
    team.emplace_back(sweep_blocks, std::cref(variant), fn, step, t, threads, &parts[t]);
  for (std::thread& t : team) t.join();
  Worst all;
  for (const Worst& p : parts) {
    all.take(p.error, p.at);
    all.asked_mpfr += p.asked_mpfr;
    all.out_of_range += p.out_of_range;
  }
  return all;
}

class Bounds32 : public testing::TestWithParam<Fn32> {};

TEST_P(Bounds32, HoldsOverTheSweep) {
  const Fn32 fn = GetParam();
  // exp_nonpos is compared with exp over every input below; once is enough for the slow libm.
  const uint64_t step = full() && fn != Fn32::kExpNonpos ? 1 : 4099;
  const Worst w = sweep(fastest(), fn, step);
  std::printf("%s: worst error %.4f of %g at %a, MPFR asked %llu times (%s, step %llu)\n",
              name_of(fn), w.error, bound(fn), w.at, static_cast<unsigned long long>(w.asked_mpfr),
              fastest().name, static_cast<unsigned long long>(step));
  EXPECT_LE(w.error, bound(fn)) << "at " << w.at;
  EXPECT_EQ(w.out_of_range, 0u);
}

// The check must be able to fail: with one coefficient wrong it does, for every function.
TEST_P(Bounds32, IsBrokenByOneWrongCoefficient) {
  const Fn32 fn = GetParam();
  const Worst w = sweep(kPerturbed, fn, 40961);
  std::printf("%s perturbed: worst error %.4f of %g\n", name_of(fn), w.error, bound(fn));
  EXPECT_GT(w.error, bound(fn));
}

// libm is trusted with the sweep because it agrees with MPFR far more closely than the bounds ask.
TEST_P(Bounds32, ReferenceAgreesWithMpfr) {
  const Fn32 fn = GetParam();
  std::mt19937 generator(7);
  std::uniform_real_distribution<float> uniform(-112, 88);
  for (int i = 0; i < 2000; ++i) {
    const float x = i % 2 ? uniform(generator) : uniform(generator) / 64;
    const double r = reference(fn, x);
    double exact;
    ASSERT_LE(mpfr_error(fn, x, r, &exact), 1e-4 * error_unit(fn, x, r)) << x;
  }
}

TEST_P(Bounds32, GrowsWithItsArgument) {
  const Fn32 fn = GetParam();
  if (fn == Fn32::kSilu || fn == Fn32::kGelu) GTEST_SKIP() << "not monotonic";
  std::vector<float> x, y;
  for (int i = -110 * 1024; i <= (fn == Fn32::kExpNonpos ? 0 : 89 * 1024); ++i)
    x.push_back(static_cast<float>(i) / 1024);
  y.resize(x.size());
  fastest().f32(fn, x.data(), y.data(), x.size());
  for (size_t i = 1; i < x.size(); ++i) ASSERT_LE(y[i - 1], y[i]) << x[i];
}

INSTANTIATE_TEST_SUITE_P(Functions, Bounds32, testing::ValuesIn(kAllFn32),
                         [](const auto& p) { return std::string(name_of(p.param)); });

TEST(Elementary32, ExpNonposHasTheBitsOfExp) {
  const uint64_t step = full() ? 1 : 1021, end = 0xFF800001u;  // -0 down to -inf
  std::vector<float> x(kBlock), a(kBlock), b(kBlock);
  for (uint64_t next = 0x80000000u; next < end;) {
    int n = 0;
    for (; n < kBlock && next < end; next += step)
      x[n++] = std::bit_cast<float>(static_cast<uint32_t>(next));
    fastest().f32(Fn32::kExp, x.data(), a.data(), n);
    fastest().f32(Fn32::kExpNonpos, x.data(), b.data(), n);
    ASSERT_EQ(std::memcmp(a.data(), b.data(), n * sizeof(float)), 0) << "from " << x[0];
  }
}

struct Special {
  Fn32 fn;
  float x, y;
};

TEST(Elementary32, SpecialValuesAreAsWritten) {
  const float inf = std::numeric_limits<float>::infinity();
  const float max = std::numeric_limits<float>::max(), min = 0x1p-149f;
  const Special cases[] = {
      {Fn32::kExp, 0.0f, 1},
      {Fn32::kExp, -0.0f, 1},
      {Fn32::kExp, min, 1},
      {Fn32::kExp, -min, 1},
      {Fn32::kExp, inf, inf},
      {Fn32::kExp, max, inf},
      {Fn32::kExp, 0x1.62e43p6f, inf},
      {Fn32::kExp, -inf, 0.0f},
      {Fn32::kExp, -max, 0.0f},
      {Fn32::kExp, -0x1.9fe36ap6f, 0.0f},
      {Fn32::kExp, -0x1.9fe368p6f, min},
      {Fn32::kExpNonpos, 0.0f, 1},
      {Fn32::kExpNonpos, -0.0f, 1},
      {Fn32::kExpNonpos, -inf, 0.0f},
      {Fn32::kSigmoid, 0.0f, 0.5f},
      {Fn32::kSigmoid, -0.0f, 0.5f},
      {Fn32::kSigmoid, inf, 1},
      {Fn32::kSigmoid, -inf, 0.0f},
      {Fn32::kSigmoid, -0x1.9fe36ap6f, 0.0f},
      {Fn32::kSilu, 0.0f, 0.0f},
      {Fn32::kSilu, -0.0f, -0.0f},
      {Fn32::kSilu, inf, inf},
      {Fn32::kSilu, max, max},
      {Fn32::kSilu, -inf, -0.0f},
      {Fn32::kSilu, -max, -0.0f},
      {Fn32::kSilu, -0x1.b2a428p6f, -0.0f},
      {Fn32::kSilu, -0x1.b2a426p6f, -min},
      {Fn32::kGelu, 0.0f, 0.0f},
      {Fn32::kGelu, -0.0f, -0.0f},
      {Fn32::kGelu, inf, inf},
      {Fn32::kGelu, max, max},
      {Fn32::kGelu, -inf, -0.0f},
      {Fn32::kGelu, -max, -0.0f},
      {Fn32::kTanh, 0.0f, 0.0f},
      {Fn32::kTanh, -0.0f, -0.0f},
      {Fn32::kTanh, 0x1p-26f, 0.0f},
      {Fn32::kTanh, -0x1p-26f, -0.0f},
      {Fn32::kTanh, inf, 1},
      {Fn32::kTanh, -inf, -1},
      {Fn32::kTanh, max, 1},
      {Fn32::kTanh, -max, -1},
      {Fn32::kSoftplus, inf, inf},
      {Fn32::kSoftplus, max, max},
      {Fn32::kSoftplus, -inf, 0.0f},
      {Fn32::kSoftplus, -max, 0.0f},
  };
  const Runnable r = runnable();
  for (int v = 0; v < r.count; ++v) {
    for (const Special& c : cases) {
      float y = 0;
      r.variants[v]->f32(c.fn, &c.x, &y, 1);
      EXPECT_EQ(std::bit_cast<uint32_t>(y), std::bit_cast<uint32_t>(c.y))
          << r.variants[v]->name << " " << name_of(c.fn) << "(" << c.x << ") = " << y;
    }
  }
}

// A NaN that became a number would hide a fault.
TEST(Elementary32, NanStaysNan) {
  const Runnable r = runnable();
  for (int v = 0; v < r.count; ++v) {
    for (const Fn32 fn : kAllFn32) {
      for (uint32_t payload = 1; payload < 0x00800000u; payload += 4093) {
        for (const uint32_t sign : {0u, 0x80000000u}) {
          const float x = std::bit_cast<float>(sign | 0x7F800000u | payload);
          float y = 0;
          r.variants[v]->f32(fn, &x, &y, 1);
          ASSERT_TRUE(std::isnan(y)) << r.variants[v]->name << " " << name_of(fn);
        }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::math_test
