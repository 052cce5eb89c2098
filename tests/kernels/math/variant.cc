// Compiled several times: LOCKSTEP_MATH_VARIANT names the table it defines. Only internal linkage
// besides that table.
#include "variant.h"

#include "kernels/math/elementary.h"
#include "kernels/math/elementary64.h"
#include "kernels/math/half.h"

namespace lockstep::math_test {
namespace {

#define LOCKSTEP_STRING_(x) #x
#define LOCKSTEP_STRING(x) LOCKSTEP_STRING_(x)

template <auto fn, typename T>
void each(const T* x, T* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = fn(x[i]);
}

void f32(Fn32 fn, const float* x, float* y, size_t n) {
  switch (fn) {
    case Fn32::kExp:
      return each<math::exp>(x, y, n);
    case Fn32::kExpNonpos:
      return each<math::exp_nonpos>(x, y, n);
    case Fn32::kSigmoid:
      return each<math::sigmoid>(x, y, n);
    case Fn32::kSilu:
      return each<math::silu>(x, y, n);
    case Fn32::kGelu:
      return each<math::gelu>(x, y, n);
    case Fn32::kTanh:
      return each<math::tanh>(x, y, n);
    case Fn32::kSoftplus:
      return each<math::softplus>(x, y, n);
  }
}

void f64(Fn64 fn, const double* x, double* y, size_t n) {
  switch (fn) {
    case Fn64::kLog:
      return each<math::log>(x, y, n);
    case Fn64::kExp2:
      return each<math::exp2>(x, y, n);
    case Fn64::kSin:
      return each<math::sin>(x, y, n);
    case Fn64::kCos:
      return each<math::cos>(x, y, n);
  }
}

}  // namespace

extern const Variant LOCKSTEP_MATH_VARIANT;
const Variant LOCKSTEP_MATH_VARIANT = {
    LOCKSTEP_STRING(LOCKSTEP_MATH_VARIANT),
    f32,
    f64,
    math::f16_to_f32,
    math::f32_to_f16,
    math::bf16_to_f32,
    math::round_even_i8,
};

}  // namespace lockstep::math_test
