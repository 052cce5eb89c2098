// Whole rows between two products: residual additions and norms, gated activations, and the int8
// form of what comes out.
#pragma once

#include "kernels/cuda/device_code.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kRowThreads = 256;  // the lanes of an RMSNorm
constexpr int kRowWarps = kRowThreads / 32;

struct alignas(16) Floats4 {
  float x[4];
};

// A block's factors from its greatest magnitude.
struct BlockFactors {
  bool bad;
  float r, d;
};
__device__ inline BlockFactors block_factors(int32_t most) {
  const float a = math::f32_from_bits(static_cast<uint32_t>(most));
  const bool bad = is_non_finite(a);
  const bool zero = bad || a < 0x1p-100f;
  return {bad, zero ? 0.0f : 127.0f / a, zero ? 0.0f : a / 127.0f};
}

// Codes of four elements, and their sum. r is 0 for a block of zeros, whose elements may be
// anything.
__device__ inline int32_t quantize_four(const float* x, const BlockFactors& factors, int8_t* to) {
  uint32_t word = 0;
  int32_t sum = 0;
  LOCKSTEP_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int8_t code = factors.r == 0.0f ? int8_t{0} : math::round_even_i8(x[i] * factors.r);
    word |= static_cast<uint32_t>(static_cast<uint8_t>(code)) << (8 * i);
    sum += code;
  }
  *reinterpret_cast<uint32_t*>(to) = word;
  return sum;
}

// A warp quantises the part of a row of n elements that begins at element `first`: four blocks of
// 32 or one of 256. element4(k) is Floats4 of elements k … k + 3; those from n on are not asked
// for. Max and sums are of integers, so their order is free.
template <int kBlock, typename Elements>
__device__ inline void quantize_part(const Elements& element4, int row, int n, int first,
                                     const DeviceActivations& out, uint8_t* faults) {
  constexpr int kFours = kBlock == 256 ? 2 : 1;  // a lane's
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int segments = (n + 255) / 256;
  const int k = first + 4 * kFours * lane;
  const bool there = k < n;
  Floats4 x[kFours] = {};
  int32_t most = 0;  // magnitudes order as their bits do, what is not finite on top
  if (there) {
    LOCKSTEP_UNROLL
    for (int f = 0; f < kFours; ++f) {
      x[f] = element4(k + 4 * f);
      LOCKSTEP_UNROLL
      for (int i = 0; i < 4; ++i) {
        const auto magnitude = static_cast<int32_t>(math::bits_of(x[f].x[i]) & 0x7FFFFFFFu);
        most = magnitude > most ? magnitude : most;
      }
    }
  }
  LOCKSTEP_UNROLL
  for (int h = kBlock == 256 ? 16 : 4; h >= 1; h /= 2) {
    const int32_t other = __shfl_xor_sync(kAllLanes, most, h);
    most = other > most ? other : most;
  }
  const BlockFactors factors = block_factors(most);
  const int out_row = row + static_cast<int>(out.first_row);
  int32_t sum = 0;
  if (there) {
    LOCKSTEP_UNROLL
    for (int f = 0; f < kFours; ++f) {
      sum += quantize_four(x[f].x, factors, out.q + activation_place(out_row, k + 4 * f, segments));
    }
  }
  if constexpr (kBlock == 256) {
    if (factors.bad && lane == 0) set_fault(faults, row);
    sum += __shfl_xor_sync(kAllLanes, sum, 1);  // two lanes have 16 elements
    const int64_t block = static_cast<int64_t>(out_row) * segments + first / 256;
    if (lane % 2 == 0) {
      int8_t* digits = out.digits + block * 32;
      const int32_t high = (sum + 64) >> 7;
      digits[lane / 2] = static_cast<int8_t>(sum - 128 * high);
      digits[16 + lane / 2] = static_cast<int8_t>(high);
    }
    if (lane == 0) out.d[block] = factors.d;
  } else {
    LOCKSTEP_UNROLL
    for (int h = 4; h >= 1; h /= 2) sum += __shfl_xor_sync(kAllLanes, sum, h);
    if (there && lane % 8 == 0) {
      if (factors.bad) set_fault(faults, row);
      const int64_t block = static_cast<int64_t>(out_row) * segments * 8 + k / 32;
      out.d[block] = factors.d;
      out.d_sums[block] = factors.d * static_cast<float>(sum);
    }
  }
}

