// Attention over many pages of binary16. A block has a KV head, some queries of it and every n-th
// page; pages come as they are into a ring in shared memory while the ones before are computed, so
// that the memory never waits for arithmetic. It leaves m, l and o of every query and page, as
// attention.cuh does page by page; the heads have been turned before.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention_merge.cuh"
#include "kernels/cuda/kv.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kStreamKeys = static_cast<int>(kPagePositions);
constexpr int kMostStreamed = 32;  // queries of a block
// Queries in a thread's registers: their number in a block is a multiple of it.
constexpr int kStreamTogether = 4;

// What a thread has in registers. Scores: `keys` keys by four queries by four of the law's sixteen
// lanes; then `run` neighbouring scores, twice. Outputs: `queries` queries by `elements` elements.
// The more, the fewer instructions a product takes; with few queries most threads would have
// nothing, and more blocks, each with a page, hide what they wait for. `blocks` of a multiprocessor
// at a time, `stages` pages of a block in shared memory.
template <int kHeadDim>
struct FewQueries {
  static constexpr int kDim = kHeadDim, kKeys = 2, kRun = 1, kQueries = 2, kElements = 2;
  static constexpr int kThreads = 128, kBlocks = 6, kStages = 1, kPadding = 0;
};
template <int kHeadDim>
struct ManyQueries {
  static constexpr int kDim = kHeadDim, kKeys = 4, kRun = 4, kQueries = 4, kElements = 4;
  static constexpr int kThreads = 256, kBlocks = 2, kStages = kHeadDim <= 128 ? 2 : 1;
  static constexpr int kPadding = 32;
};

template <int kHeadDim, bool kMany>
using StreamKind = std::conditional_t<kMany, ManyQueries<kHeadDim>, FewQueries<kHeadDim>>;

// Shared memory of a block, in bytes. A query's scores are eight floats more than a page has keys,
// so that those of four queries lie in other banks.
constexpr int kStreamScores = kStreamKeys + 8;
template <typename Own>
struct StreamShared {
  static constexpr int kRow = 2 * Own::kDim + Own::kPadding;  // of a page
  static constexpr int kPage = kStreamKeys * kRow;
  static constexpr int kQ = 2 * Own::kStages * kPage;
  int scores, rows, places, bytes;  // scores: as many as there are stages

  __host__ __device__ explicit StreamShared(int queries)
      : scores(kQ + 4 * queries * Own::kDim),
        rows(scores + 4 * Own::kStages * queries * kStreamScores),
        places(rows + 4 * queries),
        bytes(places + 4 * queries) {}
};

struct alignas(8) Floats2 {
  float x[2];
};

// Where byte `at` of row `row` of a page lies in its row. The same run of 32 bytes of four
// neighbouring rows should lie in all banks: rows lie 32 bytes further apart than they are long,
// or, where there is no room for it, runs change places within 128 bytes.
template <typename Own>
__device__ inline int page_byte(int row, int at) {
  return Own::kPadding > 0 ? at : at ^ (row % 4 * 32);
}

// Four elements of binary16.
__device__ inline Floats4 four_halves(const unsigned char* at) {
  const Words2 two = *reinterpret_cast<const Words2*>(at);
  return {{half_to_float(two.word[0] & 0xFFFFu), half_to_float(two.word[0] >> 16),
           half_to_float(two.word[1] & 0xFFFFu), half_to_float(two.word[1] >> 16)}};
}

