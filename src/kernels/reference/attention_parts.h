// What attention carries from page to page, and how rows of keys and values are read: shared by the
// reference and the tile kernels, which differ in how they compute a page.
#pragma once

#include "kernels/math/elementary.h"
#include "kernels/math/half.h"
#include "kernels/ops/attention.h"
#include "kernels/reference/reference.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

// A partial result: m the greatest score, l = Σ exp(s - m), o = Σ exp(s - m)·v.
struct Partial {
  float m, l;
  float* o;
  bool started;
};

// What one query row and head carries from page to page.
struct QueryState {
  Partial span, result;
  int64_t span_index;
};

// Elements of a row of values, rounded up so that every row starts on a cache line.
inline int64_t padded(int64_t head_dim) {
  return (head_dim + 15) / 16 * 16;
}

inline void read_row(KvType type, const std::byte* in, int64_t head_dim, float* out) {
  switch (type) {
    case KvType::f32:
      for (int64_t i = 0; i < head_dim; ++i) out[i] = load<float>(in + 4 * i);
      break;
    case KvType::f16:
      for (int64_t i = 0; i < head_dim; ++i) out[i] = math::f16_to_f32(load<uint16_t>(in + 2 * i));
      break;
    case KvType::q8_0:
      for (int64_t i = 0; i < head_dim; i += 32, in += 34) {
        const float d = math::f16_to_f32(load<uint16_t>(in));
        const auto* q = reinterpret_cast<const int8_t*>(in + 2);
        for (int j = 0; j < 32; ++j) out[i + j] = static_cast<float>(q[j]) * d;
      }
      break;
    case KvType::q4_0:
      for (int64_t i = 0; i < head_dim; i += 32, in += 18) {
        const float d = math::f16_to_f32(load<uint16_t>(in));
        const auto* q = reinterpret_cast<const uint8_t*>(in + 2);
        for (int j = 0; j < 16; ++j) {
          out[i + j] = static_cast<float>((q[j] & 15) - 8) * d;
          out[i + j + 16] = static_cast<float>((q[j] >> 4) - 8) * d;
        }
      }
      break;
  }
}

// Adds b to a: the law's merge of two partial results.
inline void merge(Partial& a, const Partial& b, int64_t head_dim) {
  if (!a.started) {
    a.m = b.m;
    a.l = b.l;
    for (int64_t i = 0; i < head_dim; ++i) a.o[i] = b.o[i];
    a.started = true;
    return;
  }
  const float m = larger(a.m, b.m);
  const float e_a = math::exp_nonpos(a.m - m);
  const float e_b = math::exp_nonpos(b.m - m);
  a.l = math::fma_rn(b.l, e_b, a.l * e_a);
  for (int64_t i = 0; i < head_dim; ++i) a.o[i] = math::fma_rn(b.o[i], e_b, a.o[i] * e_a);
  a.m = m;
}

// Merges the span before into the result when page `index` begins another one.
inline void enter_page(QueryState& state, int64_t index, int64_t head_dim) {
  if (state.span.started && state.span_index != index / kSpanPages) {
    merge(state.result, state.span, head_dim);
    state.span.started = false;
  }
  state.span_index = index / kSpanPages;
}

// The first position that a row at `position` sees.
inline int64_t first_visible(const AttentionArgs& args, int64_t position) {
  return args.window > 0 ? larger<int64_t>(0, position - args.window + 1) : 0;
}

// One item: rows [first, first + rows) of a kv head, and the positions whose pages it goes through.
struct Work {
  int64_t first, rows, kv_head;
  Range positions;
  float* partials;  // of this item, where spans are cut; null: the result is wanted
};

inline Work work_of(const AttentionArgs& args, int64_t item) {
  const bool cut = args.spans.cut;
  const int64_t tile_and_head = cut ? item / args.spans.count : item;
  Work work{};
  work.first = tile_and_head / args.kv->n_head_kv * kAttentionTileRows;
  work.rows = smaller(kAttentionTileRows, args.rows - work.first);
  work.kv_head = tile_and_head % args.kv->n_head_kv;
  work.positions = {first_visible(args, args.first_position + work.first),
                    args.first_position + work.first + work.rows};
  if (cut) {
    constexpr int64_t kPositions = kSpanPages * kPagePositions;
    const int64_t span = args.spans.first + item % args.spans.count;
    work.positions = {larger(work.positions.begin, span * kPositions),
                      smaller(work.positions.end, (span + 1) * kPositions)};
    const int64_t group = args.n_head / args.kv->n_head_kv;
    work.partials =
        args.spans.partials + item * kAttentionTileRows * group * (16 + padded(args.head_dim));
  }
  return work;
}

// Row `row` of the item and head g of its group.
inline float* out_of(const AttentionArgs& args, const Work& work, int64_t row, int64_t g) {
  const int64_t head = work.kv_head * (args.n_head / args.kv->n_head_kv) + g;
  return args.out + ((work.first + row) * args.n_head + head) * args.head_dim;
}

// out = o ÷ l; or of a cut item, its one span for later: m, l, whether it has a key, 13 unused, o.
inline void finish(const AttentionArgs& args, const Work& work, int64_t row, int64_t g,
                   QueryState& state) {
  const int64_t group = args.n_head / args.kv->n_head_kv;
  if (work.partials) {
    float* partial = work.partials + (row * group + g) * (16 + padded(args.head_dim));
    partial[0] = state.span.m;
    partial[1] = state.span.l;
    partial[2] = state.span.started ? 1.0f : 0.0f;
    for (int64_t i = 0; i < args.head_dim; ++i) partial[16 + i] = state.span.o[i];
    return;
  }
  merge(state.result, state.span, args.head_dim);
  float* out = out_of(args, work, row, g);
  for (int64_t i = 0; i < args.head_dim; ++i) out[i] = state.result.o[i] / state.result.l;
}

// After an item of a cut tile and head: the last one merges their spans, ascending.
inline void merge_if_last(const AttentionArgs& args, const Work& work, int64_t item) {
  if (!work.partials) return;
  int32_t* done = args.spans.done + item / args.spans.count;
  if (__atomic_add_fetch(done, 1, __ATOMIC_ACQ_REL) < args.spans.count) return;
  __atomic_store_n(done, 0, __ATOMIC_RELAXED);
  const int64_t group = args.n_head / args.kv->n_head_kv, each = 16 + padded(args.head_dim);
  float* first = work.partials - item % args.spans.count * kAttentionTileRows * group * each;
  for (int64_t query = 0; query < work.rows * group; ++query) {
    float* out = out_of(args, work, query / group, query % group);
    Partial result{0.0f, 0.0f, out, false};
    for (int64_t span = 0; span < args.spans.count; ++span) {
      float* partial = first + (span * kAttentionTileRows * group + query) * each;
      if (partial[2] == 0.0f) continue;
      merge(result, {partial[0], partial[1], partial + 16, true}, args.head_dim);
    }
    for (int64_t i = 0; i < args.head_dim; ++i) out[i] = out[i] / result.l;
  }
}

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
