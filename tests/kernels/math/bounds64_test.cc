// Every bound of docs/numerics/elementary.md for the binary64 functions, at structured and random
// points against MPFR; fifty times as many with LOCKSTEP_FULL=1. The worst error found is printed.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "reference.h"

namespace lockstep::math_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

bool full() {
  const char* value = std::getenv("LOCKSTEP_FULL");
  return value != nullptr && value[0] == '1';
}

double bound(Fn64 fn) {
  return fn == Fn64::kLog || fn == Fn64::kExp2 ? 2 : 1;
}

double unit(Fn64 fn, double exact) {
  return fn == Fn64::kLog || fn == Fn64::kExp2 ? ulp64(exact) : 0x1p-50;
}

double step(double x, int64_t ulps) {
  return std::bit_cast<double>(std::bit_cast<uint64_t>(x) + static_cast<uint64_t>(ulps));
}

class Source {
 public:
  explicit Source(uint64_t seed) : generator_(seed) {}
  uint64_t word() { return generator_(); }
  double uniform() { return static_cast<double>(word() >> 11) * 0x1p-53; }
  double between(double a, double b) { return a + (b - a) * uniform(); }
  int64_t few() { return static_cast<int64_t>(word() % 17) - 8; }

 private:
  std::mt19937_64 generator_;
};

double log_point(Source& s, int64_t i) {
  switch (i % 8) {
    case 0:
      return (static_cast<double>(static_cast<uint32_t>(s.word())) + 0.5) * 0x1p-32;
    case 1:
      return step(0x1p-1022, static_cast<int64_t>(s.word() % (uint64_t{2046} << 52)) - 1);
    case 2:
      return step(std::ldexp(1.0, static_cast<int>(s.word() % 2046) - 1022), s.few());
    case 3:
      return step(std::ldexp(0x1.6a09e667f3bcdp-1, static_cast<int>(s.word() % 64) - 32), s.few());
    case 4:
      return 1 + std::ldexp(s.between(-0.5, 0.5), -static_cast<int>(s.word() % 52));
    case 5:
      return std::bit_cast<double>(1 + (s.word() >> 12));  // subnormal
    case 6:
      return -std::log((static_cast<double>(static_cast<uint32_t>(s.word())) + 0.5) * 0x1p-32);
    default:
      return s.between(0.5, 2);
  }
}

double exp2_point(Source& s, int64_t i) {
  switch (i % 6) {
    case 0:
      return s.between(-30, 0);
    case 1:
      return s.between(-1023, 1024);
    case 2:
      return s.between(-1076, -1022);
    case 3:
      return step(static_cast<double>(static_cast<int>(s.word() % 2100) - 1060) + 0.5, s.few());
    case 4:
      return std::ldexp(s.between(-1, 1), -static_cast<int>(s.word() % 60));
    default: {
      // -(2i / n_rot)·log2(base), as rotary asks
      const double n_rot = 64.0 * static_cast<double>(1 + s.word() % 4);
      return -(static_cast<double>(2 * (s.word() % 128)) / n_rot) *
             (s.uniform() < 0.5 ? 13.287712379549449 : 19.931568569324174);
    }
  }
}

double angle(Source& s, int64_t i, double limit) {
  const double quarter = 0x1.921fb54442d18p-1;  // pi/4
  switch (i % 6) {
    case 0:
      return s.between(-limit, limit);
    case 1:
      return std::trunc(s.between(0, limit));
    case 2:
      return step(std::rint(s.between(1, limit / quarter - 8)) * quarter, s.few());
    case 3:
      return -step(std::rint(s.between(1, 64)) * quarter, s.few());
    case 4:
      return std::ldexp(s.between(-4, 4), -static_cast<int>(s.word() % 60));
    default:
      return std::trunc(s.between(0, limit)) * std::exp2(s.between(-20, 0));
  }
}

struct Worst {
  double error = 0, at = 0;
  void take(double e, double x) {
    if (!(e <= error)) {
      error = e;
      at = x;
    }
  }
};

Worst search(const Variant& variant, Fn64 fn, int64_t points, double limit) {
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  std::vector<Worst> parts(threads);
  std::vector<std::thread> team;
  for (unsigned t = 0; t < threads; ++t) {
    team.emplace_back([&, t] {
      Source s(1000 + t);
      for (int64_t i = t; i < points; i += threads) {
        const double x = fn == Fn64::kLog    ? log_point(s, i / threads)
                         : fn == Fn64::kExp2 ? exp2_point(s, i / threads)
                                             : angle(s, i / threads, limit);
        double y = 0, exact = 0;
        variant.f64(fn, &x, &y, 1);
        double error = mpfr_error(fn, x, y, &exact);
        // An infinite result stands for 2^1024, which binary64 can't hold.
        if (std::isinf(y)) error = exact >= 0x1.fffffffffffffp1023 ? 0 : kInf;
        parts[t].take(error / unit(fn, exact), x);
      }
    });
  }
  for (std::thread& t : team) t.join();
  Worst all;
  for (const Worst& p : parts) all.take(p.error, p.at);
  return all;
}

