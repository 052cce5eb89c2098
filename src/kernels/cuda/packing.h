// A quantised matrix as the device's kernels read it (DeviceMatrix): codes one byte each, factors
// in binary32, each in an array of its own. Made on the CPU, rows at a time, while the file is
// read.
//
// Codes are those of docs/numerics/weight-types.md "In the product", offsets taken off. Bytes an
// element: q32 types 1 + 4/32 (with a minimum 1 + 8/32), q256 types 1 + 1/16 + 4/256 (with a
// minimum 1 + 2/16 + 8/256): of four-bit types about twice the file's.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace lockstep::kernels::cuda {

// Where the arrays of `rows` rows begin, in bytes from a 256-byte aligned start; each is contiguous
// over all rows. -1: the type has none.
struct PackedLayout {
  int64_t codes = 0, d = -1, m = -1, scales = -1, mins = -1;
  int64_t bytes = 0;  // of all
  bool superblocks = false;
};

// type is quantised (activation_form is not f32); its blocks divide n_in.
PackedLayout packed_layout(TensorType type, int64_t n_in, int64_t rows);

// Rows [begin, begin + rows) of the matrix into `packed`, laid out as packed_layout(…, rows) says.
void pack_rows(const Weight& weight, int64_t begin, int64_t rows, std::byte* packed);

}  // namespace lockstep::kernels::cuda
