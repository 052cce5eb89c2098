// What attention's blocks left of each unit of pages, put together in the law's order, and
// quantised for the product that reads it. Few units are merged in one launch; of many pages, spans
// are made first, all at a time.
#pragma once

#include "kernels/cuda/rows.cuh"

namespace lockstep::kernels::cuda {
namespace {

// What is carried from page to page, but for the outputs.
struct Carried {
  float m = 0.0f, l = 0.0f;
  bool started = false;
};

// The law's merge of b into a: the factors of a's and b's sums and outputs.
struct Factors {
  float a, b;
};
__device__ inline Factors merge(Carried& a, const Carried& b) {
  const float m = a.m > b.m ? a.m : b.m;
  const Factors e = {math::exp_nonpos(a.m - m), math::exp_nonpos(b.m - m)};
  a.l = math::fma_rn(b.l, e.b, a.l * e.a);
  a.m = m;
  return e;
}

// Keys that a query at `position` sees of all: from here on.
__device__ inline int64_t first_seen(int64_t position, int64_t window) {
  return window > 0 && position - window + 1 > 0 ? position - window + 1 : 0;
}

// Joins a span's pages: a block has a head of a row and a span, a thread kOwn neighbours of each
// page's floats; l goes as the outputs do. The greatest and the factors are found by a thread a
// page. kDim is the head's size where it is known, else 0.
constexpr int kJoinThreads = 160;  // at most
template <int kDim, int kOwn>
__global__ void __launch_bounds__(kJoinThreads) attention_join_kernel(AttentionJoinArgs args) {
  constexpr int kMost = static_cast<int>(kSpanPages);
  struct alignas(4 * kOwn) Floats {
    float x[kOwn];
  };
  __shared__ float greatest_of_all;
  __shared__ Factors factors[kMost];  // of what is before a page, and of the page
  let_next_launch_start();
  const int floats = static_cast<int>(partial_floats(kDim > 0 ? kDim : args.head_dim));
  const int thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int block = static_cast<int>(blockIdx.x), spans = static_cast<int>(args.spans);
  const int span = block % spans, place = block / spans;  // row·n_head + head
  const int64_t position = args.place->first_position + place / static_cast<int>(args.n_head);
  int first = static_cast<int>(first_seen(position, args.window) / kPagePositions);
  int last = static_cast<int>(position / kPagePositions);
  if (first < span * kMost) first = span * kMost;
  if (last > (span + 1) * kMost - 1) last = (span + 1) * kMost - 1;
  // Those without a page leave at once: others of the launch wait for the launches before it.
  if (first > last) return;
  const int pages = last - first + 1;
  const float* from = args.partials + (place * args.pages + first) * floats;
  float* to = args.out + static_cast<int64_t>(block) * floats;
  Floats x[kMost];
  const auto fetch = [&](int at) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kMost; ++i) {
      if (i < pages) x[i] = *reinterpret_cast<const Floats*>(from + i * floats + at);
    }
  };
  wait_for_earlier_launches();
  if (kOwn * thread < floats) fetch(kOwn * thread);
  if (thread < 32) {
    static_assert(kMost <= 32);
    const float own = from[(thread < pages ? thread : 0) * floats];
    float m = own;  // the greatest of the pages up to this one
    LOCKSTEP_UNROLL
    for (int h = 1; h < kMost; h *= 2) {
      const float other = __shfl_up_sync(kAllLanes, m, static_cast<unsigned>(h));
      if (thread >= h) m = m > other ? m : other;
    }
    Carried before = {__shfl_up_sync(kAllLanes, m, 1u), 0.0f, true};
    if (thread < pages) factors[thread] = merge(before, {own, 0.0f, true});
    if (thread == pages - 1) greatest_of_all = m;
  }
  __syncthreads();
  LOCKSTEP_UNROLL_BY(1)
  for (int at = kOwn * thread; at < floats; at += kOwn * threads) {
    if (kDim == 0 && at != kOwn * thread) fetch(at);
    Floats sum = x[0];
    LOCKSTEP_UNROLL
    for (int i = 1; i < kMost; ++i) {
      if (i >= pages) break;
      const Factors e = factors[i];
      LOCKSTEP_UNROLL
      for (int f = 0; f < kOwn; ++f) sum.x[f] = math::fma_rn(x[i].x[f], e.b, sum.x[f] * e.a);
    }
    if (at == 0) sum.x[0] = greatest_of_all;
    *reinterpret_cast<Floats*>(to + at) = sum;
    if constexpr (kDim > 0) break;
  }
}

