// binary32 rows to weight blocks, for synthetic models and tests. Not part of the law (files come
// quantised): simple nearest rounding, deterministic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gguf/types.h"

namespace lockstep::quant {

// n is a multiple of the type's block_elements; dst has room for all blocks; type is supported
// (dequantize.h). Blocks of finite values are finite: a scale too large for f16 is cut to its
// greatest.
void quantize_row(gguf::TensorType type, const float* src, std::byte* dst, int64_t n);

}  // namespace lockstep::quant
