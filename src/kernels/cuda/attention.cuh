// Attention over units of pages. A block has a unit (one page, or the law's span), a KV head and
// some queries: all rows and heads that read the KV head, so that a page comes from memory once for
// all of them. It leaves m, l and o of every query and unit, which attention_merge.cuh puts
// together. In narrow passes it turns the heads itself: the products' q, k and v come in, and the
// pass's own rows of the cache are made here.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention_stream.cuh"
#include "kernels/cuda/heads.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kUnitThreads = 256;
constexpr int kUnitWarps = kUnitThreads / 32;
constexpr int kPageKeys = static_cast<int>(kPagePositions);

// Shared memory of a block, in floats. Where there is no room for both, the page's values come
// where its keys were.
struct UnitShared {
  int queries, key_stride, score_stride;
  int values, q, scores, ranges, greatest, joining, rows, places;
  int encoded, rotary, norms, floats;  // where the launch turns heads
};
__host__ __device__ inline int most_queries(int64_t head_dim) {
  return head_dim <= 128 ? 32 : head_dim <= 256 ? 16 : 8;
}
__host__ __device__ inline UnitShared unit_shared(const AttentionUnitsArgs& args) {
  const int64_t head_dim = args.head_dim;
  UnitShared at{};
  const auto dim = static_cast<int>((head_dim + 3) / 4 * 4);
  at.queries = args.queries;
  at.key_stride = dim + 4;  // keys side by side in other banks
  at.score_stride = at.queries + 4;
  at.values = args.values_apart ? kPageKeys * at.key_stride : 0;
  at.q = at.values + kPageKeys * at.key_stride;
  at.scores = at.q + at.queries * dim;
  at.ranges = at.scores + kPageKeys * at.score_stride;
  at.greatest = at.ranges + 2 * at.queries;
  at.joining = at.greatest + at.queries;
  at.rows = at.joining + 2 * at.queries;
  at.places = at.rows + at.queries;
  at.encoded = (at.places + at.queries + 3) / 4 * 4;
  at.rotary = at.encoded + kUnitWarps * dim;
  at.norms = at.rotary + static_cast<int>(args.rows * args.heads.n_rot);
  at.floats = args.heads.k == nullptr ? at.encoded : at.norms + 2 * dim;
  return at;
}

// Caches of one type, which is known where kernels are compiled, keep their code short: between two
// passes through it a multiprocessor's instruction cache sees all other kernels of a layer.
struct HalfCache {
  static constexpr bool fits(const AttentionUnitsArgs& args) {
    const int64_t words = args.head_dim / 8;
    return args.values_apart && args.kv.k_type == KvType::f16 && args.kv.v_type == KvType::f16 &&
           args.head_dim % 8 == 0 && kUnitThreads % words == 0;
  }
  static __device__ constexpr KvType type(KvType) { return KvType::f16; }
};
struct AnyCache {
  static __device__ constexpr KvType type(KvType own) { return own; }
};

// Rows [begin, end) of a page as binary32.
template <typename Cache>
__device__ inline void load_rows(KvType type, const std::byte* page, int64_t row_bytes, int begin,
                                 int end, int dim, float* to, int stride) {
  constexpr int kTogether = 4;
  const int thread = static_cast<int>(threadIdx.x);
  const bool halves = std::is_same_v<Cache, HalfCache> || (type == KvType::f16 && dim % 8 == 0);
  const bool wide = halves || (type == KvType::f32 && dim % 4 == 0);
  const int per_word = halves ? 8 : 4, words = dim / per_word;
  if (std::is_same_v<Cache, HalfCache> || (wide && kUnitThreads % words == 0)) {
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

// Scores of one key for kQueries queries that lie `stride` floats apart: sixteen lanes each, then
// tree(16).
template <int kQueries>
__device__ inline void scores_of(const float* key, const float* q, int stride, int dim,
                                 float (&score)[kQueries]) {
  float lanes[kQueries][16];
  LOCKSTEP_UNROLL
  for (int r = 0; r < kQueries; ++r) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < 16; ++i) lanes[r][i] = 0.0f;
  }
  const int whole = dim / 16 * 16;
  LOCKSTEP_UNROLL_BY(1)
  for (int d = 0; d < whole; d += 16) {
    LOCKSTEP_UNROLL
    for (int f = 0; f < 16; f += 4) {
      const Floats4 k = *reinterpret_cast<const Floats4*>(key + d + f);
      LOCKSTEP_UNROLL
      for (int r = 0; r < kQueries; ++r) {
        const Floats4 a = *reinterpret_cast<const Floats4*>(q + r * stride + d + f);
        LOCKSTEP_UNROLL
        for (int i = 0; i < 4; ++i) lanes[r][f + i] = math::fma_rn(a.x[i], k.x[i], lanes[r][f + i]);
      }
    }
  }
  LOCKSTEP_UNROLL
  for (int i = 0; i < 16; ++i) {
    if (whole + i < dim) {
      const float k = key[whole + i];
      LOCKSTEP_UNROLL
      for (int r = 0; r < kQueries; ++r) {
        lanes[r][i] = math::fma_rn(q[r * stride + whole + i], k, lanes[r][i]);
      }
    }
  }
  LOCKSTEP_UNROLL
  for (int r = 0; r < kQueries; ++r) {
    // tree(16), level by level: a loop over levels would keep the lanes in memory.
    float(&lane)[16] = lanes[r];
    LOCKSTEP_UNROLL
    for (int i = 0; i < 8; ++i) lane[i] = lane[i] + lane[i + 8];
    LOCKSTEP_UNROLL
    for (int i = 0; i < 4; ++i) lane[i] = lane[i] + lane[i + 4];
    lane[0] = lane[0] + lane[2];
    lane[1] = lane[1] + lane[3];
    lane[0] = lane[0] + lane[1];
    score[r] = lane[0];
  }
}

