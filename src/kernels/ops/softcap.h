// Soft cap of a row, in place (final logits of some models).
//
// Formula    x = cap·tanh(x ÷ cap): division, tanh, multiplication, each rounded.
// Shapes     x [rows][width].
// Item       256 consecutive elements of one row (the last of a row may be shorter):
//            item = row·ceil(width ÷ 256) + index.
// Order      elementwise.
// Aliasing   in place.
// Bytes      rows·width·8.
// Faults     an element of x with all exponent bits set: tanh would hide it.
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

struct SoftcapArgs {
  float* x = nullptr;
  int64_t rows = 0, width = 0;
  float cap = 0.0f;
  FaultFlags faults;

  int64_t items() const { return rows * ((width + 255) / 256); }
};

}  // namespace lockstep::kernels
