// What is done with rows of logits where they are: whether they are finite, and which are their
// greatest, so that choices that look at no others need not move the rows.
#pragma once

#include "kernels/cuda/device_code.cuh"

namespace lockstep::kernels::cuda {
namespace {

// Looks for elements that are not finite and, where wanted, the greatest of each stretch of a row;
// a block has a stretch.
constexpr int kCheckThreads = 128;

__global__ void check_logits_kernel(CheckLogitsDeviceArgs args) {
  __shared__ float of_warp[kCheckThreads / 32];
  after_earlier_launches();
  const auto width = static_cast<int>(args.width);
  const auto stretch = static_cast<int>(logits_stretch(args.width));
  const int stretches = (width + stretch - 1) / stretch;
  const int row = static_cast<int>(blockIdx.x) / stretches;
  const int own = static_cast<int>(blockIdx.x) % stretches;
  const int begin = own * stretch, thread = static_cast<int>(threadIdx.x);
  const int end = begin + stretch < width ? begin + stretch : width;
  const float* x = args.x + static_cast<int64_t>(row) * width;
  bool bad = false;
  float most = -FLT_MAX;
  LOCKSTEP_UNROLL_BY(4)
  for (int i = begin + thread; i < end; i += kCheckThreads) {
    bad |= is_non_finite(x[i]);
    most = x[i] > most ? x[i] : most;
  }
  if (bad) set_fault(args.faults, row);
  if (args.maxima == nullptr) return;
  LOCKSTEP_UNROLL
  for (int h = 16; h >= 1; h /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, most, h);
    most = other > most ? other : most;
  }
  if (thread % 32 == 0) of_warp[thread / 32] = most;
  __syncthreads();
  if (thread != 0) return;
  LOCKSTEP_UNROLL
  for (int w = 1; w < kCheckThreads / 32; ++w) most = of_warp[w] > most ? of_warp[w] : most;
  args.maxima[blockIdx.x] = most;
}

void check_logits(const CheckLogitsDeviceArgs& args, Stream stream) {
  LOCKSTEP_LAUNCH(check_logits_kernel, blocks_for(args.rows * logits_stretches(args.width), 1),
                  kCheckThreads, 0, stream, args);
}

// A block has a row. At least `wanted` elements are no less than the wanted-th greatest of the
// stretches' maxima: all those are listed, in whatever order, while there is room, and counted.
constexpr int kGreatestThreads = 1024;
static_assert(kGreatestThreads == 4 * kMostStretches);

__global__ void greatest_logits_kernel(GreatestLogitsArgs args) {
  __shared__ float maxima[kMostStretches];
  __shared__ float bound;
  __shared__ int count;
  after_earlier_launches();
  const auto width = static_cast<int>(args.width);
  const auto stretch = static_cast<int>(logits_stretch(args.width));
  const int stretches = (width + stretch - 1) / stretch;
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  if (thread < stretches) maxima[thread] = args.maxima[row * stretches + thread];
  if (thread == 0) {
    count = 0;
    bound = -FLT_MAX;
  }
  __syncthreads();
  // Ranks differ, so that one stretch has the bound; fewer stretches than wanted have none. Four
  // threads rank a stretch.
  const int ranked = thread / 4;
  const float own_most = ranked < stretches ? maxima[ranked] : 0.0f;
  int rank = 0;
  LOCKSTEP_UNROLL_BY(8)
  for (int i = thread % 4; i < stretches; i += 4) {
    rank += maxima[i] > own_most || (maxima[i] == own_most && i < ranked) ? 1 : 0;
  }
  rank += __shfl_xor_sync(kAllLanes, rank, 1);
  rank += __shfl_xor_sync(kAllLanes, rank, 2);
  if (ranked < stretches && rank == args.wanted - 1) bound = own_most;
  __syncthreads();
  GreatestLogits& out = args.out[row];
  const float* x = args.x + static_cast<int64_t>(row) * width;
  for (int own = thread / 32; own < stretches; own += kGreatestThreads / 32) {
    if (maxima[own] < bound) continue;
    const int begin = own * stretch;
    const int end = begin + stretch < width ? begin + stretch : width;
    LOCKSTEP_UNROLL_BY(8)
    for (int i = begin + thread % 32; i < end; i += 32) {
      const float value = x[i];
      if (value < bound) continue;
      const int at = atomicAdd(&count, 1);
      if (at < kGreatestRoom) out.list[at] = {value, i};
    }
  }
  __syncthreads();
  if (thread == 0) out.count = count;
}

void greatest_logits(const GreatestLogitsArgs& args, Stream stream) {
  LOCKSTEP_LAUNCH(greatest_logits_kernel, blocks_for(args.rows, 1), kGreatestThreads, 0, stream,
                  args);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
