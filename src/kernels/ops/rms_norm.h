// Root mean square norm of each group of a row (the whole row, or each head).
//
// Formula    ss = Σ x², r = 1 ÷ sqrt(ss ÷ float(group) + eps), y = (x·r)·weight
// Shapes     x, y [rows][width]; width = k·group; weight [group], shared by the groups.
// Item       one group of one row: item = row·(width ÷ group) + group index.
// Order      ss: 256 lanes from +0, element i to lane i mod 256, ascending, lane = fma(x, x, lane);
//            then tree(256): for h = 128, 64 … 1: lane[i] += lane[i+h], i < h. Lanes beyond a short
//            group stay +0 and are added all the same.
// Aliasing   y may be x.
// Bytes      rows·width·8 + group·4.
// Faults     ss with all exponent bits set (an infinite or NaN element, or the sum overflows).
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

struct RmsNormArgs {
  const float* x = nullptr;
  const float* weight = nullptr;
  float* y = nullptr;
  int64_t rows = 0, width = 0, group = 0;
  float eps = 0.0f;
  FaultFlags faults;

  int64_t items() const { return rows * (width / group); }
};

}  // namespace lockstep::kernels
