// Whole rows between two products: residual additions and norms, gated activations, and the int8
// form of what comes out.
#pragma once

#include "kernels/cuda/device_code.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kRowThreads = 256;  // the lanes of an RMSNorm
constexpr int kRowWarps = kRowThreads / 32;

// A warp quantises block `block` of a row of n elements; element(i) is element i of the block. Max
// and sums are of integers, so their order is free.
template <int kBlock, typename Element>
__device__ inline void quantize_block(const Element& element, int64_t row, int64_t n, int64_t block,
                                      const DeviceActivations& out, uint8_t* faults) {
  constexpr int kOwn = kBlock / 32;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t segments = segments_of(n);
  float x[kOwn];
  int32_t most = 0;  // magnitudes order as their bits do, what is not finite on top
  LOCKSTEP_UNROLL
  for (int i = 0; i < kOwn; ++i) {
    x[i] = element(lane * kOwn + i);
    const auto magnitude = static_cast<int32_t>(math::bits_of(x[i]) & 0x7FFFFFFFu);
    most = magnitude > most ? magnitude : most;
  }
  LOCKSTEP_UNROLL
  for (int h = 16; h >= 1; h /= 2) {
    const int32_t other = __shfl_xor_sync(kAllLanes, most, h);
    most = other > most ? other : most;
  }
  const float a = math::f32_from_bits(static_cast<uint32_t>(most));
  const bool bad = is_non_finite(a);
  if (bad && lane == 0) set_fault(faults, row);
  const bool zero = bad || a < 0x1p-100f;
  const float r = zero ? 0.0f : 127.0f / a;
  const float d = zero ? 0.0f : a / 127.0f;
  int8_t* q = out.q + row * segments * 256;
  int32_t sum = 0;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kOwn; ++i) {
    const int8_t code = zero ? int8_t{0} : math::round_even_i8(x[i] * r);
    q[activation_place(block * kBlock + lane * kOwn + i)] = code;
    sum += code;
  }
  if constexpr (kBlock == 256) {
    sum += __shfl_xor_sync(kAllLanes, sum, 1);  // two threads have 16 elements
    if (lane % 2 == 0) {
      int8_t* digits = out.digits + (row * segments + block) * 32;
      const int32_t high = (sum + 64) >> 7;
      digits[lane / 2] = static_cast<int8_t>(sum - 128 * high);
      digits[16 + lane / 2] = static_cast<int8_t>(high);
    }
    if (lane == 0) out.d[row * segments + block] = d;
  } else {
    LOCKSTEP_UNROLL
    for (int h = 16; h >= 1; h /= 2) sum += __shfl_xor_sync(kAllLanes, sum, h);
    if (lane == 0) {
      out.d[row * segments * 8 + block] = d;
      out.d_sums[row * segments * 8 + block] = d * static_cast<float>(sum);
    }
  }
}

template <int kBlock>
__global__ void quantize_kernel(QuantizeArgs args) {
  after_earlier_launches();
  const int64_t blocks = args.n / kBlock;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kRowWarps + threadIdx.x / 32;
  if (item >= args.rows * blocks) return;
  const float* x = args.x + item * kBlock;
  quantize_block<kBlock>([&](int i) { return x[i]; }, item / blocks, args.n, item % blocks,
                         args.out, args.faults);
}

void quantize(const QuantizeArgs& args, Stream stream) {
  const unsigned blocks =
      blocks_for(args.rows * (args.n / (args.superblocks ? 256 : 32)), kRowWarps);
  if (args.superblocks) {
    LOCKSTEP_LAUNCH(quantize_kernel<256>, blocks, kRowThreads, 0, stream, args);
  } else {
    LOCKSTEP_LAUNCH(quantize_kernel<32>, blocks, kRowThreads, 0, stream, args);
  }
}

// Blocks of the row in `row`, shared by the block's warps.
template <int kBlock>
__device__ inline void quantize_row(const float* row, int64_t index, int64_t n,
                                    const DeviceActivations& out, uint8_t* faults) {
  for (int64_t b = threadIdx.x / 32; b < n / kBlock; b += kRowWarps) {
    quantize_block<kBlock>([&](int i) { return row[b * kBlock + i]; }, index, n, b, out, faults);
  }
}