void attention_join(const AttentionJoinArgs& args, Stream stream) {
  const auto launch = [&](auto kernel, int own) {
    const auto threads = 32 * static_cast<int>(blocks_for(partial_floats(args.head_dim), 32 * own));
    LOCKSTEP_LAUNCH(kernel, blocks_for(args.rows * args.n_head * args.spans, 1),
                    threads < kJoinThreads ? threads : kJoinThreads, 0, stream, args);
  };
  args.head_dim == 64    ? launch(attention_join_kernel<64, 2>, 2)
  : args.head_dim == 128 ? launch(attention_join_kernel<128, 2>, 2)
  : args.head_dim == 256 ? launch(attention_join_kernel<256, 2>, 2)
                         : launch(attention_join_kernel<0, 1>, 1);
}

// A block has 256 elements of a row of all heads, and folds the units in rounds of at most 16: of
// each head and unit the factors first, by a thread each, then every element by its own.
constexpr int kFoldUnits = static_cast<int>(kSpanPages);
struct FoldShared {
  int heads;  // that 256 neighbouring elements can touch
  int greatest, sums, factors, carried, floats;
};
__host__ __device__ inline FoldShared fold_shared(int64_t head_dim) {
  FoldShared at{};
  at.heads = static_cast<int>((kRowThreads + head_dim - 2) / head_dim) + 1;
  at.greatest = kRowThreads;  // after the row's elements
  at.sums = at.greatest + at.heads * kFoldUnits;
  at.factors = at.sums + at.heads * kFoldUnits;
  at.carried = at.factors + 2 * at.heads * kFoldUnits;
  at.floats = at.carried + 2 * at.heads;
  return at;
}

