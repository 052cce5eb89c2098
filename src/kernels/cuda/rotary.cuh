// Cosines and sines for the rows of a pass, by the CPU's own binary64 functions (rope_table.h,
// docs/numerics/rotary.md).
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/math/elementary64.h"

namespace lockstep::kernels::cuda {
namespace {

// A thread has a pair of a row.
__device__ inline void rotary_pair(const RotaryRowsArgs& args, int64_t at) {
  if (at >= args.rows * args.n_pairs) return;
  const int64_t row = at / args.n_pairs;
  const int64_t i = at % args.n_pairs;
  const RotaryPair& pair = args.pairs[i];
  const math::SinCos sc = math::sincos(static_cast<double>(args.positions[row]) * pair.f);
  float* cos = args.out + 2 * args.rows * pair.first + row * pair.n + (i - pair.first);
  cos[0] = static_cast<float>(sc.cos) * pair.scale;
  cos[args.rows * pair.n] = static_cast<float>(sc.sin) * pair.scale;
}

}  // namespace
}  // namespace lockstep::kernels::cuda
