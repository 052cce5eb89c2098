// Keeps some rows of a pass, in their order.
//
// Formula    out[r] = in[index[r]]
// Shapes     in [*][width]; index [rows], ascending; out [rows][width].
// Item       one kept row.
// Order      a copy, bit for bit.
// Aliasing   none.
// Bytes      rows·width·8.
// Faults     none.
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

struct SelectRowsArgs {
  const float* in = nullptr;
  const int64_t* index = nullptr;
  float* out = nullptr;
  int64_t rows = 0, width = 0;

  int64_t items() const { return rows; }
};

}  // namespace lockstep::kernels