__global__ void attention_merge_kernel(AttentionMergeArgs args) {
  LOCKSTEP_SHARED(shared_bytes);
  let_next_launch_start();
  const FoldShared at = fold_shared(args.head_dim);
  float* row_at = reinterpret_cast<float*>(shared_bytes);
  float* greatest = row_at + at.greatest;                           // [heads][units]
  float* sums = row_at + at.sums;                                   // [heads][units]
  auto* factors = reinterpret_cast<Factors*>(row_at + at.factors);  // [heads][units]
  float* carried_m = row_at + at.carried;                           // [heads]
  float* carried_l = carried_m + at.heads;                          // [heads]
  const int dim = static_cast<int>(args.head_dim), n_head = static_cast<int>(args.n_head);
  const int width = n_head * dim, blocks = (width + kRowThreads - 1) / kRowThreads;
  const int row = static_cast<int>(blockIdx.x) / blocks;
  const int block = static_cast<int>(blockIdx.x) % blocks;
  const int thread = static_cast<int>(threadIdx.x), element = block * kRowThreads + thread;
  const int first_head = block * kRowThreads / dim;
  const int last_element = (block + 1) * kRowThreads < width ? (block + 1) * kRowThreads : width;
  const int heads = (last_element - 1) / dim - first_head + 1;
  const int head = element / dim - first_head, d = element % dim;
  const int64_t position = args.place->first_position + row;
  const int unit_positions = static_cast<int>(args.unit_pages * kPagePositions);
  const int first = static_cast<int>(first_seen(position, args.window)) / unit_positions;
  const int last = static_cast<int>(position) / unit_positions;
  const float* partials =
      args.partials + (static_cast<int64_t>(row) * n_head + first_head) * args.units * (dim + 2);
  wait_for_earlier_launches();
  float sum = 0.0f;
  for (int unit0 = first; unit0 <= last; unit0 += kFoldUnits) {
    const int units = last - unit0 + 1 < kFoldUnits ? last - unit0 + 1 : kFoldUnits;
    float o[kFoldUnits];
    const float* outputs =
        partials + (static_cast<int64_t>(head) * args.units + unit0) * (dim + 2) + 2 + d;
    LOCKSTEP_UNROLL
    for (int i = 0; i < kFoldUnits; ++i) {
      o[i] = element < width && i < units ? outputs[i * (dim + 2)] : 0.0f;
    }
    const auto each_pair = [&](const auto& use) {
      LOCKSTEP_UNROLL_BY(1)
      for (int pair = thread; pair < heads * kFoldUnits; pair += kRowThreads) {
        if (pair % kFoldUnits < units) use(pair, pair / kFoldUnits, pair % kFoldUnits);
      }
    };
    each_pair([&](int pair, int h, int i) {
      const float* from = partials + (static_cast<int64_t>(h) * args.units + unit0 + i) * (dim + 2);
      greatest[pair] = from[0];
      sums[pair] = from[1];
    });
    __syncthreads();
    // What is before a unit: of this round, and what earlier rounds left. The first has nothing.
    each_pair([&](int pair, int h, int i) {
      const float* own = greatest + h * kFoldUnits;
      Carried before = {unit0 > first ? carried_m[h] : own[0], 0.0f, true};
      LOCKSTEP_UNROLL_BY(1)
      for (int k = 0; k < i; ++k) before.m = before.m > own[k] ? before.m : own[k];
      factors[pair] = merge(before, {own[i], 0.0f, true});
    });
    __syncthreads();
    if (thread < heads) {
      const int pair = thread * kFoldUnits;
      int i = 0;
      float m = carried_m[thread], l = carried_l[thread];
      if (unit0 == first) {
        m = greatest[pair];
        l = sums[pair];
        i = 1;
      }
      LOCKSTEP_UNROLL_BY(1)
      for (; i < units; ++i) {
        m = m > greatest[pair + i] ? m : greatest[pair + i];
        l = math::fma_rn(sums[pair + i], factors[pair + i].b, l * factors[pair + i].a);
      }
      carried_m[thread] = m;
      carried_l[thread] = l;
    }
    if (element < width) {
      if (unit0 == first) sum = o[0];
      LOCKSTEP_UNROLL
      for (int i = 0; i < kFoldUnits; ++i) {
        if (i >= units || (i == 0 && unit0 == first)) continue;
        const Factors e = factors[head * kFoldUnits + i];
        sum = math::fma_rn(o[i], e.b, sum * e.a);
      }
    }
    __syncthreads();
  }
  if (element < width) {
    const float y = sum / carried_l[head];
    row_at[thread] = y;
    if (args.out != nullptr) args.out[static_cast<int64_t>(row) * width + element] = y;
  }
  __syncthreads();
  const auto element4 = [&](int k) {
    return *reinterpret_cast<const Floats4*>(row_at + k % kRowThreads);
  };
  const int warp = thread / 32, begin = block * kRowThreads;
  if (args.forms[0] && warp < 2 && begin + 128 * warp < width) {
    quantize_part<32>(element4, row, width, begin + 128 * warp, args.quantized[0], args.out_faults);
  }
  if (args.forms[1] && warp == 2) {
    quantize_part<256>(element4, row, width, begin, args.quantized[1], args.out_faults);
  }
}

void attention_merge(const AttentionMergeArgs& args, Stream stream) {
  const int64_t width = args.n_head * args.head_dim;
  LOCKSTEP_LAUNCH(attention_merge_kernel, blocks_for(width, kRowThreads) * blocks_for(args.rows, 1),
                  kRowThreads, 4 * fold_shared(args.head_dim).floats, stream, args);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