// tree(256) of the block's threads; all have the sum's bits. `lanes` is shared and used once.
__device__ inline float tree256(float own, float* lanes) {
  lanes[threadIdx.x] = own;
  __syncthreads();
  const float* at = lanes + threadIdx.x % 32;
  const float a = (at[0] + at[128]) + (at[64] + at[192]);
  const float b = (at[32] + at[160]) + (at[96] + at[224]);
  float sum = a + b;
  LOCKSTEP_UNROLL
  for (int h = 16; h >= 1; h /= 2) sum = sum + __shfl_xor_sync(kAllLanes, sum, h);
  return sum;
}

__device__ inline float norm_factor(float ss, int64_t n, float eps) {
  return 1.0f / square_root(ss / static_cast<float>(n) + eps);
}

// A block has a row; thread t has elements t, t + 256, …, and the law's lane t of both norms.
__global__ void row_chain_kernel(RowChainArgs args) {
  LOCKSTEP_SHARED(shared);
  float* row_at = reinterpret_cast<float*>(shared);
  float* first_lanes = row_at + args.width;
  float* second_lanes = first_lanes + kRowThreads;
  after_earlier_launches();
  const int64_t row = blockIdx.x;
  const int thread = static_cast<int>(threadIdx.x);
  const float* source = args.source + (args.select ? args.select[row] : row) * args.width;
  const int64_t at = row * args.width;
  float sum = 0.0f;
  float branch_factor = 0.0f;
  if (args.branch_norm != nullptr) {
    float branch_sum = 0.0f;
    for (int64_t i = thread; i < args.width; i += kRowThreads) {
      const float x = args.branch[at + i];
      branch_sum = math::fma_rn(x, x, branch_sum);
    }
    const float ss = tree256(branch_sum, first_lanes);
    if (thread == 0 && is_non_finite(ss)) set_fault(args.branch_faults, row);
    branch_factor = norm_factor(ss, args.width, args.branch_eps);
  }
  for (int64_t i = thread; i < args.width; i += kRowThreads) {
    float h = source[i];
    if (args.branch != nullptr) {
      float b = args.branch[at + i];
      if (args.branch_norm != nullptr) b = (b * branch_factor) * args.branch_norm[i];
      h = h + b;
    }
    if (args.h != nullptr) args.h[at + i] = h;
    row_at[i] = h;
    sum = math::fma_rn(h, h, sum);
  }
  if (args.norm != nullptr) {
    const float ss = tree256(sum, second_lanes);
    if (thread == 0 && is_non_finite(ss)) set_fault(args.norm_faults, row);
    const float r = norm_factor(ss, args.width, args.eps);
    for (int64_t i = thread; i < args.width; i += kRowThreads) {
      const float y = (row_at[i] * r) * args.norm[i];
      row_at[i] = y;
      if (args.x != nullptr) args.x[at + i] = y;
    }
  }
  __syncthreads();
  if (args.forms[0]) quantize_row<32>(row_at, row, args.width, args.out[0], args.out_faults);
  if (args.forms[1]) quantize_row<256>(row_at, row, args.width, args.out[1], args.out_faults);
}

void row_chain(const RowChainArgs& args, Stream stream) {
  const auto shared = static_cast<int>(4 * (args.width + 2 * kRowThreads));
  LOCKSTEP_LAUNCH(row_chain_kernel, blocks_for(args.rows, 1), kRowThreads, shared, stream, args);
}

template <int kBlock>
__global__ void act_quantize_kernel(ActQuantizeArgs args) {
  after_earlier_launches();
  const GatedActDeviceArgs& act = args.act;
  const int64_t blocks = act.width / kBlock;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kRowWarps + threadIdx.x / 32;
  if (item >= act.rows * blocks) return;
  const int64_t row = item / blocks;
  const auto element = [&](int i) {
    const int64_t at = item * kBlock + i;
    const float gate = act.gate[at];
    if (is_non_finite(gate)) set_fault(act.faults, row);
    const float x = (act.gelu ? math::gelu(gate) : math::silu(gate)) * act.up[at];
    if (act.out != nullptr) act.out[at] = x;
    return x;
  };
  quantize_block<kBlock>(element, row, act.width, item % blocks, args.out, args.out_faults);
}

void act_quantize(const ActQuantizeArgs& args, Stream stream) {
  const int64_t blocks = args.act.width / (args.superblocks ? 256 : 32);
  const unsigned grid = blocks_for(args.act.rows * blocks, kRowWarps);
  if (args.superblocks) {
    LOCKSTEP_LAUNCH(act_quantize_kernel<256>, grid, kRowThreads, 0, stream, args);
  } else {
    LOCKSTEP_LAUNCH(act_quantize_kernel<32>, grid, kRowThreads, 0, stream, args);
  }
}

}  // namespace
}  // namespace lockstep::kernels::cuda
