// Causal attention of one sequence's rows over its pages, K and V as the cache holds them.
//
// Formula    query head h reads kv head h ÷ (n_head ÷ n_head_kv). For the row at position P, keys
//            max(0, P - window + 1) … P (window 0: 0 … P) are unmasked; a masked key is skipped.
//            score s_j = tree16(q·k_j)·scale, then, with a cap, s_j = cap·tanh(s_j ÷ cap).
//            q8_0 values are float(q)·d, q4_0 values float(q - 8)·d; no integer dot.
// Shapes     q, out [rows][n_head·head_dim]; row i is position first_position + i.
// Item       one tile of kAttentionTileRows consecutive rows (the last may be shorter) and one kv
//            head: item = tile·n_head_kv + kv head. Cut along the keys, too (AttentionSpans):
//            item = (tile·n_head_kv + kv head)·spans + span.
// Order      Score: 16 lanes from +0, element i to lane i mod 16, ascending,
//            lane = fma(q, k, lane); tree(16).
//            Page (64 absolute positions), unmasked keys by ascending j: m = max s_j; from l = +0,
//            o = +0: p = exp(s_j - m); l += p; o[d] = fma(p, v_j[d], o[d]).
//            Merging a (so far) and b (next): m = max; e_a = exp(m_a - m); e_b = exp(m_b - m);
//            l = fma(l_b, e_b, l_a·e_a); o likewise.
//            Pages merge ascending in a span of 16 absolute pages, spans ascending; the first page
//            with an unmasked key starts its span as it is, the first such span starts the result.
//            Then o ÷ l.
// Aliasing   out may not be q.
// Bytes      per row and kv head: K and V row bytes of every unmasked position once per tile;
//            rows·n_head·head_dim·8 for q and out.
// Faults     a score (after ·scale, before the cap) with all exponent bits set: max and tanh would
//            hide it. It counts as 0 then.
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

inline constexpr int64_t kAttentionTileRows = 8;

// Where tiles and heads are fewer than workers, the spans of keys are items of their own: each
// leaves its partial result, and who finishes the last of a tile and head merges all in the law's
// order.
struct AttentionSpans {
  int64_t first = 0, count = 1;  // those with a key that some row of the segment sees
  bool cut = false;              // only then is the rest used
  float* partials = nullptr;     // attention_partial_floats for each item
  int32_t* done = nullptr;       // [tile·n_head_kv + kv head], zero before and after
};

struct AttentionArgs {
  const float* q = nullptr;
  float* out = nullptr;
  int64_t rows = 0, first_position = 0;
  int64_t n_head = 0, head_dim = 0;
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  int64_t window = 0;    // 0: none
  const KvLayerView* kv = nullptr;
  FaultFlags faults;  // of this segment's first row
  AttentionSpans spans = {};

  int64_t tiles_and_heads() const {
    return (rows + kAttentionTileRows - 1) / kAttentionTileRows * kv->n_head_kv;
  }
  int64_t items() const { return tiles_and_heads() * (spans.cut ? spans.count : 1); }
};

// first and count of AttentionSpans for these rows (at least one).
AttentionSpans attention_spans(const AttentionArgs& args);
int64_t attention_partial_floats(int64_t head_dim, int64_t n_head, int64_t n_head_kv);

// Bytes of scratch one worker needs, 64-byte aligned.
int64_t attention_scratch_bytes(int64_t head_dim, int64_t n_head, int64_t n_head_kv);

}  // namespace lockstep::kernels
