// Product of quantised activations and a quantised weight matrix.
//
// Formula    out[r][n] = Σ_k w[n][k]·x[r][k]  (+ bias[n], one addition, where there is one)
// Shapes     weight n_out rows of n_in; x quantised in activation_form(weight.type), n = n_in;
//            out [rows][n_out].
// Item       16 consecutive output columns (the last may be fewer), for all rows of the pass.
// Order      A segment is 256 consecutive elements of K, the last may be shorter. In a segment
//            q32 types: acc from +0, blocks of 32 ascending, acc = fma(float(isum), d_w·d_x, acc);
//              Q4_1, Q5_1 then acc = fma(m_w, d_x·float(Σ q), acc).
//            q256 types: t = Σ scale_j·isum_j, u = Σ min_j·sum_j in int32;
//              acc = float(t)·(d_w·d_x); Q2_K, Q4_K, Q5_K then
//              acc = fma(-float(u), dmin_w·d_x, acc).
//            Segment s is added to lane s mod 8 (from +0), ascending; then
//            ((0+1)+(2+3))+((4+5)+(6+7)), lanes without a segment included; then the bias.
//            Codes are signed where the format has an implied offset (Q4_0 -8, Q5_0 -16, Q3_K -4,
//            Q6_K -32) or a table of codes (IQ4_NL, IQ4_XS, MXFP4).
//            Integer dots are exact: any inner order.
// Aliasing   none.
// Bytes      n_out·row_bytes + rows·(n_in·(1 + 4/32 + 4/block) + 4·n_out).
// Faults     none of its own; an overflow is seen downstream.
#pragma once

#include "kernels/ops/quantize_activations.h"
#include "kernels/types.h"

namespace lockstep::kernels {

struct MatmulQuantizedArgs {
  const Weight* weight = nullptr;
  const std::byte* packed = nullptr;  // the matrix in the table's packing; null where it has none,
                                      // and weight->data is read
  const float* bias = nullptr;
  QuantizedActivations x;
  int64_t rows = 0;
  float* out = nullptr;

  int64_t items() const { return (weight->n_out + 15) / 16; }
};

}  // namespace lockstep::kernels
