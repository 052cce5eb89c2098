// The law's elementary functions as one translation unit compiled them. variant.cc is compiled once
// for each instruction set and linked into one binary, so that a test can compare them, and would
// see a function that the linker had merged.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::math_test {

enum class Fn32 { kExp, kExpNonpos, kSigmoid, kSilu, kGelu, kTanh, kSoftplus };
inline constexpr Fn32 kAllFn32[] = {Fn32::kExp,  Fn32::kExpNonpos, Fn32::kSigmoid, Fn32::kSilu,
                                    Fn32::kGelu, Fn32::kTanh,      Fn32::kSoftplus};
enum class Fn64 { kLog, kExp2, kSin, kCos };
inline constexpr Fn64 kAllFn64[] = {Fn64::kLog, Fn64::kExp2, Fn64::kSin, Fn64::kCos};

struct Variant {
  const char* name;
  void (*f32)(Fn32 fn, const float* x, float* y, size_t n);
  void (*f64)(Fn64 fn, const double* x, double* y, size_t n);
  float (*f16_to_f32)(uint16_t h);
  uint16_t (*f32_to_f16)(float x);
  float (*bf16_to_f32)(uint16_t h);
  int8_t (*round_even_i8)(float x);
};

extern const Variant kPlain, kV3, kV4;
// One coefficient of each polynomial is wrong, for the tests that show that a check can fail.
extern const Variant kPerturbed;

// The variants that this machine can run; the fastest is last.
struct Runnable {
  const Variant* variants[3];
  int count;
};
inline Runnable runnable() {
  Runnable r{{&kPlain, nullptr, nullptr}, 1};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    r.variants[r.count++] = &kV3;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl")) {
      r.variants[r.count++] = &kV4;
    }
  }
  return r;
}
inline const Variant& fastest() {
  const Runnable r = runnable();
  return *r.variants[r.count - 1];
}

}  // namespace lockstep::math_test
