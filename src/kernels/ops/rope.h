// Rotary position embedding, in place.
//
// Formula    per pair i < n_rot ÷ 2 of every head, (x0, x1) at (2i, 2i+1) (adjacent) or
//            (i, i + n_rot ÷ 2) (halves):
//            y0 = fma(x0, c, -(x1·s)), y1 = fma(x1, c, x0·s)
//            c, s: the table row of the position, made in binary64 (docs/numerics/rotary.md,
//            kernels/rope_table.h). Elements from n_rot on are left as they are.
// Shapes     x [rows][n_head·head_dim]; cos, sin [rows][n_rot ÷ 2].
// Item       one head of one row: item = row·n_head + head.
// Order      elementwise.
// Aliasing   in place.
// Bytes      rows·n_head·n_rot·8 + rows·n_rot·4.
// Faults     none; what is not finite stays so.
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

struct RopeArgs {
  float* x = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t rows = 0, n_head = 0, head_dim = 0, n_rot = 0;
  bool halves = false;

  int64_t items() const { return rows * n_head; }
};

}  // namespace lockstep::kernels