// Elements that a warp takes at a time, and how many times that is a row.
template <int kBlock>
constexpr int kPartElements = kBlock == 256 ? 256 : 128;
template <int kBlock>
__host__ __device__ inline int parts_of(int64_t n) {
  return static_cast<int>((n + kPartElements<kBlock> - 1) / kPartElements<kBlock>);
}

template <int kBlock>
__global__ void quantize_kernel(QuantizeArgs args) {
  after_earlier_launches();
  const int n = static_cast<int>(args.n), parts = parts_of<kBlock>(args.n);
  const int item = static_cast<int>(blockIdx.x * kRowWarps + threadIdx.x / 32);
  const int row = item / parts;
  if (row >= args.rows) return;
  const float* x = args.x + static_cast<int64_t>(row) * n;
  quantize_part<kBlock>([&](int k) { return *reinterpret_cast<const Floats4*>(x + k); }, row, n,
                        item % parts * kPartElements<kBlock>, args.out, args.faults);
}

void quantize(const QuantizeArgs& args, Stream stream) {
  if (args.superblocks) {
    LOCKSTEP_LAUNCH(quantize_kernel<256>, blocks_for(args.rows * parts_of<256>(args.n), kRowWarps),
                    kRowThreads, 0, stream, args);
  } else {
    LOCKSTEP_LAUNCH(quantize_kernel<32>, blocks_for(args.rows * parts_of<32>(args.n), kRowWarps),
                    kRowThreads, 0, stream, args);
  }
}

// The row in `row_at`, which the block's warps share.
template <int kBlock>
__device__ inline void quantize_row(const float* row_at, int row, int n,
                                    const DeviceActivations& out, uint8_t* faults) {
  for (int part = static_cast<int>(threadIdx.x / 32); part < parts_of<kBlock>(n);
       part += static_cast<int>(blockDim.x / 32)) {
    quantize_part<kBlock>([&](int k) { return *reinterpret_cast<const Floats4*>(row_at + k); }, row,
                          n, part * kPartElements<kBlock>, out, faults);
  }
}

// tree(256) of lanes in shared memory; all threads have the sum's bits.
__device__ inline float tree256(const float* lanes) {
  const float* at = lanes + threadIdx.x % 32;
  const float a = (at[0] + at[128]) + (at[64] + at[192]);
  const float b = (at[32] + at[160]) + (at[96] + at[224]);
  float sum = a + b;
  LOCKSTEP_UNROLL
  for (int h = 16; h >= 1; h /= 2) sum = sum + __shfl_xor_sync(kAllLanes, sum, h);
  return sum;
}
// Of the block's 256 threads, through `lanes`, which is used once.
__device__ inline float tree256(float own, float* lanes) {
  lanes[threadIdx.x] = own;
  __syncthreads();
  return tree256(lanes);
}

__device__ inline float norm_factor(float ss, int64_t n, float eps) {
  return 1.0f / square_root(ss / static_cast<float>(n) + eps);
}

