// Writes tests/law/vectors/elementary.json to the standard output: input and output bits of every
// elementary function, for a second implementation to check itself with.
//
//   math_make_vectors > tests/law/vectors/elementary.json
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "reference.h"

namespace lockstep::math_test {
namespace {

constexpr float kInf32 = std::numeric_limits<float>::infinity();
constexpr double kInf64 = std::numeric_limits<double>::infinity();
constexpr float kMax32 = std::numeric_limits<float>::max();
constexpr double kMax64 = std::numeric_limits<double>::max();

// splitmix64: inputs that nobody chose.
struct Words {
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }
};

std::vector<float> inputs(Fn32 fn) {
  std::vector<float> x = {0.0f,
                          -0.0f,
                          0x1p-149f,
                          -0x1p-149f,
                          0x1p-126f,
                          -0x1p-30f,
                          1,
                          -1,
                          0.5f,
                          -0.5f,
                          -64,
                          -87.5f,
                          -95,
                          -103.9f,
                          -0x1.9fe368p6f,
                          -0x1.9fe36ap6f,
                          -0x1.b2a426p6f,
                          -0x1.b2a428p6f,
                          -110,
                          -111,
                          -kMax32,
                          -kInf32,
                          kMax32,
                          kInf32,
                          88.7f,
                          0x1.62e42ep6f,
                          0x1.62e43p6f,
                          17,
                          4,
                          -4,
                          0x1.62e43p-2f,
                          -0x1.62e43p-2f};
  Words w{static_cast<uint64_t>(fn) + 1};
  for (int i = 0; i < 8; ++i)
    x.push_back(static_cast<float>((w.uniform() - 0.5) * (i < 4 ? 16 : 200)));
  if (fn == Fn32::kExpNonpos) std::erase_if(x, [](float v) { return v > 0; });
  return x;
}

std::vector<double> inputs(Fn64 fn) {
  Words w{static_cast<uint64_t>(fn) + 100};
  std::vector<double> x;
  const auto add = [&x](std::initializer_list<double> list) { x.insert(x.end(), list); };
  switch (fn) {
    case Fn64::kLog:
      add({1,
           2,
           0.5,
           0x1.fffffffffffffp-1,
           0x1.0000000000001p0,
           0x1.6a09e667f3bccp-1,
           0x1.6a09e667f3bcdp-1,
           0x1.6a09e667f3bcdp0,
           0x1p-1074,
           0x1.8p-1030,
           0x1p-1022,
           kMax64,
           kInf64,
           0.0,
           -0.0,
           -1,
           0x1p-33,
           0x1.fffffffep-1,
           10000,
           1000000,
           500000});
      for (int i = 0; i < 8; ++i)
        x.push_back((static_cast<double>(w.next() >> 32) + 0.5) * 0x1p-32);
      break;
    case Fn64::kExp2:
      add({0.0,
           -0.0,
           1,
           -1,
           10,
           -24,
           0.5,
           -0.5,
           1.5,
           0x1p-60,
           1023,
           1023.999,
           1024,
           -1022,
           -1022.5,
           -1074,
           -1074.5,
           -1075,
           -1100.5,
           kInf64,
           -kInf64,
           kMax64,
           -0x1.a934f0979a371p3});
      for (int i = 0; i < 8; ++i) x.push_back(w.uniform() * -20);
      break;
    case Fn64::kSin:
    case Fn64::kCos:
      add({0.0,
           -0.0,
           1,
           -1,
           2,
           3,
           4,
           5,
           0x1p-40,
           0x1.921fb54442d18p-1,
           0x1.921fb54442d18p0,
           -0x1.921fb54442d18p0,
           0x1.921fb54442d18p1,
           131071,
           1048575,
           2097151,
           2097151.75,
           0x1.fffffffffffffp29,
           0x1p30,
           kInf64});
      for (int i = 0; i < 8; ++i) x.push_back((w.uniform() - 0.5) * (i < 4 ? 0x1p21 : 20));
      break;
  }
  return x;
}

bool first_function = true, first_pair = true;

void begin(const char* name) {
  std::printf("%s\n    \"%s\": [", first_function ? "" : ",", name);
  first_function = false;
  first_pair = true;
}
void end() {
  std::printf("\n    ]");
}
void pair(uint64_t x, int x_digits, uint64_t y, int y_digits, bool nan = false) {
  std::printf("%s\n      [\"0x%0*llx\", ", first_pair ? "" : ",", x_digits,
              static_cast<unsigned long long>(x));
  if (nan) {
    std::printf("\"nan\"]");
  } else {
    std::printf("\"0x%0*llx\"]", y_digits, static_cast<unsigned long long>(y));
  }
  first_pair = false;
}

void write() {
  const Variant& v = kPlain;
  std::printf(
      "{\n  \"law\": \"ls1\",\n  \"about\": \"[input bits, output bits]; \\\"nan\\\" is any "
      "NaN\",\n"
      "  \"functions\": {");
  for (const Fn32 fn : kAllFn32) {
    begin(name_of(fn));
    for (const float x : inputs(fn)) {
      float y = 0;
      v.f32(fn, &x, &y, 1);
      pair(std::bit_cast<uint32_t>(x), 8, std::bit_cast<uint32_t>(y), 8, std::isnan(y));
    }
    end();
  }
  for (const Fn64 fn : kAllFn64) {
    begin(name_of(fn));
    for (const double x : inputs(fn)) {
      double y = 0;
      v.f64(fn, &x, &y, 1);
      pair(std::bit_cast<uint64_t>(x), 16, std::bit_cast<uint64_t>(y), 16, std::isnan(y));
    }
    end();
  }
  begin("f16_to_f32");
  for (const uint16_t h : {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xC000, 0x3555,
                           0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0xFE55})
    pair(h, 4, std::bit_cast<uint32_t>(v.f16_to_f32(h)), 8);
  end();
  begin("f32_to_f16");
  for (const uint32_t b :
       {0x00000000u, 0x80000000u, 0x00000001u, 0x33000000u, 0x33000001u, 0x33800000u, 0x33C00000u,
        0xB8800000u, 0x387FFFFFu, 0x387FE000u, 0x387FC000u, 0x387FDFFFu, 0x3F800000u, 0x3F801000u,
        0x3F803000u, 0x3F801001u, 0x3EAAAAABu, 0x477FE000u, 0x477FEFFFu, 0x477FF000u, 0xC7800000u,
        0x7F7FFFFFu, 0x7F800000u, 0xFF800000u, 0x7F800001u, 0xFFD54321u})
    pair(b, 8, v.f32_to_f16(std::bit_cast<float>(b)), 4);
  end();
  begin("bf16_to_f32");
  for (const uint16_t h : {0x0000, 0x8000, 0x0001, 0x3F80, 0xC0A0, 0x7F7F, 0x7F80, 0xFF80})
    pair(h, 4, std::bit_cast<uint32_t>(v.bf16_to_f32(h)), 8);
  end();
  begin("round_even_i8");
  for (const float x : {0.0f, -0.0f, 0.5f, -0.5f, 0x1.000002p-1f, 1.5f, 2.5f, -2.5f, -3.5f, 126.5f,
                        127.0f, -127.0f, 0x1.fc0002p6f, 0x1p-149f, 63.49f})
    pair(std::bit_cast<uint32_t>(x), 8, static_cast<uint8_t>(v.round_even_i8(x)), 2);
  end();
  std::printf("\n  }\n}\n");
}

}  // namespace
}  // namespace lockstep::math_test

int main() {
  lockstep::math_test::write();
}
