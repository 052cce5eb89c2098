// Token ids to rows.
//
// Formula    out[r][i] = value(table[tokens[r]][i]) · scale
//            value: the element of the weight block as docs/numerics.md "Weight types" rounds it
//            (d·q, 256-types (d·scale)·q, then the minimum), then one multiplication by scale, also
//            where scale is 1.
// Shapes     tokens [rows]; table n_out = n_vocab rows of n_in = n_embd; out [rows][n_embd].
// Item       one row.
// Order      elementwise.
// Aliasing   none.
// Bytes      rows · (table row_bytes + 4·n_embd).
// Faults     none (a file's scales are checked when it is opened). Ids are in [0, n_out): the
//            caller's duty.
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

struct EmbedArgs {
  const Weight* table = nullptr;
  const int32_t* tokens = nullptr;
  float scale = 1.0f;
  int64_t rows = 0;
  float* out = nullptr;

  int64_t items() const { return rows; }
};

}  // namespace lockstep::kernels
