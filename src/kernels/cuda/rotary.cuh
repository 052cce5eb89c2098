// Cosines and sines for the rows of a pass, by the CPU's own binary64 functions (rope_table.h,
// docs/numerics/rotary.md).
#pragma once

#include "kernels/cuda/device_code.cuh"
#include "kernels/math/elementary64.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kRotaryThreads = 128;

// A thread has a pair of a row. The next launch may not start before this one has ended: attention
// reads rotary rows before it waits, and may itself have started by then.
__global__ void rotary_rows_kernel(RotaryRowsArgs args) {
  wait_for_earlier_launches();
  const int64_t at = thread_of_grid();
  if (at >= args.rows * args.n_pairs) return;
  const int64_t row = at / args.n_pairs;
  const int64_t i = at % args.n_pairs;
  const RotaryPair& pair = args.pairs[i];
  const math::SinCos sc = math::sincos(static_cast<double>(args.positions[row]) * pair.f);
  float* cos = args.out + 2 * args.rows * pair.first + row * pair.n + (i - pair.first);
  cos[0] = static_cast<float>(sc.cos) * pair.scale;
  cos[args.rows * pair.n] = static_cast<float>(sc.sin) * pair.scale;
}

void rotary_rows(const RotaryRowsArgs& args, Stream stream) {
  LOCKSTEP_LAUNCH(rotary_rows_kernel, blocks_for(args.rows * args.n_pairs, kRotaryThreads),
                  kRotaryThreads, 0, stream, args);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
