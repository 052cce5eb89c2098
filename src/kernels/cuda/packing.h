// Quantised matrices in the device's order (formats.h): made on the CPU, tiles at a time, while the
// file is read. Codes are those of docs/numerics/weight-types.md "In the product". They keep the
// bits of their type (Q2_K and Q3_K: four a code), factors stay binary16, so a packed matrix is as
// large as the file's, within 3 % (Q2_K and Q3_K: within 80 and 30 %).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/formats.h"
#include "kernels/types.h"

namespace lockstep::kernels::cuda {

// type is quantised: activation_form is not f32.
Format format_of(TensorType type);

// Bytes of a tile of rows, and tiles of a matrix. The type's blocks divide n_in.
int64_t tile_bytes(Format format, int64_t n_in);
constexpr int64_t tiles_of(int64_t n_out) {
  return (n_out + kTileRows - 1) / kTileRows;
}

// Tiles [begin, begin + tiles) of the matrix into `packed`.
void pack_tiles(const Weight& weight, int64_t begin, int64_t tiles, std::byte* packed);

// Codes::table: what the sixteen indices of a type stand for.
struct CodeTable {
  uint32_t words[4] = {};
};
CodeTable code_table(TensorType type);
// Whether d lies there as the upper half of a binary32.
constexpr bool has_wide_d(TensorType type) {
  return type == TensorType::mxfp4;
}

}  // namespace lockstep::kernels::cuda