// Scores, not yet scaled, of a page's keys, 8·kKeys of them a warp and four queries at a time.
// Thread 4k + p of a warp has lanes 4p … 4p + 3 of key k, k + 8, …, and of its queries number r ^ p
// in place r. tree(16) goes through the four threads of a key, each of which gives away the places
// that it does not keep; query p is left to it.
template <typename Own>
__device__ inline void page_scores(const unsigned char* keys, const float* q, int queries,
                                   float* scores) {
  constexpr int kKeys = Own::kKeys, kDim = Own::kDim, kRow = StreamShared<Own>::kRow;
  constexpr int kWarps = Own::kThreads / 32;
  constexpr int kWarpsAPage = kStreamKeys / (8 * kKeys);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int part = lane % 4, key = lane / 4 + 8 * kKeys * (warp % kWarpsAPage);
  const unsigned char* key_at = keys + key * kRow + 8 * part;
  LOCKSTEP_UNROLL_BY(1)
  for (int query = kStreamTogether * (warp / kWarpsAPage); query < queries;
       query += kStreamTogether * (kWarps / kWarpsAPage)) {
    float lanes[kKeys][4][4];
    LOCKSTEP_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      LOCKSTEP_UNROLL
      for (int r = 0; r < 4; ++r) {
        LOCKSTEP_UNROLL
        for (int f = 0; f < 4; ++f) lanes[i][r][f] = 0.0f;
      }
    }
    const float* q_at[4];
    LOCKSTEP_UNROLL
    for (int r = 0; r < 4; ++r) q_at[r] = q + (query + (r ^ part)) * kDim + 4 * part;
    LOCKSTEP_UNROLL_BY(kKeys / 2)
    for (int d = 0; d < kDim; d += 16) {
      const unsigned char* run_at = key_at + page_byte<Own>(key, 2 * d);
      Floats4 a[4];
      LOCKSTEP_UNROLL
      for (int r = 0; r < 4; ++r) a[r] = *reinterpret_cast<const Floats4*>(q_at[r] + d);
      LOCKSTEP_UNROLL
      for (int i = 0; i < kKeys; ++i) {
        const Floats4 k = four_halves(run_at + 8 * i * kRow);
        LOCKSTEP_UNROLL
        for (int r = 0; r < 4; ++r) {
          LOCKSTEP_UNROLL
          for (int f = 0; f < 4; ++f) {
            lanes[i][r][f] = math::fma_rn(a[r].x[f], k.x[f], lanes[i][r][f]);
          }
        }
      }
    }
    LOCKSTEP_UNROLL
    for (int i = 0; i < kKeys; ++i) {
      float two[2][4], one[4];
      LOCKSTEP_UNROLL
      for (int f = 0; f < 4; ++f) {
        LOCKSTEP_UNROLL
        for (int r = 0; r < 2; ++r) {
          two[r][f] = lanes[i][r][f] + __shfl_xor_sync(kAllLanes, lanes[i][2 + r][f], 2);
        }
        one[f] = two[0][f] + __shfl_xor_sync(kAllLanes, two[1][f], 1);
      }
      scores[(query + part) * kStreamScores + key + 8 * i] = (one[0] + one[2]) + (one[1] + one[3]);
    }
  }
}