// A block has a row of up to 256·kOwn elements: thread t has elements t, t + 256, …, in registers,
// and the law's lane t of both norms. All reads of the row go on at once, and the norms' weights
// are read while the launch before still runs.
template <int kOwn>
__global__ void row_chain_kernel(RowChainArgs args) {
  LOCKSTEP_SHARED(shared);
  let_next_launch_start();
  float* row_at = reinterpret_cast<float*>(shared);
  float* first_lanes = row_at + (args.width + 3) / 4 * 4;
  float* second_lanes = first_lanes + kRowThreads;
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int width = static_cast<int>(args.width);
  float weight[kOwn], branch_weight[kOwn], branch[kOwn];
  LOCKSTEP_UNROLL
  for (int k = 0; k < kOwn; ++k) {
    const int i = thread + k * kRowThreads;
    weight[k] = args.norm != nullptr && i < width ? args.norm[i] : 0.0f;
    branch_weight[k] = args.branch_norm != nullptr && i < width ? args.branch_norm[i] : 0.0f;
  }
  wait_for_earlier_launches();
  const int64_t at = static_cast<int64_t>(row) * width;
  const float* source =
      args.source + (args.select != nullptr ? args.select[row] : row) * static_cast<int64_t>(width);
  float h[kOwn];
  LOCKSTEP_UNROLL
  for (int k = 0; k < kOwn; ++k) {
    const int i = thread + k * kRowThreads;
    h[k] = i < width ? source[i] : 0.0f;
    branch[k] = args.branch != nullptr && i < width ? args.branch[at + i] : 0.0f;
  }
  float branch_factor = 0.0f;
  if (args.branch_norm != nullptr) {
    float sum = 0.0f;
    LOCKSTEP_UNROLL
    for (int k = 0; k < kOwn; ++k) {
      const int i = thread + k * kRowThreads;
      if (i >= width) break;
      sum = math::fma_rn(branch[k], branch[k], sum);
    }
    const float ss = tree256(sum, first_lanes);
    if (thread == 0 && is_non_finite(ss)) set_fault(args.branch_faults, row);
    branch_factor = norm_factor(ss, args.width, args.branch_eps);
  }
  float sum = 0.0f;
  LOCKSTEP_UNROLL
  for (int k = 0; k < kOwn; ++k) {
    const int i = thread + k * kRowThreads;
    if (i >= width) break;
    float x = h[k];
    if (args.branch != nullptr) {
      float b = branch[k];
      if (args.branch_norm != nullptr) b = (b * branch_factor) * branch_weight[k];
      x = x + b;
    }
    if (args.h != nullptr) args.h[at + i] = x;
    h[k] = x;
    if (args.norm == nullptr) row_at[i] = x;
    sum = math::fma_rn(x, x, sum);
  }
  if (args.norm != nullptr) {
    const float ss = tree256(sum, second_lanes);
    if (thread == 0 && is_non_finite(ss)) set_fault(args.norm_faults, row);
    const float r = norm_factor(ss, args.width, args.eps);
    LOCKSTEP_UNROLL
    for (int k = 0; k < kOwn; ++k) {
      const int i = thread + k * kRowThreads;
      if (i >= width) break;
      const float y = (h[k] * r) * weight[k];
      row_at[i] = y;
      if (args.x != nullptr) args.x[at + i] = y;
    }
  }
  __syncthreads();
  if (args.forms[0]) quantize_row<32>(row_at, row, width, args.out[0], args.out_faults);
  if (args.forms[1]) quantize_row<256>(row_at, row, width, args.out[1], args.out_faults);
}

// The sum of squares of the row in `row_at` by the law's 256 lanes, which the block's first threads
// have; all threads have its bits. All have written their elements before, and the row may be
// written again after it. `lanes` is shared and used once.
__device__ inline float sum_of_squares(const float* row_at, int width, float* lanes) {
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kRowThreads) {
    float sum = 0.0f;
    LOCKSTEP_UNROLL_BY(4)
    for (int i = thread; i < width; i += kRowThreads) sum = math::fma_rn(row_at[i], row_at[i], sum);
    lanes[thread] = sum;
  }
  __syncthreads();
  return tree256(lanes);
}

