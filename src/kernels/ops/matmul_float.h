// Product of binary32 activations and a float weight matrix (F32, F16, BF16).
//
// Formula    out[r][n] = Σ_k w[n][k]·x[r][k]  (+ bias[n], one addition, where there is one);
//            weights converted to binary32 exactly.
// Shapes     weight n_out rows of n_in (any n_in); x [rows][n_in]; out [rows][n_out].
// Item       16 consecutive output columns (the last may be fewer), for all rows of the pass.
// Order      16 lanes from +0, element i to lane i mod 16, ascending, lane = fma(w, x, lane);
//            then tree(16): for h = 8, 4, 2, 1: lane[i] += lane[i+h], i < h; then the bias.
// Aliasing   none.
// Bytes      n_out·row_bytes + rows·4·(n_in + n_out).
// Faults     none of its own; a non-finite x or an overflow is seen downstream.
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

struct MatmulFloatArgs {
  const Weight* weight = nullptr;
  const float* bias = nullptr;
  const float* x = nullptr;
  int64_t rows = 0;
  float* out = nullptr;

  int64_t items() const { return (weight->n_out + 15) / 16; }
};

}  // namespace lockstep::kernels
