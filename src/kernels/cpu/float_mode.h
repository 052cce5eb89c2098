// The law's floating-point mode on this thread, for as long as the object lives: round to nearest
// even, subnormals kept, exceptions masked. A library loaded into the process may have changed it.
#pragma once

#include <xmmintrin.h>

namespace lockstep::kernels {

class CanonicalFloatMode {
 public:
  CanonicalFloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(kDefaultMxcsr); }
  ~CanonicalFloatMode() { _mm_setcsr(saved_); }
  CanonicalFloatMode(const CanonicalFloatMode&) = delete;
  CanonicalFloatMode& operator=(const CanonicalFloatMode&) = delete;

 private:
  static constexpr unsigned kDefaultMxcsr = 0x1F80;  // all masked, nearest even, no FTZ, no DAZ
  const unsigned saved_;
};

}  // namespace lockstep::kernels