// The same for rows that are too long for the registers of 256 threads: a thread has kFours times
// four neighbours, and the lanes' sums go through shared memory. kFours 0 is for any row.
template <int kThreads, int kFours>
__global__ void __launch_bounds__(kThreads) long_row_chain_kernel(RowChainArgs args) {
  constexpr int kTurns = kFours > 0 ? kFours : 1, kOwn = kFours > 0 ? 4 : 1;
  LOCKSTEP_SHARED(shared);
  let_next_launch_start();
  float* row_at = reinterpret_cast<float*>(shared);
  float* first_lanes = row_at + (args.width + 3) / 4 * 4;
  float* second_lanes = first_lanes + kRowThreads;
  const int row = static_cast<int>(blockIdx.x), thread = static_cast<int>(threadIdx.x);
  const int width = static_cast<int>(args.width);
  const int turns = kFours > 0 ? kFours : (width + kThreads - 1) / kThreads;
  struct alignas(4 * kOwn) Own {
    float x[kOwn];
  };
  const auto place = [&](int k) { return (k * kThreads + thread) * kOwn; };
  const auto get = [](const float* at) { return *reinterpret_cast<const Own*>(at); };
  Own h[kTurns], branch[kTurns], weight[kTurns], branch_weight[kTurns];
  if constexpr (kFours > 0) {
    LOCKSTEP_UNROLL
    for (int k = 0; k < kTurns; ++k) {
      const bool there = place(k) < width;
      weight[k] = there && args.norm != nullptr ? get(args.norm + place(k)) : Own{};
      branch_weight[k] =
          there && args.branch_norm != nullptr ? get(args.branch_norm + place(k)) : Own{};
    }
  }
  wait_for_earlier_launches();
  const float* source =
      args.source + (args.select != nullptr ? args.select[row] : row) * static_cast<int64_t>(width);
  const float* branch_at =
      args.branch != nullptr ? args.branch + static_cast<int64_t>(row) * width : nullptr;
  if constexpr (kFours > 0) {
    LOCKSTEP_UNROLL
    for (int k = 0; k < kTurns; ++k) {
      const bool there = place(k) < width;
      h[k] = there ? get(source + place(k)) : Own{};
      branch[k] = there && branch_at != nullptr ? get(branch_at + place(k)) : Own{};
    }
  }
  // Turn k of h and so on, wherever it is.
  const auto own = [&](Own(&held)[kTurns], const float* at, int k) {
    if constexpr (kFours > 0) {
      return held[k];
    } else {
      return get(at + place(k));
    }
  };
  const auto each_turn = [&](const auto& use) {
    LOCKSTEP_UNROLL
    for (int k = 0; k < turns; ++k) {
      if (place(k) < width) use(k);
    }
  };
  const auto keep = [&](int k, const Own& x) { *reinterpret_cast<Own*>(row_at + place(k)) = x; };
  float branch_factor = 0.0f;
  if (args.branch_norm != nullptr) {
    each_turn([&](int k) { keep(k, own(branch, branch_at, k)); });
    const float ss = sum_of_squares(row_at, width, first_lanes);
    if (thread == 0 && is_non_finite(ss)) set_fault(args.branch_faults, row);
    branch_factor = norm_factor(ss, args.width, args.branch_eps);
  }
  each_turn([&](int k) {
    Own x = own(h, source, k);
    if (branch_at != nullptr) {
      Own b = own(branch, branch_at, k);
      if (args.branch_norm != nullptr) {
        const Own w = own(branch_weight, args.branch_norm, k);
        LOCKSTEP_UNROLL
        for (int i = 0; i < kOwn; ++i) b.x[i] = (b.x[i] * branch_factor) * w.x[i];
      }
      LOCKSTEP_UNROLL
      for (int i = 0; i < kOwn; ++i) x.x[i] = x.x[i] + b.x[i];
    }
    if (args.h != nullptr) {
      *reinterpret_cast<Own*>(args.h + static_cast<int64_t>(row) * width + place(k)) = x;
    }
    if constexpr (kFours > 0) h[k] = x;
    keep(k, x);
  });
  if (args.norm != nullptr) {
    const float ss = sum_of_squares(row_at, width, second_lanes);
    if (thread == 0 && is_non_finite(ss)) set_fault(args.norm_faults, row);
    const float r = norm_factor(ss, args.width, args.eps);
    each_turn([&](int k) {
      Own x = own(h, row_at, k);
      const Own w = own(weight, args.norm, k);
      LOCKSTEP_UNROLL
      for (int i = 0; i < kOwn; ++i) x.x[i] = (x.x[i] * r) * w.x[i];
      keep(k, x);
      if (args.x != nullptr) {
        *reinterpret_cast<Own*>(args.x + static_cast<int64_t>(row) * width + place(k)) = x;
      }
    });
  }
  __syncthreads();
  if (args.forms[0]) quantize_row<32>(row_at, row, width, args.out[0], args.out_faults);
  if (args.forms[1]) quantize_row<256>(row_at, row, width, args.out[1], args.out_faults);
}