template <int kDim, bool kMany>
__global__ void __launch_bounds__((StreamKind<kDim, kMany>::kThreads),
                                  (StreamKind<kDim, kMany>::kBlocks))
    attention_stream_kernel(AttentionUnitsArgs args) {
  using Own = StreamKind<kDim, kMany>;
  LOCKSTEP_SHARED(shared);
  let_next_launch_start();
  const DeviceKv& kv = args.kv;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  using Shared = StreamShared<Own>;
  constexpr int kStages = Own::kStages;
  constexpr int kThreads = Own::kThreads, kWarps = kThreads / 32;
  const Shared at(args.queries);
  const int n_head = static_cast<int>(args.n_head);
  const int group = n_head / kv.n_head_kv, all = static_cast<int>(args.rows) * group;
  const int chunks = (all + args.queries - 1) / args.queries;
  const int block = static_cast<int>(blockIdx.x);
  const int first_query = block % chunks * args.queries;
  const int kv_head = block / chunks % kv.n_head_kv;
  const int share = block / chunks / kv.n_head_kv;
  const int shares = static_cast<int>(gridDim.x) / chunks / kv.n_head_kv;
  const int queries = all - first_query < args.queries ? all - first_query : args.queries;
  const auto first_position = static_cast<int>(args.place->first_position);
  const int first_row = first_query / group, last_row = (first_query + queries - 1) / group;
  const auto window = static_cast<int>(args.window);
  // The first key that a row sees, of all.
  const auto first_seen_by = [&](int row) {
    const int seen = first_position + row - window + 1;
    return window > 0 && seen > 0 ? seen : 0;
  };
  int page = first_seen_by(first_row) / kStreamKeys + share;
  const int last_page = (first_position + last_row) / kStreamKeys;
  // Those without a page leave at once: others of the launch wait for the launches before it.
  if (page > last_page) return;

  float* q = reinterpret_cast<float*>(shared + Shared::kQ);
  auto* rows = reinterpret_cast<int32_t*>(shared + at.rows);      // [queries]
  auto* places = reinterpret_cast<int32_t*>(shared + at.places);  // [queries] row·n_head + head

  constexpr int kWords = kDim / 8, kRowStep = kThreads / kWords;
  const int own_row = thread / kWords, own_word = thread % kWords;
  const auto page_at = [&](bool is_v, int p) -> const std::byte* {
    return p <= last_page ? (is_v ? kv.v_pages : kv.k_pages)[p] : nullptr;
  };
  const auto stage_at = [&](int stage, bool is_v) {
    return shared + (2 * stage + (is_v ? 1 : 0)) * Shared::kPage;
  };
  // A group of copies: a page's keys or values, or nothing.
  const auto copy = [&](int stage, bool is_v, const std::byte* from) {
    if (from != nullptr) {
      static_assert(kRowStep % 4 == 0);
      unsigned char* to =
          stage_at(stage, is_v) + own_row * Shared::kRow + page_byte<Own>(own_row, 16 * own_word);
      from += 2 * kDim * (kStreamKeys * kv_head + own_row) + 16 * own_word;
      LOCKSTEP_UNROLL
      for (int row = 0; row < kStreamKeys; row += kRowStep) {
        copy16_async(to + row * Shared::kRow, from + row * 2 * kDim);
      }
    }
    commit_copies();
  };
  const auto copy_first = [&] {
    LOCKSTEP_UNROLL_BY(1)
    for (int i = 0; i < 2 * kStages; ++i) {
      copy(i / 2, i % 2 != 0, page_at(i % 2 != 0, page + i / 2 * shares));
    }
  };
  // Pages that earlier passes filled are fetched while the launch before this one runs.
  const bool early = (page + (kStages - 1) * shares + 1) * kStreamKeys <= first_position;
  if (early) copy_first();
  wait_for_earlier_launches();
  if (!early) copy_first();

  if (thread < args.queries) {
    // Of queries that are not there, nobody looks at what comes out.
    const int query = thread < queries ? thread : queries - 1;
    rows[thread] = (first_query + query) / group;
    places[thread] = rows[thread] * n_head + kv_head * group + (first_query + query) % group;
  }
  __syncthreads();
  LOCKSTEP_UNROLL_BY(1)
  for (int i = thread; i < args.queries * kDim / 4; i += kThreads) {
    const int query = 4 * i / kDim, d = 4 * i % kDim;
    *reinterpret_cast<Floats4*>(q + 4 * i) =
        *reinterpret_cast<const Floats4*>(args.q + static_cast<int64_t>(places[query]) * kDim + d);
  }
  const auto partial_of = [&](int query) {
    return args.partials + (static_cast<int64_t>(places[query]) * args.units + page) * (kDim + 2);
  };

  // Groups of copies are, in order, keys and values of this page, of the next … With two stages a
  // warp goes on to the next page's scores when it has its part of this one's outputs, and what
  // both need is there twice; with one, all wait for the keys in between.
  constexpr bool kTwice = kStages == 2;
  wait_copies<2 * kStages - 1>();
  __syncthreads();
  const std::byte *next_k = nullptr, *next_v = nullptr;
  for (int stage = 0; page <= last_page; page += shares, stage = (stage + 1) % kStages) {
    [[maybe_unused]] const std::byte* values_before = next_v;
    next_k = page_at(false, page + kStages * shares);
    next_v = page_at(true, page + kStages * shares);
    const int start = page * kStreamKeys;
    // Whether all rows see the whole page.
    const bool whole =
        first_seen_by(last_row) <= start && start + kStreamKeys <= first_position + first_row + 1;
    // Keys that a row sees of this page.
    const auto first_of = [&](int row) {
      const int seen = first_seen_by(row) - start;
      return seen < 0 ? 0 : seen < kStreamKeys ? seen : kStreamKeys;
    };
    const auto end_of = [&](int row) {
      const int end = first_position + row + 1 - start;
      return end < 0 ? 0 : end < kStreamKeys ? end : kStreamKeys;
    };
    float* scores = reinterpret_cast<float*>(shared + at.scores) +
                    stage * args.queries * kStreamScores;  // [queries][kStreamScores]
    page_scores<Own>(stage_at(stage, false), q, args.queries, scores);
    __syncthreads();
    if constexpr (kTwice) copy(stage ^ 1, true, values_before);
    copy(stage, false, next_k);

    // Products to scores, the greatest of a query, then the exponentials in their place: some
    // threads a query.
    constexpr int kRun = Own::kRun, kOfQuery = 32 / kRun;
    LOCKSTEP_UNROLL_BY(1)
    for (int query0 = kRun * warp; query0 < queries; query0 += kRun * kWarps) {
      const int query = query0 + lane / kOfQuery, first = kRun * (lane % kOfQuery);
      const bool there = query < queries;
      const int from = !there || whole ? 0 : first_of(rows[query]);
      const int to = !there ? 0 : whole ? kStreamKeys : end_of(rows[query]);
      struct alignas(4 * kRun) Run {
        float x[kRun];
      };
      float* flat = scores + query * kStreamScores + first;
      auto* own = reinterpret_cast<Run*>(flat);
      constexpr int kApart = 32 / kRun;  // of a thread's two runs
      // One score, scaled; a fault counts as 0.
      const auto scaled = [&](float x, float scale) {
        x = x * scale;
        if (!is_non_finite(x)) return x;
        set_fault(args.faults, rows[query]);
        return 0.0f;
      };
      // Few models cap, and the code of a page should be short.
      const bool caps = args.softcap != 0.0f;
      if (caps) {
        LOCKSTEP_UNROLL_BY(1)
        for (int c = 0; c < 2 * kRun; ++c) {
          const int place = c / kRun * 32 + c % kRun;
          if (first + place < from || first + place >= to) continue;
          flat[place] = args.softcap * math::tanh(scaled(flat[place], args.scale) / args.softcap);
        }
      }
      const float scale = caps ? 1.0f : args.scale;
      const float kNothing = math::f32_from_bits(0xFF800000u);  // -infinity
      Run s[2];
      float m = kNothing;
      LOCKSTEP_UNROLL
      for (int i = 0; i < 2; ++i) {
        s[i] = own[kApart * i];
        LOCKSTEP_UNROLL
        for (int f = 0; f < kRun; ++f) {
          const int j = first + 32 * i + f;
          if (j < from || j >= to) continue;
          float& x = s[i].x[f];
          x = scaled(x, scale);
          m = m > x ? m : x;
        }
      }
      LOCKSTEP_UNROLL
      for (int h = kOfQuery / 2; h >= 1; h /= 2) {
        const float other = __shfl_xor_sync(kAllLanes, m, h);
        m = m > other ? m : other;
      }
      LOCKSTEP_UNROLL
      for (int i = 0; i < 2; ++i) {
        LOCKSTEP_UNROLL
        for (int f = 0; f < kRun; ++f) s[i].x[f] = math::exp_nonpos(s[i].x[f] - m);
        // Keys that it does not see have anything here, and nobody looks.
        if (there) own[kApart * i] = s[i];
      }
      if (first == 0 && from < to) *partial_of(query) = m;
    }
    wait_copies<kTwice ? 2 : 1>();
    __syncthreads();

    // Outputs and sums: a thread has some elements of some queries, and one of their sums.
    constexpr int kQueries = Own::kQueries, kElements = Own::kElements;
    constexpr int kRuns = kDim / kElements;  // of elements, of a row
    LOCKSTEP_UNROLL_BY(1)
    for (int item = thread; item < args.queries / kQueries * kRuns; item += kThreads) {
      const int run = item % kRuns, query = item / kRuns * kQueries, summed = run % kQueries;
      const unsigned char* values = stage_at(stage, true);
      const float* e = scores + query * kStreamScores;
      float o[kQueries][kElements], l = 0.0f;
      LOCKSTEP_UNROLL
      for (int r = 0; r < kQueries; ++r) {
        LOCKSTEP_UNROLL
        for (int f = 0; f < kElements; ++f) o[r][f] = 0.0f;
      }
      const auto value = [&](int j0, int i, float(&v)[kElements]) {  // of key j0 + i, 4 divides j0
        const unsigned char* from =
            values + (j0 + i) * Shared::kRow + page_byte<Own>(i, 2 * kElements * run);
        if constexpr (kElements == 4) {
          const Floats4 four = four_halves(from);
          LOCKSTEP_UNROLL
          for (int f = 0; f < 4; ++f) v[f] = four.x[f];
        } else {
          const uint32_t two = *reinterpret_cast<const uint32_t*>(from);
          v[0] = half_to_float(two & 0xFFFFu);
          v[1] = half_to_float(two >> 16);
        }
      };
      if (whole) {
        LOCKSTEP_UNROLL_BY(2)
        for (int j = 0; j < kStreamKeys; j += 4) {
          Floats4 p[kQueries];
          LOCKSTEP_UNROLL
          for (int r = 0; r < kQueries; ++r) {
            p[r] = *reinterpret_cast<const Floats4*>(e + r * kStreamScores + j);
          }
          const Floats4 own = *reinterpret_cast<const Floats4*>(e + summed * kStreamScores + j);
          LOCKSTEP_UNROLL
          for (int i = 0; i < 4; ++i) {
            float v[kElements];
            value(j, i, v);
            LOCKSTEP_UNROLL
            for (int r = 0; r < kQueries; ++r) {
              LOCKSTEP_UNROLL
              for (int f = 0; f < kElements; ++f) {
                o[r][f] = math::fma_rn(p[r].x[i], v[f], o[r][f]);
              }
            }
            l = l + own.x[i];
          }
        }
      } else {
        int from[kQueries], to[kQueries];
        LOCKSTEP_UNROLL
        for (int r = 0; r < kQueries; ++r) {
          from[r] = first_of(rows[query + r]);
          to[r] = end_of(rows[query + r]);
        }
        LOCKSTEP_UNROLL_BY(1)
        for (int j = 0; j < kStreamKeys; ++j) {
          float v[kElements];
          value(j / 4 * 4, j % 4, v);
          LOCKSTEP_UNROLL
          for (int r = 0; r < kQueries; ++r) {
            if (j < from[r] || j >= to[r]) continue;
            const float p = e[r * kStreamScores + j];
            if (r == summed) l = l + p;
            LOCKSTEP_UNROLL
            for (int f = 0; f < kElements; ++f) o[r][f] = math::fma_rn(p, v[f], o[r][f]);
          }
        }
      }
      LOCKSTEP_UNROLL
      for (int r = 0; r < kQueries; ++r) {
        if (query + r >= queries) continue;
        if (!whole && first_of(rows[query + r]) >= end_of(rows[query + r])) continue;
        float* to = partial_of(query + r);
        if (run == r) to[1] = l;
        to += 2 + kElements * run;
        LOCKSTEP_UNROLL
        for (int f = 0; f < kElements; f += 2) {
          *reinterpret_cast<Floats2*>(to + f) = {{o[r][f], o[r][f + 1]}};
        }
      }
    }
    if constexpr (!kTwice) {
      wait_copies<0>();
      __syncthreads();
      copy(stage, true, next_v);
    }
  }
}

