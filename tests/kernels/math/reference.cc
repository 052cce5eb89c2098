#include "reference.h"

#include <mpfr.h>

#include <cmath>

namespace lockstep::math_test {
namespace {

constexpr int kPrecision = 200;

double ulp(double y, int significand_bits, int min_exponent) {
  int e = 0;
  std::frexp(y, &e);  // |y| in [2^(e-1), 2^e)
  return std::ldexp(1.0, y == 0 ? min_exponent : std::max(e - significand_bits, min_exponent));
}

double sigmoid(double u) {
  return u < 0 ? std::exp(u) / (1 + std::exp(u)) : 1 / (1 + std::exp(-u));
}

// MPFR numbers of one thread, allocated once.
struct Scratch {
  mpfr_t a, b, c, d;
  Scratch() { mpfr_inits2(kPrecision, a, b, c, d, static_cast<mpfr_ptr>(nullptr)); }
  ~Scratch() {
    mpfr_clears(a, b, c, d, static_cast<mpfr_ptr>(nullptr));
    mpfr_free_cache2(MPFR_FREE_LOCAL_CACHE);  // this thread's pi and log 2
  }
};
thread_local Scratch s;

// y = 1 / (1 + exp(-u)); y and u may be the same.
void mpfr_sigmoid(mpfr_t y, const mpfr_t u) {
  mpfr_neg(y, u, MPFR_RNDN);
  mpfr_exp(y, y, MPFR_RNDN);
  mpfr_add_ui(y, y, 1, MPFR_RNDN);
  mpfr_ui_div(y, 1, y, MPFR_RNDN);
}

double difference(const mpfr_t exact, double y, double* rounded) {
  *rounded = mpfr_get_d(exact, MPFR_RNDN);
  mpfr_sub_d(s.d, exact, y, MPFR_RNDN);
  return std::fabs(mpfr_get_d(s.d, MPFR_RNDN));
}

}  // namespace

const char* name_of(Fn32 fn) {
  switch (fn) {
    case Fn32::kExp:
      return "exp";
    case Fn32::kExpNonpos:
      return "exp_nonpos";
    case Fn32::kSigmoid:
      return "sigmoid";
    case Fn32::kSilu:
      return "silu";
    case Fn32::kGelu:
      return "gelu";
    case Fn32::kTanh:
      return "tanh";
    case Fn32::kSoftplus:
      return "softplus";
  }
  return "?";
}

const char* name_of(Fn64 fn) {
  switch (fn) {
    case Fn64::kLog:
      return "log";
    case Fn64::kExp2:
      return "exp2";
    case Fn64::kSin:
      return "sin";
    case Fn64::kCos:
      return "cos";
  }
  return "?";
}

double ulp32(double y) {
  return ulp(y, 24, -149);
}
double ulp64(double y) {
  return ulp(y, 53, -1074);
}

double reference(Fn32 fn, double x) {
  switch (fn) {
    case Fn32::kExp:
    case Fn32::kExpNonpos:
      return std::exp(x);
    case Fn32::kSigmoid:
      return sigmoid(x);
    case Fn32::kSilu:
      return x * sigmoid(x);
    case Fn32::kGelu: {
      static const double k = 2 * std::sqrt(2 / M_PI);
      return x * sigmoid(k * (x + 0.044715 * x * x * x));
    }
    case Fn32::kTanh:
      return std::tanh(x);
    case Fn32::kSoftplus:
      return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
  }
  return NAN;
}

double error_unit(Fn32 fn, double x, double exact) {
  switch (fn) {
    case Fn32::kGelu:
      return 0x1p-21 * std::fmax(1, std::fabs(x));
    case Fn32::kTanh:
      return 0x1p-22;
    case Fn32::kSoftplus:
      return exact < 4 ? 0x1p-22 : ulp32(exact);
    default:
      return ulp32(exact);
  }
}

double bound(Fn32 fn) {
  return fn == Fn32::kSigmoid || fn == Fn32::kSilu ? 3 : 1;
}

double mpfr_error(Fn32 fn, double x, double y, double* exact) {
  mpfr_set_d(s.a, x, MPFR_RNDN);
  switch (fn) {
    case Fn32::kExp:
    case Fn32::kExpNonpos:
      mpfr_exp(s.b, s.a, MPFR_RNDN);
      break;
    case Fn32::kSigmoid:
      mpfr_sigmoid(s.b, s.a);
      break;
    case Fn32::kSilu:
      mpfr_sigmoid(s.b, s.a);
      mpfr_mul(s.b, s.b, s.a, MPFR_RNDN);
      break;
    case Fn32::kGelu:
      // u = 2·sqrt(2/pi)·(x + 44715/1000000·x³)
      mpfr_pow_ui(s.b, s.a, 3, MPFR_RNDN);
      mpfr_mul_ui(s.b, s.b, 44715, MPFR_RNDN);
      mpfr_div_ui(s.b, s.b, 1000000, MPFR_RNDN);
      mpfr_add(s.b, s.b, s.a, MPFR_RNDN);
      mpfr_const_pi(s.c, MPFR_RNDN);
      mpfr_ui_div(s.c, 8, s.c, MPFR_RNDN);
      mpfr_sqrt(s.c, s.c, MPFR_RNDN);
      mpfr_mul(s.b, s.b, s.c, MPFR_RNDN);
      mpfr_sigmoid(s.b, s.b);
      mpfr_mul(s.b, s.b, s.a, MPFR_RNDN);
      break;
    case Fn32::kTanh:
      mpfr_tanh(s.b, s.a, MPFR_RNDN);
      break;
    case Fn32::kSoftplus:
      mpfr_exp(s.b, s.a, MPFR_RNDN);
      mpfr_log1p(s.b, s.b, MPFR_RNDN);
      break;
  }
  return difference(s.b, y, exact);
}

double mpfr_error(Fn64 fn, double x, double y, double* exact) {
  mpfr_set_d(s.a, x, MPFR_RNDN);
  switch (fn) {
    case Fn64::kLog:
      mpfr_log(s.b, s.a, MPFR_RNDN);
      break;
    case Fn64::kExp2:
      mpfr_exp2(s.b, s.a, MPFR_RNDN);
      break;
    case Fn64::kSin:
      mpfr_sin(s.b, s.a, MPFR_RNDN);
      break;
    case Fn64::kCos:
      mpfr_cos(s.b, s.a, MPFR_RNDN);
      break;
  }
  return difference(s.b, y, exact);
}

}  // namespace lockstep::math_test
