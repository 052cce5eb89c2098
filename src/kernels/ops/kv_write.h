// Key and value rows of one sequence into its pages, in the cache's type.
//
// Formula    f32: as it is. f16: round to nearest even.
//            q8_0: per 32 elements a = max|x|; a < 2^-100: d = 0, q = 0; otherwise r = 127 ÷ a,
//            q = roundeven(x·r) as int8, stored d = f16(a ÷ 127), then the 32 q (34 bytes a block).
//            q4_0: per 32 elements v = the first of greatest |x|; |v| < 2^-100: d = 0, q = 8;
//            otherwise d = v ÷ -8, r = 1 ÷ d, q = min(15, trunc(x·r + 8.5)), stored f16(d), then q
//            of elements i (low) and i + 16 (high) in byte i (18 bytes a block).
// Shapes     k, v [rows][n_head_kv·head_dim]; row i is position first_position + i, in page
//            position ÷ 64 at [head][position mod 64] (types.h).
// Item       one kv head of one row, its K and its V: item = row·n_head_kv + head.
// Order      elementwise; max is exact.
// Aliasing   none.
// Bytes      rows·n_head_kv·(8·head_dim + kv_row_bytes of K and of V).
// Faults     an element with all exponent bits set; f16: a value that rounds to infinity (from
//            65520 on); q8_0, q4_0: the f16 factor infinite. What is stored then is 0 (the element;
//            q8_0, q4_0: the block), so that no page ever holds a value that is not finite.
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

struct KvWriteArgs {
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t rows = 0, first_position = 0;
  const KvLayerView* kv = nullptr;
  FaultFlags faults;  // of this segment's first row

  int64_t items() const { return rows * kv->n_head_kv; }
};

}  // namespace lockstep::kernels
