// Attention in two launches. The first has a block for each unit of pages (one page, or the law's
// span), KV head and some queries: all rows and heads that read the KV head, so that a page comes
// from memory once for all of them. It leaves m, l and o of every query and unit. The second merges
// these in the law's order, and quantises the result for the product that reads it.
#pragma once

#include "kernels/cuda/kv.cuh"
#include "kernels/cuda/rows.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kUnitThreads = 128;
constexpr int kPageKeys = static_cast<int>(kPagePositions);

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

// Shared memory of a block of the first launch, in floats. Heads of more than 256 elements have the
// page's values where its keys were.
struct UnitShared {
  int queries, key_stride, score_stride;
  int values, q, scores, ranges, greatest, joining, rows, places, floats;
};
__host__ __device__ inline int most_queries(int64_t head_dim) {
  return head_dim <= 128 ? 32 : head_dim <= 256 ? 16 : 8;
}
__host__ __device__ inline UnitShared unit_shared(int64_t head_dim, int queries) {
  UnitShared at{};
  const auto dim = static_cast<int>((head_dim + 3) / 4 * 4);
  at.queries = queries;
  at.key_stride = dim + 4;  // keys side by side in other banks
  at.score_stride = at.queries + 4;
  at.values = dim <= 256 ? kPageKeys * at.key_stride : 0;
  at.q = at.values + kPageKeys * at.key_stride;
  at.scores = at.q + at.queries * dim;
  at.ranges = at.scores + kPageKeys * at.score_stride;
  at.greatest = at.ranges + 2 * at.queries;
  at.joining = at.greatest + at.queries;
  at.rows = at.joining + 2 * at.queries;
  at.places = at.rows + at.queries;
  at.floats = at.places + at.queries;
  return at;
}

// Rows [begin, end) of a page as binary32.
__device__ inline void load_rows(KvType type, const std::byte* page, int64_t row_bytes, int begin,
                                 int end, int dim, float* to, int stride) {
  constexpr int kTogether = 4;
  const int thread = static_cast<int>(threadIdx.x);
  const bool halves = type == KvType::f16 && dim % 8 == 0;
  const bool wide = halves || (type == KvType::f32 && dim % 4 == 0);
  const int per_word = halves ? 8 : 4, words = dim / per_word;
  if (wide && kUnitThreads % words == 0) {
    const int step = kUnitThreads / words, word_at = thread % words;
    const std::byte* from = page + 16 * word_at;
    for (int row0 = begin + thread / words; row0 < end; row0 += kTogether * step) {
      Words4 word[kTogether] = {};
      LOCKSTEP_UNROLL
      for (int k = 0; k < kTogether; ++k) {
        const int row = row0 + k * step;
        if (row < end) word[k] = *reinterpret_cast<const Words4*>(from + row * row_bytes);
      }
      LOCKSTEP_UNROLL
      for (int k = 0; k < kTogether; ++k) {
        const int row = row0 + k * step;
        if (row >= end) continue;
        float* at = to + row * stride + word_at * per_word;
        Floats4 x[2] = {};
        LOCKSTEP_UNROLL
        for (int n = 0; n < 4; ++n) {
          const uint32_t w = word[k].word[n];
          if (halves) {
            x[n / 2].x[n % 2 * 2] = half_to_float(w & 0xFFFFu);
            x[n / 2].x[n % 2 * 2 + 1] = half_to_float(w >> 16);
          } else {
            x[0].x[n] = math::f32_from_bits(w);
          }
        }
        *reinterpret_cast<Floats4*>(at) = x[0];
        if (halves) *reinterpret_cast<Floats4*>(at + 4) = x[1];
      }
    }
    return;
  }
  for (int i = thread; i < (end - begin) * dim; i += kUnitThreads) {
    const int row = begin + i / dim;
    to[row * stride + i % dim] = kv_value(type, page + row * row_bytes, i % dim);
  }
}

