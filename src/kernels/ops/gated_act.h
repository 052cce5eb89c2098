// Gated activation of a feed-forward block.
//
// Formula    out = act(gate)·up, act = silu or gelu (tanh form) of docs/numerics/elementary.md; the
//            activation is rounded, then the product.
// Shapes     gate, up, out [rows][width].
// Item       256 consecutive elements of one row (the last of a row may be shorter):
//            item = row·ceil(width ÷ 256) + index.
// Order      elementwise.
// Aliasing   out may be gate or up.
// Bytes      rows·width·12.
// Faults     a gate element with all exponent bits set: act(-inf) is 0 and would hide it. An up
//            element that is not finite leaves the product not finite, and is seen downstream.
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

struct GatedActArgs {
  const float* gate = nullptr;
  const float* up = nullptr;
  float* out = nullptr;
  int64_t rows = 0, width = 0;
  bool gelu = false;  // otherwise silu
  FaultFlags faults;

  int64_t items() const { return rows * ((width + 255) / 256); }
};

}  // namespace lockstep::kernels
