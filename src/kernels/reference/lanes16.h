// Sixteen lanes, the order of float products and attention scores: element i goes to lane i mod 16.
#pragma once

#include "kernels/math/portable.h"
#include "kernels/reference/isa.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

// lane[i mod 16] = fma(a[i], b[i], lane[i mod 16]) for i < n ascending; n % 16 == 0. The local copy
// is what the compiler keeps in registers.
inline void fma16(const float* a, const float* b, int64_t n, float* lanes) {
  float lane[16];
  for (int j = 0; j < 16; ++j) lane[j] = lanes[j];
  for (int64_t i = 0; i < n; i += 16) {
    for (int j = 0; j < 16; ++j) lane[j] = math::fma_rn(a[i + j], b[i + j], lane[j]);
  }
  for (int j = 0; j < 16; ++j) lanes[j] = lane[j];
}

// The law's tree(16); lane is spent.
inline float tree16(float* lane) {
  for (int h = 8; h >= 1; h /= 2) {
    for (int j = 0; j < h; ++j) lane[j] = lane[j] + lane[j + h];
  }
  return lane[0];
}

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