// Two queries' scores of one key: sixteen lanes each, then tree(16).
__device__ inline void two_scores(const float* key, const float* q0, const float* q1, int dim,
                                  float (&score)[2]) {
  float lanes[2][16];
  LOCKSTEP_UNROLL
  for (int i = 0; i < 16; ++i) lanes[0][i] = lanes[1][i] = 0.0f;
  const int whole = dim / 16 * 16;
  for (int d = 0; d < whole; d += 16) {
    LOCKSTEP_UNROLL
    for (int f = 0; f < 16; f += 4) {
      const Floats4 k = *reinterpret_cast<const Floats4*>(key + d + f);
      const Floats4 a = *reinterpret_cast<const Floats4*>(q0 + d + f);
      const Floats4 b = *reinterpret_cast<const Floats4*>(q1 + d + f);
      LOCKSTEP_UNROLL
      for (int i = 0; i < 4; ++i) {
        lanes[0][f + i] = math::fma_rn(a.x[i], k.x[i], lanes[0][f + i]);
        lanes[1][f + i] = math::fma_rn(b.x[i], k.x[i], lanes[1][f + i]);
      }
    }
  }
  LOCKSTEP_UNROLL
  for (int i = 0; i < 16; ++i) {
    if (whole + i < dim) {
      const float k = key[whole + i];
      lanes[0][i] = math::fma_rn(q0[whole + i], k, lanes[0][i]);
      lanes[1][i] = math::fma_rn(q1[whole + i], k, lanes[1][i]);
    }
  }
  LOCKSTEP_UNROLL
  for (int r = 0; r < 2; ++r) {
    // tree(16), level by level: a loop over levels would keep the lanes in memory.
    float(&lane)[16] = lanes[r];
    LOCKSTEP_UNROLL
    for (int i = 0; i < 8; ++i) lane[i] = lane[i] + lane[i + 8];
    LOCKSTEP_UNROLL
    for (int i = 0; i < 4; ++i) lane[i] = lane[i] + lane[i + 4];
    lane[0] = lane[0] + lane[2];
    lane[1] = lane[1] + lane[3];
    lane[0] = lane[0] + lane[1];
    score[r] = lanes[r][0];
  }
}

