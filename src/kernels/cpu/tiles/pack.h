// Puts a quantised matrix of the file into the order of the tile kernels (layout.h).
#pragma once

#include "kernels/cpu/kernels.h"

namespace lockstep::kernels::tiles {

extern const Packing kPacking;

int64_t packed_bytes(const Weight& weight);

}  // namespace lockstep::kernels::tiles
