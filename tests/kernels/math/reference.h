// What the functions are measured against: binary64 libm for the binary32 functions, MPFR where
// that can't decide and for the binary64 functions. Never an imitation of the law's own algorithm.
#pragma once

#include "variant.h"

namespace lockstep::math_test {

const char* name_of(Fn32 fn);
const char* name_of(Fn64 fn);

// The unit in the last place of binary32 (binary64) at y, not below the smallest subnormal.
double ulp32(double y);
double ulp64(double y);

// The true value to about binary64 accuracy.
double reference(Fn32 fn, double x);

// The unit in which the error of fn at x is counted, `exact` being the true value: an error of
// bound(fn) units is the most that the law allows.
double error_unit(Fn32 fn, double x, double exact);
double bound(Fn32 fn);

// |y - fn(x)| from MPFR with 200 bits; exact receives the true value, rounded.
double mpfr_error(Fn32 fn, double x, double y, double* exact);
double mpfr_error(Fn64 fn, double x, double y, double* exact);

}  // namespace lockstep::math_test
