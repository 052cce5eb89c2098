// Products with float matrices, as the file has them.
#pragma once

#include "kernels/cuda/device_code.cuh"

namespace lockstep::kernels::cuda {
namespace {

__device__ inline float float_weight(FloatType type, const void* row, int64_t i) {
  switch (type) {
    case FloatType::f16:
      return half_to_float(static_cast<const uint16_t*>(row)[i]);
    case FloatType::bf16:
      return math::bf16_to_f32(static_cast<const uint16_t*>(row)[i]);
    default:
      return static_cast<const float*>(row)[i];
  }
}

// Half a warp has one column: a thread a lane.
constexpr int kFloatRows = 4;
constexpr int kFloatThreads = 128;

__global__ void matmul_float_kernel(FloatMatmulArgs args) {
  after_earlier_launches();
  const int64_t item = thread_of_grid() / 16;
  const int64_t tiles = (args.rows + kFloatRows - 1) / kFloatRows;
  const bool there = item < args.n_out * tiles;  // the other half of the warp may be
  const int64_t column = there ? item % args.n_out : 0;
  const int64_t first_row = there ? item / args.n_out * kFloatRows : args.rows;
  const int lane = static_cast<int>(threadIdx.x % 16);
  const int64_t bytes = args.n_in * (args.type == FloatType::f32 ? 4 : 2);
  const void* w = static_cast<const std::byte*>(args.weight) + column * bytes;
  float lanes[kFloatRows];
  for (int r = 0; r < kFloatRows; ++r) lanes[r] = 0.0f;
  for (int64_t i = lane; i < args.n_in; i += 16) {
    const float value = float_weight(args.type, w, i);
    LOCKSTEP_UNROLL
    for (int r = 0; r < kFloatRows; ++r) {
      const int64_t row = first_row + r;
      if (row < args.rows) lanes[r] = math::fma_rn(value, args.x[row * args.n_in + i], lanes[r]);
    }
  }
  LOCKSTEP_UNROLL
  for (int r = 0; r < kFloatRows; ++r) {
    float y = tree16(lanes[r]);
    const int64_t row = first_row + r;
    if (row >= args.rows || lane != 0) continue;
    if (args.bias != nullptr) y = y + args.bias[column];
    args.out[row * args.n_out + column] = y;
  }
}

void matmul_float(const FloatMatmulArgs& args, Stream stream) {
  const int64_t items = (args.rows + kFloatRows - 1) / kFloatRows * args.n_out;
  LOCKSTEP_LAUNCH(matmul_float_kernel, blocks_for(items, kFloatThreads / 16), kFloatThreads, 0,
                  stream, args);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
