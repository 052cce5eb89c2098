// Sum of two rows (the residual).
//
// Formula    out = a + b
// Shapes     a, b, out [rows][width].
// Item       256 consecutive elements of one row (the last of a row may be shorter):
//            item = row·ceil(width ÷ 256) + index.
// Order      elementwise.
// Aliasing   out may be a or b.
// Bytes      rows·width·12.
// Faults     none; what is not finite stays so.
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

struct AddArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  float* out = nullptr;
  int64_t rows = 0, width = 0;

  int64_t items() const { return rows * ((width + 255) / 256); }
};

}  // namespace lockstep::kernels
