// The last look at a pass: logits that are not finite may not be sampled from or hashed.
//
// Formula    none: reads only.
// Shapes     x [rows][width].
// Item       256 consecutive elements of one row (the last of a row may be shorter):
//            item = row·ceil(width ÷ 256) + index.
// Bytes      rows·width·4.
// Faults     an element with all exponent bits set.
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

struct CheckLogitsArgs {
  const float* x = nullptr;
  int64_t rows = 0, width = 0;
  FaultFlags faults;

  int64_t items() const { return rows * ((width + 255) / 256); }
};

}  // namespace lockstep::kernels
