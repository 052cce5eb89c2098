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

// out = o ÷ l
inline void finish(QueryState& state, int64_t head_dim, float* out) {
  merge(state.result, state.span, head_dim);
  for (int64_t i = 0; i < head_dim; ++i) out[i] = state.result.o[i] / state.result.l;
}

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