class Bounds64 : public testing::TestWithParam<Fn64> {};

TEST_P(Bounds64, HoldsAtEveryPointTried) {
  const Fn64 fn = GetParam();
  const int64_t points = full() ? 10'000'000 : 200'000;
  const Worst w = search(fastest(), fn, points, 0x1p21);
  std::printf("%s: worst error %.4f of %g at %a (%lld points)\n", name_of(fn), w.error, bound(fn),
              w.at, static_cast<long long>(points));
  EXPECT_LE(w.error, bound(fn)) << "at " << w.at;
}

TEST_P(Bounds64, IsBrokenByOneWrongCoefficient) {
  const Fn64 fn = GetParam();
  const Worst w = search(kPerturbed, fn, 20'000, 0x1p21);
  std::printf("%s perturbed: worst error %.4f of %g\n", name_of(fn), w.error, bound(fn));
  EXPECT_GT(w.error, bound(fn));
}

INSTANTIATE_TEST_SUITE_P(Functions, Bounds64, testing::ValuesIn(kAllFn64),
                         [](const auto& p) { return std::string(name_of(p.param)); });

TEST(Elementary64, SinAndCosKeepTheirBoundToTwoToThe30) {
  for (const Fn64 fn : {Fn64::kSin, Fn64::kCos}) {
    const Worst w = search(fastest(), fn, full() ? 2'000'000 : 40'000, 0x1p30);
    std::printf("%s to 2^30: worst error %.4f of %g at %a\n", name_of(fn), w.error, bound(fn),
                w.at);
    EXPECT_LE(w.error, bound(fn)) << "at " << w.at;
  }
}

TEST(Elementary64, Exp2IsExactForIntegers) {
  for (int n = -1080; n <= 1030; ++n) {
    const double x = n;
    double y = 0;
    fastest().f64(Fn64::kExp2, &x, &y, 1);
    ASSERT_EQ(y, std::ldexp(1.0, n)) << n;
  }
}

struct Special {
  Fn64 fn;
  double x, y;
};

TEST(Elementary64, SpecialValuesAreAsWritten) {
  const double nan = std::nan("");
  const Special cases[] = {
      {Fn64::kLog, 1, 0.0},
      {Fn64::kLog, 0.0, -kInf},
      {Fn64::kLog, -0.0, -kInf},
      {Fn64::kLog, kInf, kInf},
      {Fn64::kLog, -1, nan},
      {Fn64::kLog, -0x1p-1074, nan},
      {Fn64::kLog, -kInf, nan},
      {Fn64::kLog, nan, nan},
      {Fn64::kLog, 0.5, -0x1.62e42fefa39efp-1},
      {Fn64::kLog, 2, 0x1.62e42fefa39efp-1},
      {Fn64::kExp2, 0.0, 1},
      {Fn64::kExp2, -0.0, 1},
      {Fn64::kExp2, 1024, kInf},
      {Fn64::kExp2, 1e300, kInf},
      {Fn64::kExp2, kInf, kInf},
      {Fn64::kExp2, -1075, 0.0},
      {Fn64::kExp2, -1074, 0x1p-1074},
      {Fn64::kExp2, -1e300, 0.0},
      {Fn64::kExp2, -kInf, 0.0},
      {Fn64::kExp2, nan, nan},
      {Fn64::kSin, 0.0, 0.0},
      {Fn64::kSin, -0.0, 0.0},
      {Fn64::kSin, 0x1p30, nan},
      {Fn64::kSin, -0x1p30, nan},
      {Fn64::kSin, kInf, nan},
      {Fn64::kSin, -kInf, nan},
      {Fn64::kSin, nan, nan},
      {Fn64::kCos, 0.0, 1},
      {Fn64::kCos, -0.0, 1},
      {Fn64::kCos, 0x1p30, nan},
      {Fn64::kCos, kInf, nan},
      {Fn64::kCos, nan, nan},
  };
  const Runnable r = runnable();
  for (int v = 0; v < r.count; ++v) {
    for (const Special& c : cases) {
      double y = 0;
      r.variants[v]->f64(c.fn, &c.x, &y, 1);
      const bool same = std::isnan(c.y)
                            ? std::isnan(y)
                            : std::bit_cast<uint64_t>(y) == std::bit_cast<uint64_t>(c.y);
      EXPECT_TRUE(same) << r.variants[v]->name << " " << name_of(c.fn) << "(" << c.x << ") = " << y;
    }
  }
}

}  // namespace
}  // namespace lockstep::math_test