// A row of the cache as readers find it: into `encoded` as the cache has it, and back. By one warp;
// true on a fault.
__device__ inline bool through_cache(KvType type, float* x, int dim, std::byte* encoded) {
  const bool fault = write_row(type, x, dim, encoded);
  __syncwarp();
  LOCKSTEP_UNROLL_BY(1)
  for (int i = static_cast<int>(threadIdx.x % 32); i < dim; i += 32) {
    x[i] = kv_value(type, encoded, i);
  }
  return fault;
}

// A row of floats to shared memory by one warp; it arrives with wait_copies.
__device__ inline void fetch_row(float* to, const float* from, int dim) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (dim % 4 == 0) {
    LOCKSTEP_UNROLL_BY(1)
    for (int d = 4 * lane; d < dim; d += 128) copy16_async(to + d, from + d);
  } else {
    LOCKSTEP_UNROLL_BY(1)
    for (int d = lane; d < dim; d += 32) to[d] = from[d];
  }
}

// kTurns: args.heads is there.
template <bool kHalves, bool kTurns>
__global__ void __launch_bounds__(kUnitThreads, kHalves ? 2 : 1)
    attention_units_kernel(AttentionUnitsArgs args) {
  using Cache = std::conditional_t<kHalves, HalfCache, AnyCache>;
  LOCKSTEP_SHARED(shared_bytes);
  let_next_launch_start();
  const UnitShared at = unit_shared(args);
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
  // Those without a page leave at once: others of the launch wait for the launches before it.
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
  Carried carried;  // of query `thread`
  const auto type_of = [&](bool is_v) { return Cache::type(is_v ? kv.v_type : kv.k_type); };

  const auto begin_of = [&](int64_t row) {
    const int64_t start = page * kPagePositions,
                  seen = first_seen(first_position + row, args.window);
    return static_cast<int>(seen > start ? (seen - start < kPageKeys ? seen - start : kPageKeys)
                                         : 0);
  };
  const auto end_of = [&](int64_t row) {
    const int64_t end = first_position + row + 1 - page * kPagePositions;
    return static_cast<int>(end < kPageKeys ? (end > 0 ? end : 0) : kPageKeys);
  };
  const auto load = [&](bool is_v, int begin, int end) {
    const int64_t bytes = row_bytes_of(type_of(is_v), args.head_dim);
    load_rows<Cache>(type_of(is_v),
                     (is_v ? kv.v_pages : kv.k_pages)[page] + kv_head * kPagePositions * bytes,
                     bytes, begin, end, dim, shared + (is_v ? at.values : 0), at.key_stride);
  };
  // The page's rows that earlier passes wrote are fetched while the launch before this one runs.
  int old_end = kPageKeys;
  HeadsArgs turn = args.heads;
  const int half = static_cast<int>(turn.n_rot) / 2, rotary = static_cast<int>(args.rows) * half;
  float *cos = shared + at.rotary, *sin = cos + rotary;  // [rows][half]
  if constexpr (kTurns) {
    if (first_position < (page + 1) * kPagePositions) {
      old_end = first_position > page * kPagePositions
                    ? static_cast<int>(first_position - page * kPagePositions)
                    : 0;
    }
    float* norms = shared + at.norms;
    LOCKSTEP_UNROLL_BY(1)
    for (int i = thread; i < rotary; i += kUnitThreads) {
      cos[i] = turn.cos[i];
      sin[i] = turn.sin[i];
    }
    LOCKSTEP_UNROLL_BY(1)
    for (int d = thread; d < dim; d += kUnitThreads) {
      if (turn.q_norm != nullptr) norms[d] = turn.q_norm[d];
      if (turn.k_norm != nullptr) norms[dim + d] = turn.k_norm[d];
    }
    if (turn.q_norm != nullptr) turn.q_norm = norms;
    if (turn.k_norm != nullptr) turn.k_norm = norms + dim;
    __syncthreads();
  } else {
    wait_for_earlier_launches();
    __syncthreads();  // places
    LOCKSTEP_UNROLL_BY(1)
    for (int query = warp; query < queries; query += kUnitWarps) {
      fetch_row(q + query * q_stride, args.q + static_cast<int64_t>(places[query]) * dim, dim);
    }
    commit_copies();
  }

  for (bool first = true; page <= last_page; ++page, first = false) {
    const int begin = begin_of(first_row), end = end_of(last_row);
    LOCKSTEP_UNROLL_BY(1)
    for (int is_v = 0; is_v < (at.values != 0 ? 2 : 1); ++is_v) {
      load(is_v != 0, begin, end < old_end ? end : old_end);
    }
    if constexpr (kTurns) {
      wait_for_earlier_launches();
      // Of the queries and this page's new rows of k and v, a warp fetches and turns every eighth.
      const int new_rows = end > old_end ? end - old_end : 0;
      const int row_before = static_cast<int>(page * kPagePositions - first_position) + old_end;
      const auto new_at = [&](int item) {
        const bool is_v = item >= new_rows;
        return shared + (is_v ? at.values : 0) +
               (old_end + (is_v ? item - new_rows : item)) * at.key_stride;
      };
      LOCKSTEP_UNROLL_BY(1)
      for (int item = warp; item < queries + 2 * new_rows; item += kUnitWarps) {
        const int own = item - queries;
        if (own < 0) {
          fetch_row(q + item * q_stride, args.q + static_cast<int64_t>(places[item]) * dim, dim);
          continue;
        }
        const bool is_v = own >= new_rows;
        const int row = row_before + (is_v ? own - new_rows : own);
        const float* from = is_v ? turn.v : turn.k;
        fetch_row(new_at(own), from + (static_cast<int64_t>(row) * kv.n_head_kv + kv_head) * dim,
                  dim);
      }
      commit_copies();
      wait_copies<0>();
      __syncwarp();
      auto* encoded = reinterpret_cast<std::byte*>(shared + at.encoded + warp * q_stride);
      LOCKSTEP_UNROLL_BY(1)
      for (int item = warp; item < queries + 2 * new_rows; item += kUnitWarps) {
        const bool is_q = item < queries;
        const int own = item - queries;
        const bool is_v = !is_q && own >= new_rows;
        const int row = is_q ? rows[item] : row_before + (is_v ? own - new_rows : own);
        float* x = is_q ? q + item * q_stride : new_at(own);
        if (!is_v) turn_head(turn, is_q, row, cos + row * half, sin + row * half, x);
        if (is_q) continue;
        if (through_cache(type_of(is_v), x, dim, encoded)) set_fault(turn.write_faults, row);
        // Into the cache by the block that has the row's first query.
        const int query = row * group - first_query;
        if (query >= 0 && query < queries) {
          auto* to = reinterpret_cast<uint16_t*>(kv_row(kv, is_v, first_position + row, kv_head));
          const int halves = static_cast<int>(row_bytes_of(type_of(is_v), args.head_dim) / 2);
          LOCKSTEP_UNROLL_BY(1)
          for (int h = lane; h < halves; h += 32) {
            to[h] = reinterpret_cast<const uint16_t*>(encoded)[h];
          }
        }
        __syncwarp();  // before the next row is encoded there
      }
    } else if (first) {
      wait_copies<0>();
    }
    if (thread < at.queries) {
      // Queries that are not there see all, and nobody looks at what comes out.
      ranges[2 * thread] = thread < queries ? begin_of(rows[thread]) : begin;
      ranges[2 * thread + 1] = thread < queries ? end_of(rows[thread]) : end;
    }
    __syncthreads();

    const int key = thread % kPageKeys;
    if (key >= begin && key < end) {
      float* to = scores + key * at.score_stride;
      // A quarter of the threads has two queries each time. Those that are not there have room, and
      // nobody looks at what comes out.
      constexpr int kTogether = 2;
      LOCKSTEP_UNROLL_BY(1)
      for (int query = kTogether * (thread / kPageKeys); query < queries;
           query += kTogether * kUnitThreads / kPageKeys) {
        float sums[kTogether];
        scores_of<kTogether>(shared + key * at.key_stride, q + query * q_stride, q_stride, dim,
                             sums);
        LOCKSTEP_UNROLL
        for (int i = 0; i < kTogether; ++i) to[query + i] = sums[i];
      }
    }
    __syncthreads();
    if (!kHalves && at.values == 0) load(true, begin, end);
    // Products to scores, the greatest of a query, then the exponentials in their place: a warp a
    // query.
    LOCKSTEP_UNROLL_BY(1)
    for (int query0 = 0; query0 < queries; query0 += kUnitWarps) {
      const int query = query0 + warp;
      const bool there = query < queries;
      const int from = there ? ranges[2 * query] : 0, to = there ? ranges[2 * query + 1] : 0;
      const float kNothing = math::f32_from_bits(0xFF800000u);  // -infinity
      float s[2], m = kNothing;
      LOCKSTEP_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int j = lane + 32 * i;
        s[i] = kNothing;
        if (j < from || j >= to) continue;
        s[i] = scores[j * at.score_stride + query] * args.scale;
        if (is_non_finite(s[i])) {
          set_fault(args.faults, rows[query]);
          s[i] = 0.0f;
        }
        if (args.softcap != 0.0f) s[i] = args.softcap * math::tanh(s[i] / args.softcap);
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
    if (!kTurns && args.unit_pages > 1) {
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
      const auto some_see = [&](int from_key, int to_key) {
        LOCKSTEP_UNROLL_BY(1)
        for (int j = from_key; j < to_key; ++j) {
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
        if (!kTurns && args.unit_pages > 1) {
          const float factor = joining[2 * (query + i)];
          if (factor >= 0.0f) {
            o[i] = math::fma_rn(o[i], joining[2 * (query + i) + 1], *out * factor);
          }
        }
        *out = o[i];
      }
    }
    if constexpr (kTurns) break;  // its units are of one page
    __syncthreads();              // before the next page replaces these
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
  constexpr int kFewestQueries = 4;
  AttentionUnitsArgs own = args;
  // More pages than the device computes at a time come through rings.
  const int64_t least = args.units * args.kv.n_head_kv * blocks_for(all, kMostStreamed);
  if (least > 2 * args.processors && fits_stream(args, kStreamTogether)) {
    if (args.heads.k != nullptr) heads(args.heads, stream);
    own.heads = {};
    return attention_stream(own, stream);
  }
  const auto fits = [&] { return 4 * unit_shared(own).floats <= LOCKSTEP_MOST_SHARED; };
  own.queries = kFewestQueries;
  own.values_apart = args.head_dim <= 256;
  own.values_apart = own.values_apart && fits();
  if (args.heads.k != nullptr && !own.values_apart) {
    heads(args.heads, stream);
    own.heads = {};
  }
  own.queries = most_queries(args.head_dim);
  const auto blocks = [&] {
    return args.units * args.kv.n_head_kv * ((all + own.queries - 1) / own.queries);
  };
  while (own.queries > kFewestQueries &&
         (blocks() < kEnough || own.queries / 2 >= all || !fits())) {
    own.queries /= 2;
  }
  const auto launch = [&](auto kernel) {
    LOCKSTEP_LAUNCH(kernel, blocks_for(blocks(), 1), kUnitThreads, 4 * unit_shared(own).floats,
                    stream, own);
  };
  const bool turns = own.heads.k != nullptr;
  if (HalfCache::fits(own)) {
    turns ? launch(attention_units_kernel<true, true>)
          : launch(attention_units_kernel<true, false>);
  } else {
    turns ? launch(attention_units_kernel<false, true>)
          : launch(attention_units_kernel<false, false>);
  }
}

}  // namespace
}  // namespace lockstep::kernels::cuda
