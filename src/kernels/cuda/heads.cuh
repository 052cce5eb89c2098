// Heads of q, k and v after their products: norms, rotation, and k and v into the cache.
#pragma once

#include "kernels/cuda/kv.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kHeadWarps = 4;

// Loops over a head are short: unrolled, they would cost more to fetch than they save.

// Sum of squares of a head by one warp: thread t has the law's lanes t, t + 32, …, t + 224.
__device__ inline float sum_of_squares(const float* x, int64_t n) {
  const int thread = static_cast<int>(threadIdx.x % 32);
  float lanes[8];
  LOCKSTEP_UNROLL
  for (int k = 0; k < 8; ++k) {
    lanes[k] = 0.0f;
    LOCKSTEP_UNROLL_BY(1)
    for (int64_t i = 32 * k + thread; i < n; i += 256) {
      lanes[k] = math::fma_rn(x[i], x[i], lanes[k]);
    }
  }
  LOCKSTEP_UNROLL
  for (int h = 4; h >= 1; h /= 2) {
    LOCKSTEP_UNROLL
    for (int k = 0; k < h; ++k) lanes[k] = lanes[k] + lanes[k + h];
  }
  float sum = lanes[0];
  LOCKSTEP_UNROLL
  for (int h = 16; h >= 1; h /= 2) sum = sum + __shfl_xor_sync(kAllLanes, sum, h);
  return sum;
}

// One row of one head into its page, by one warp.
__device__ inline bool write_row(KvType type, const float* x, int64_t head_dim, std::byte* row) {
  const int64_t step = unit_elements(type);
  bool fault = false;
  LOCKSTEP_UNROLL_BY(1)
  for (int64_t i = step * static_cast<int64_t>(threadIdx.x % 32); i < head_dim; i += 32 * step) {
    fault |= write_unit(type, x, i, row);
  }
  return fault;
}

// Norm and rotation of one head of a row in shared memory, by one warp. cos, sin: the row's.
__device__ inline void turn_head(const HeadsArgs& args, bool is_q, int64_t row, const float* cos,
                                 const float* sin, float* x) {
  const int lane = static_cast<int>(threadIdx.x % 32), dim = static_cast<int>(args.head_dim);
  const float* norm = is_q ? args.q_norm : args.k_norm;
  if (norm != nullptr) {
    const float ss = sum_of_squares(x, args.head_dim);
    if (lane == 0 && is_non_finite(ss)) set_fault(is_q ? args.q_faults : args.k_faults, row);
    const float mean = ss / static_cast<float>(args.head_dim);
    const float r = 1.0f / square_root(mean + (is_q ? args.q_eps : args.k_eps));
    __syncwarp();
    LOCKSTEP_UNROLL_BY(1)
    for (int i = lane; i < dim; i += 32) x[i] = (x[i] * r) * norm[i];
    __syncwarp();
  }
  const int half = static_cast<int>(args.n_rot) / 2;
  LOCKSTEP_UNROLL_BY(1)
  for (int pair = lane; pair < half; pair += 32) {
    const float c = cos[pair], s = sin[pair];
    float* x0 = x + (args.halves ? pair : 2 * pair);
    float* x1 = x0 + (args.halves ? half : 1);
    const float a = *x0, b = *x1;
    *x0 = math::fma_rn(a, c, -(b * s));
    *x1 = math::fma_rn(b, c, a * s);
  }
  __syncwarp();
}

// Where a row of a KV head is, in the page of its position.
__device__ inline std::byte* kv_row(const DeviceKv& kv, bool is_v, int64_t position, int64_t head) {
  const int64_t place = head * kPagePositions + position % kPagePositions;
  std::byte* page = (is_v ? kv.v_pages : kv.k_pages)[position / kPagePositions];
  return page + place * row_bytes_of(is_v ? kv.v_type : kv.k_type, kv.head_dim);
}

// Of a warp in shared memory, in floats: the head, and its row's cosines and sines.
__host__ __device__ inline int heads_floats(const HeadsArgs& args) {
  return static_cast<int>(args.head_dim + args.n_rot);
}

// A warp has a head of a row: of q, then of k, then of v.
__global__ void heads_kernel(HeadsArgs args) {
  LOCKSTEP_SHARED(shared);
  let_next_launch_start();
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const DeviceKv& kv = args.kv;
  const int dim = static_cast<int>(args.head_dim), half = static_cast<int>(args.n_rot) / 2;
  const int n_head = static_cast<int>(args.n_head), heads = n_head + 2 * kv.n_head_kv;
  const int item = static_cast<int>(blockIdx.x) * kHeadWarps + warp;
  const int row = item / heads;
  const bool there = row < args.rows;
  int head = item % heads;
  const bool is_q = head < n_head, is_v = head >= n_head + kv.n_head_kv;
  if (!is_q) head -= n_head + (is_v ? kv.n_head_kv : 0);
  float* x = reinterpret_cast<float*>(shared) + warp * heads_floats(args);
  // What no launch of this layer makes is fetched while the one before runs.
  const int64_t position = args.place->first_position + row;
  float* cos = x + dim;
  for (int i = lane; there && i < half; i += 32) {
    cos[i] = args.cos[row * half + i];
    cos[half + i] = args.sin[row * half + i];
  }
  wait_for_earlier_launches();
  if (!there) return;
  const float* from =
      is_q ? args.q + (static_cast<int64_t>(row) * n_head + head) * dim
           : (is_v ? args.v : args.k) + (static_cast<int64_t>(row) * kv.n_head_kv + head) * dim;
  for (int i = lane; i < dim; i += 32) x[i] = from[i];
  __syncwarp();
  if (!is_v) turn_head(args, is_q, row, cos, cos + half, x);
  if (is_q) {
    float* to = args.q + (static_cast<int64_t>(row) * n_head + head) * dim;
    for (int i = lane; i < dim; i += 32) to[i] = x[i];
    return;
  }
  std::byte* to = kv_row(kv, is_v, position, head);
  if (write_row(is_v ? kv.v_type : kv.k_type, x, args.head_dim, to)) {
    set_fault(args.write_faults, row);
  }
}

void heads(const HeadsArgs& args, Stream stream) {
  const int64_t items = args.rows * (args.n_head + 2 * args.kv.n_head_kv);
  LOCKSTEP_LAUNCH(heads_kernel, blocks_for(items, kHeadWarps), 32 * kHeadWarps,
                  4 * kHeadWarps * heads_floats(args), stream, args);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
