// Weight blocks to binary32, as docs/numerics.md "Weight types" defines each value (the order of
// its roundings is part of the law: embedding rows are read this way).
#pragma once

#include <cstddef>
#include <cstdint>

#include "gguf/types.h"

namespace lockstep::quant {

// True for the weight types this build computes with.
bool is_supported(gguf::TensorType type);

// n values from blocks at src; n is a multiple of the type's block_elements. type must be
// supported.
void dequantize_row(gguf::TensorType type, const std::byte* src, float* dst, int64_t n);

// Whether every scale (f16 or f32 factor) of the row is finite; a float row: every element.
bool row_is_finite(gguf::TensorType type, const std::byte* src, int64_t n);

}  // namespace lockstep::quant
