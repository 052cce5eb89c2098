// What the law's elementary functions are made of, for a plain C++ compiler and for nvcc.
//
// The headers of this directory are compiled into translation units that differ in -march. A
// function with weak linkage would let the linker keep one copy, and an AVX-512 copy could end up
// in a process without AVX-512. Hence everything here is `static inline` or a namespace-scope
// constexpr: internal linkage, and nothing from std that is a template.
#pragma once

#include <cfloat>
#include <cstdint>

#ifdef __FAST_MATH__
#error "the law needs IEEE arithmetic: build without -ffast-math"
#endif
static_assert(FLT_EVAL_METHOD == 0, "every operator must round to its own type");
static_assert(sizeof(float) == 4 && FLT_MANT_DIG == 24, "float must be IEEE binary32");
static_assert(sizeof(double) == 8 && DBL_MANT_DIG == 53, "double must be IEEE binary64");

#ifdef __CUDACC__
#define LOCKSTEP_HD __host__ __device__
#else
#define LOCKSTEP_HD
#endif

namespace lockstep::math {

LOCKSTEP_HD static inline uint32_t bits_of(float x) {
  return __builtin_bit_cast(uint32_t, x);
}
LOCKSTEP_HD static inline uint64_t bits_of(double x) {
  return __builtin_bit_cast(uint64_t, x);
}
LOCKSTEP_HD static inline float f32_from_bits(uint32_t b) {
  return __builtin_bit_cast(float, b);
}
LOCKSTEP_HD static inline double f64_from_bits(uint64_t b) {
  return __builtin_bit_cast(double, b);
}

// a·b + c with one rounding.
LOCKSTEP_HD static inline float fma_rn(float a, float b, float c) {
#ifdef __CUDA_ARCH__
  return __fmaf_rn(a, b, c);
#else
  return __builtin_fmaf(a, b, c);
#endif
}
LOCKSTEP_HD static inline double fma_rn(double a, double b, double c) {
#ifdef __CUDA_ARCH__
  return __fma_rn(a, b, c);
#else
  return __builtin_fma(a, b, c);
#endif
}

}  // namespace lockstep::math