void row_chain(const RowChainArgs& args, Stream stream) {
  const auto launch = [&](auto kernel, int threads) {
    const auto shared = static_cast<int>(4 * ((args.width + 3) / 4 * 4 + 2 * kRowThreads));
    LOCKSTEP_LAUNCH(kernel, blocks_for(args.rows, 1), threads, shared, stream, args);
  };
  constexpr int kMany = 1024;
  if (args.width <= 4 * kRowThreads) {
    launch(row_chain_kernel<4>, kRowThreads);
  } else if (args.width <= 16 * kRowThreads) {
    launch(row_chain_kernel<16>, kRowThreads);
  } else if (args.width % 4 == 0 && args.width <= 8 * kMany) {
    launch(long_row_chain_kernel<kMany, 2>, kMany);
  } else {
    launch(long_row_chain_kernel<kRowThreads, 0>, kRowThreads);
  }
}

constexpr int kActWarps = 2;  // narrow passes have few parts: over many multiprocessors

template <int kBlock, bool kGelu>
__global__ void act_quantize_kernel(ActQuantizeArgs args) {
  let_next_launch_start();
  const GatedActDeviceArgs& act = args.act;
  const int n = static_cast<int>(act.width), parts = parts_of<kBlock>(act.width);
  const int item = static_cast<int>(blockIdx.x * kActWarps + threadIdx.x / 32);
  const int row = item / parts;
  wait_for_earlier_launches();
  if (row >= act.rows) return;
  const auto element4 = [&](int k) {
    const int64_t at = static_cast<int64_t>(row) * n + k;
    const Floats4 gate = *reinterpret_cast<const Floats4*>(act.gate + at);
    const Floats4 up = *reinterpret_cast<const Floats4*>(act.up + at);
    Floats4 y;
    LOCKSTEP_UNROLL
    for (int i = 0; i < 4; ++i) {
      if (is_non_finite(gate.x[i])) set_fault(act.faults, row);
      y.x[i] = (kGelu ? math::gelu(gate.x[i]) : math::silu(gate.x[i])) * up.x[i];
    }
    if (act.out != nullptr) *reinterpret_cast<Floats4*>(act.out + at) = y;
    return y;
  };
  quantize_part<kBlock>(element4, row, n, item % parts * kPartElements<kBlock>, args.out,
                        args.out_faults);
}

template <int kBlock>
void act_quantize_in(const ActQuantizeArgs& args, Stream stream) {
  const auto launch = [&](auto kernel) {
    LOCKSTEP_LAUNCH(kernel, blocks_for(args.act.rows * parts_of<kBlock>(args.act.width), kActWarps),
                    32 * kActWarps, 0, stream, args);
  };
  args.act.gelu ? launch(act_quantize_kernel<kBlock, true>)
                : launch(act_quantize_kernel<kBlock, false>);
}

void act_quantize(const ActQuantizeArgs& args, Stream stream) {
  args.superblocks ? act_quantize_in<256>(args, stream) : act_quantize_in<32>(args, stream);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