__global__ void __launch_bounds__(kUnitThreads) attention_units_kernel(AttentionUnitsArgs args) {
  LOCKSTEP_SHARED(shared_bytes);
  after_earlier_launches();
  const UnitShared at = unit_shared(args.head_dim, args.queries);
  float* shared = reinterpret_cast<float*>(shared_bytes);
  const DeviceKv& kv = args.kv;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const int dim = static_cast<int>(args.head_dim);
  const int q_stride = (dim + 3) / 4 * 4;
  const int n_head = static_cast<int>(args.n_head), block = static_cast<int>(blockIdx.x);
  const int group = n_head / kv.n_head_kv, all = static_cast<int>(args.rows) * group;
  const int chunks = (all + at.queries - 1) / at.queries;
  const int first_query = block % chunks * at.queries;
  const int kv_head = block / chunks % kv.n_head_kv;
  const int unit = block / chunks / kv.n_head_kv;
  const int queries = all - first_query < at.queries ? all - first_query : at.queries;
  const int64_t first_position = args.place->first_position;
  const int first_row = first_query / group, last_row = (first_query + queries - 1) / group;

  int64_t page = first_seen(first_position + first_row, args.window) / kPagePositions;
  int64_t last_page = (first_position + last_row) / kPagePositions;
  if (page < unit * args.unit_pages) page = unit * args.unit_pages;
  if (last_page > (unit + 1) * args.unit_pages - 1) last_page = (unit + 1) * args.unit_pages - 1;
  if (page > last_page) return;

  float* q = shared + at.q;
  float* scores = shared + at.scores;
  auto* ranges = reinterpret_cast<int32_t*>(shared + at.ranges);  // [queries][2]
  float* greatest = shared + at.greatest;                         // [queries]
  float* joining = shared + at.joining;                           // [queries][2]
  auto* rows = reinterpret_cast<int32_t*>(shared + at.rows);      // [queries]
  auto* places = reinterpret_cast<int32_t*>(shared + at.places);  // [queries] row·n_head + head
  if (thread < queries) {
    rows[thread] = (first_query + thread) / group;
    places[thread] = rows[thread] * n_head + kv_head * group + (first_query + thread) % group;
  }
  const auto partial_of = [&](int query) {
    return args.partials + (static_cast<int64_t>(places[query]) * args.units + unit) * (dim + 2);
  };
  __syncthreads();
  for (int query = warp; query < queries; query += kUnitThreads / 32) {
    const float* from = args.q + static_cast<int64_t>(places[query]) * dim;
    for (int d = lane; d < dim; d += 32) q[query * q_stride + d] = from[d];
  }
  Carried carried;  // of query `thread`
  const int64_t k_bytes = row_bytes_of(kv.k_type, args.head_dim);
  const int64_t v_bytes = row_bytes_of(kv.v_type, args.head_dim);

  for (; page <= last_page; ++page) {
    const int64_t start = page * kPagePositions;
    const auto begin_of = [&](int64_t row) {
      const int64_t seen = first_seen(first_position + row, args.window);
      return static_cast<int>(seen > start ? (seen - start < kPageKeys ? seen - start : kPageKeys)
                                           : 0);
    };
    const auto end_of = [&](int64_t row) {
      const int64_t end = first_position + row + 1 - start;
      return static_cast<int>(end < kPageKeys ? (end > 0 ? end : 0) : kPageKeys);
    };
    const int begin = begin_of(first_row), end = end_of(last_row);
    const std::byte* k_page = kv.k_pages[page] + kv_head * kPagePositions * k_bytes;
    const std::byte* v_page = kv.v_pages[page] + kv_head * kPagePositions * v_bytes;
    load_rows(kv.k_type, k_page, k_bytes, begin, end, dim, shared, at.key_stride);
    if (at.values != 0) {
      load_rows(kv.v_type, v_page, v_bytes, begin, end, dim, shared + at.values, at.key_stride);
    }
    if (thread < at.queries) {
      // Queries that are not there see all, and nobody looks at what comes out.
      ranges[2 * thread] = thread < queries ? begin_of(rows[thread]) : begin;
      ranges[2 * thread + 1] = thread < queries ? end_of(rows[thread]) : end;
    }
    __syncthreads();

    const int key = thread % kPageKeys;
    if (key >= begin && key < end) {
      for (int two = thread / kPageKeys * 2; two < queries; two += 4) {
        const int other = two + 1 < queries ? two + 1 : two;
        float sums[2];
        two_scores(shared + key * at.key_stride, q + two * q_stride, q + other * q_stride, dim,
                   sums);
        LOCKSTEP_UNROLL
        for (int i = 0; i < 2; ++i) {
          const int query = two + i;
          if (query >= queries || key < ranges[2 * query] || key >= ranges[2 * query + 1]) continue;
          float s = sums[i] * args.scale;
          if (is_non_finite(s)) {
            set_fault(args.faults, rows[query]);
            s = 0.0f;
          }
          if (args.softcap != 0.0f) s = args.softcap * math::tanh(s / args.softcap);
          scores[key * at.score_stride + query] = s;
        }
      }
    }
    __syncthreads();
    if (at.values == 0) {
      load_rows(kv.v_type, v_page, v_bytes, begin, end, dim, shared, at.key_stride);
    }
    // The greatest of a query, then the exponentials in the scores' place: a warp a query.
    for (int query0 = 0; query0 < queries; query0 += kUnitThreads / 32) {
      const int query = query0 + warp;
      const bool there = query < queries;
      const int from = there ? ranges[2 * query] : 0, to = there ? ranges[2 * query + 1] : 0;
      const float kNothing = math::f32_from_bits(0xFF800000u);  // -infinity
      float s[2], m = kNothing;
      LOCKSTEP_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int j = lane + 32 * i;
        s[i] = j >= from && j < to ? scores[j * at.score_stride + query] : kNothing;
        m = m > s[i] ? m : s[i];
      }
      LOCKSTEP_UNROLL
      for (int h = 16; h >= 1; h /= 2) {
        const float other = __shfl_xor_sync(kAllLanes, m, h);
        m = m > other ? m : other;
      }
      LOCKSTEP_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int j = lane + 32 * i;
        if (j >= from && j < to) {
          scores[j * at.score_stride + query] = math::exp_nonpos(s[i] - m);
        }
      }
      if (there && lane == 0) greatest[query] = m;
    }
    __syncthreads();
    // Sums of a query by one thread, in the law's order; then how this page joins the unit's.
    Factors e = {0.0f, 0.0f};
    bool joins = false;
    if (thread < queries && ranges[2 * thread] < ranges[2 * thread + 1]) {
      Carried own;
      own.m = greatest[thread];
      own.started = true;
      LOCKSTEP_UNROLL_BY(8)
      for (int j = ranges[2 * thread]; j < ranges[2 * thread + 1]; ++j) {
        own.l = own.l + scores[j * at.score_stride + thread];
      }
      if (carried.started) {
        e = merge(carried, own);
        joins = true;
      } else {
        carried = own;
      }
    }
    if (args.unit_pages > 1) {
      if (thread < at.queries) {
        joining[2 * thread] = joins ? e.a : -1.0f;  // no factor is below 0
        joining[2 * thread + 1] = e.b;
      }
      __syncthreads();
    }
    // Outputs: a thread has an element of four queries.
    const float* values = shared + at.values;
    const int fours = (queries + 3) / 4;
    for (int item = thread; item < fours * dim; item += kUnitThreads) {
      const int d = item % dim, query = item / dim * 4;
      float o[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      int from[4], to[4], all_from = begin, all_to = end;  // keys that all four see
      LOCKSTEP_UNROLL
      for (int i = 0; i < 4; ++i) {
        from[i] = ranges[2 * (query + i)];
        to[i] = ranges[2 * (query + i) + 1];
        all_from = all_from > from[i] ? all_from : from[i];
        all_to = all_to < to[i] ? all_to : to[i];
      }
      if (all_to < all_from) all_to = all_from;
      const auto some_see = [&](int first, int last) {
        for (int j = first; j < last; ++j) {
          const float v = values[j * at.key_stride + d];
          LOCKSTEP_UNROLL
          for (int i = 0; i < 4; ++i) {
            const float p = scores[j * at.score_stride + query + i];
            if (j >= from[i] && j < to[i]) o[i] = math::fma_rn(p, v, o[i]);
          }
        }
      };
      some_see(begin, all_from);
      LOCKSTEP_UNROLL_BY(4)
      for (int j = all_from; j < all_to; ++j) {
        const float v = values[j * at.key_stride + d];
        const Floats4 p = *reinterpret_cast<const Floats4*>(scores + j * at.score_stride + query);
        LOCKSTEP_UNROLL
        for (int i = 0; i < 4; ++i) o[i] = math::fma_rn(p.x[i], v, o[i]);
      }
      some_see(all_to, end);
      LOCKSTEP_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (query + i >= queries || from[i] >= to[i]) continue;
        float* out = partial_of(query + i) + 2 + d;
        if (args.unit_pages > 1) {
          const float factor = joining[2 * (query + i)];
          if (factor >= 0.0f) {
            o[i] = math::fma_rn(o[i], joining[2 * (query + i) + 1], *out * factor);
          }
        }
        *out = o[i];
      }
    }
    __syncthreads();  // before the next page replaces these
  }
  if (thread < queries && carried.started) {
    float* to = partial_of(thread);
    to[0] = carried.m;
    to[1] = carried.l;
  }
}

void attention_units(const AttentionUnitsArgs& args, Stream stream) {
  const int64_t all = args.rows * (args.n_head / args.kv.n_head_kv);
  // Few queries a block where pages are few, so that all multiprocessors have some; many where they
  // are many, so that a page is read once for all.
  constexpr int64_t kEnough = 512;
  AttentionUnitsArgs own = args;
  own.queries = most_queries(args.head_dim);
  const auto blocks = [&] {
    return args.units * args.kv.n_head_kv * ((all + own.queries - 1) / own.queries);
  };
  while (own.queries > 4 && blocks() < kEnough) own.queries /= 2;
  LOCKSTEP_LAUNCH(attention_units_kernel, blocks_for(blocks(), 1), kUnitThreads,
                  4 * unit_shared(args.head_dim, own.queries).floats, stream, own);
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
