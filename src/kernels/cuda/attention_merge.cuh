// What attention's blocks left of each unit of pages, put together in the law's order, and quantised
// for the product that reads it. Few units are merged in one launch; of many pages, spans are made
// first, all at a time.
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

// Joins a span's pages: a block has a head of a row and a span. Greatest and factors are found
// page by page in the law's order, by a thread a page; the outputs then need a product and an fma a
// page.
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

// A block has 256 elements of a row of all heads.
__global__ void attention_merge_kernel(AttentionMergeArgs args) {
  __shared__ Floats4 row4_at[kRowThreads / 4];
  float* row_at = reinterpret_cast<float*>(row4_at);
  after_earlier_launches();
  const int dim = static_cast<int>(args.head_dim), n_head = static_cast<int>(args.n_head);
  const int width = n_head * dim, blocks = (width + kRowThreads - 1) / kRowThreads;
  const int row = static_cast<int>(blockIdx.x) / blocks;
  const int block = static_cast<int>(blockIdx.x) % blocks;
  const int thread = static_cast<int>(threadIdx.x), element = block * kRowThreads + thread;
  if (element < width) {
    const int64_t position = args.place->first_position + row;
    const int head = element / dim, d = element % dim;
    const int unit_positions = static_cast<int>(args.unit_pages * kPagePositions);
    const int first = static_cast<int>(first_seen(position, args.window)) / unit_positions;
    const int last = static_cast<int>(position) / unit_positions;
    const int unit_pages = static_cast<int>(args.unit_pages);
    const float* partials =
        args.partials + (static_cast<int64_t>(row) * n_head + head) * args.units * (dim + 2);
    Carried span, result;
    float span_o = 0.0f, result_o = 0.0f;
    int span_index = -1;
    const auto span_into_result = [&] {
      if (!result.started) {
        result = span;
        result_o = span_o;
        return;
      }
      const Factors e = merge(result, span);
      result_o = math::fma_rn(span_o, e.b, result_o * e.a);
    };
    constexpr int kTogether = 4;
    for (int unit0 = first; unit0 <= last; unit0 += kTogether) {
      float m[kTogether], l[kTogether], o[kTogether];
      LOCKSTEP_UNROLL
      for (int k = 0; k < kTogether; ++k) {
        if (unit0 + k > last) continue;
        const float* partial = partials + static_cast<int64_t>(unit0 + k) * (dim + 2);
        m[k] = partial[0];
        l[k] = partial[1];
        o[k] = partial[2 + d];
      }
      LOCKSTEP_UNROLL
      for (int k = 0; k < kTogether; ++k) {
        if (unit0 + k > last) continue;
        const Carried own = {m[k], l[k], true};
        const int index = (unit0 + k) * unit_pages / static_cast<int>(kSpanPages);
        if (span.started && span_index != index) {
          span_into_result();
          span.started = false;
        }
        span_index = index;
        if (span.started) {
          const Factors e = merge(span, own);
          span_o = math::fma_rn(o[k], e.b, span_o * e.a);
        } else {
          span = own;
          span_o = o[k];
        }
      }
    }
    span_into_result();
    const float y = result_o / result.l;
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
                  kRowThreads, 0, stream, args);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
