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

// Joins a span's pages: a block has a head of a row and a span. Greatest and factors are found by a
// thread a page; the outputs then need a product and an fma a page, in the law's order.
constexpr int kJoinThreads = 128;

__global__ void __launch_bounds__(kJoinThreads) attention_join_kernel(AttentionJoinArgs args) {
  constexpr int kMost = static_cast<int>(kSpanPages);
  __shared__ float greatest[kMost], sums[kMost];
  __shared__ Factors factors[kMost];  // of what is before a page, and of the page
  after_earlier_launches();
  const int dim = static_cast<int>(args.head_dim), thread = static_cast<int>(threadIdx.x);
  const auto block = static_cast<int64_t>(blockIdx.x);
  const int64_t span = block % args.spans, place = block / args.spans;  // row·n_head + head
  const int64_t position = args.place->first_position + place / args.n_head;
  int64_t first = first_seen(position, args.window) / kPagePositions;
  int64_t last = position / kPagePositions;
  if (first < span * kSpanPages) first = span * kSpanPages;
  if (last > (span + 1) * kSpanPages - 1) last = (span + 1) * kSpanPages - 1;
  if (first > last) return;
  const int pages = static_cast<int>(last - first) + 1;
  const float* from = args.partials + (place * args.pages + first) * (dim + 2);
  float* to = args.out + block * (dim + 2);
  float o[kMost];
  const auto fetch = [&](int d) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kMost; ++i) {
      o[i] = d < dim && i < pages ? from[i * (dim + 2) + 2 + d] : 0.0f;
    }
  };
  fetch(thread);
  if (thread < pages) {
    greatest[thread] = from[thread * (dim + 2)];
    sums[thread] = from[thread * (dim + 2) + 1];
  }
  __syncthreads();
  if (thread < pages) {
    Carried before = {greatest[0], 0.0f, true};
    LOCKSTEP_UNROLL_BY(1)
    for (int i = 1; i < thread; ++i) {
      before.m = before.m > greatest[i] ? before.m : greatest[i];
    }
    factors[thread] = merge(before, {greatest[thread], 0.0f, true});
  }
  __syncthreads();
  if (thread == 0) {
    Carried all = {greatest[0], sums[0], true};
    for (int i = 1; i < pages; ++i) {
      all.m = all.m > greatest[i] ? all.m : greatest[i];
      all.l = math::fma_rn(sums[i], factors[i].b, all.l * factors[i].a);
    }
    to[0] = all.m;
    to[1] = all.l;
  }
  for (int d = thread; d < dim; d += kJoinThreads) {
    if (d != thread) fetch(d);
    float sum = o[0];
    LOCKSTEP_UNROLL
    for (int i = 1; i < kMost; ++i) {
      if (i < pages) sum = math::fma_rn(o[i], factors[i].b, sum * factors[i].a);
    }
    to[2 + d] = sum;
  }
}

void attention_join(const AttentionJoinArgs& args, Stream stream) {
  LOCKSTEP_LAUNCH(attention_join_kernel, blocks_for(args.rows * args.n_head * args.spans, 1),
                  kJoinThreads, 0, stream, args);
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
  after_earlier_launches();
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