// Calls use with the head's size and whether a block's queries are many, both as constants.
template <typename Use>
auto with_stream_kind(int64_t head_dim, int queries, const Use& use) {
  constexpr int kFew = 8;
  const auto of = [&](auto dim) {
    return queries <= kFew ? use(dim, std::false_type{}) : use(dim, std::true_type{});
  };
  return head_dim == 64    ? of(std::integral_constant<int, 64>{})
         : head_dim == 128 ? of(std::integral_constant<int, 128>{})
                           : of(std::integral_constant<int, 256>{});
}
inline int stream_bytes(int64_t head_dim, int queries) {
  return with_stream_kind(head_dim, queries, [&](auto dim, auto many) {
    return StreamShared<StreamKind<dim(), many()>>(queries).bytes;
  });
}
inline bool fits_stream(const AttentionUnitsArgs& args, int queries) {
  const int64_t dim = args.head_dim;
  return args.unit_pages == 1 && args.kv.k_type == KvType::f16 && args.kv.v_type == KvType::f16 &&
         (dim == 64 || dim == 128 || dim == 256) &&
         stream_bytes(dim, queries) <= LOCKSTEP_MOST_SHARED;
}

void attention_stream(AttentionUnitsArgs args, Stream stream) {
  const int64_t all = args.rows * (args.n_head / args.kv.n_head_kv);
  args.queries = kMostStreamed;
  while (args.queries > kStreamTogether &&
         (args.queries / 2 >= all || !fits_stream(args, args.queries))) {
    args.queries /= 2;
  }
  with_stream_kind(args.head_dim, args.queries, [&](auto dim, auto many) {
    using Own = StreamKind<dim(), many()>;
    const int shared = StreamShared<Own>(args.queries).bytes;
    // As many blocks as run at a time, so that all pages of a launch are under way in turn. A
    // multiprocessor has 228 kB (sm_90), of which a block costs one.
    const int fit = (228 << 10) / (shared + 1024);
    const int64_t together = int64_t{fit < Own::kBlocks ? fit : Own::kBlocks} * args.processors;
    const int64_t own = args.kv.n_head_kv * ((all + args.queries - 1) / args.queries);
    const int64_t most = together > own ? together / own : 1;
    const int64_t shares = args.units < most ? args.units : most;
    LOCKSTEP_LAUNCH((attention_stream_kernel<dim(), many()>), blocks_for(own * shares, 1),
                    Own::kThreads, shared, stream, args);
  });
}

}  // namespace
}  // namespace lockstep::kernels::cuda
