// Embedding rows: elements of weight blocks as the file has them (docs/numerics/weight-types.md),
// one rounding per operator, times the model's scale.
#pragma once

#include <type_traits>

#include "kernels/cuda/device_code.cuh"
#include "quant/blocks.h"

namespace lockstep::kernels::cuda {
namespace {

// Element i of a block. A product of a scale, an integer sub-scale and a code is exact.
template <typename Block>
__device__ inline float block_value(const Block& b, int i) {
  const auto x = static_cast<float>(quant::code(b, i));
  if constexpr (std::is_same_v<Block, quant::BlockMXFP4>) {
    return quant::scale_mxfp4(b.e) * x;
  } else {
    const float d = half_to_float(b.d);
    if constexpr (std::is_same_v<Block, quant::BlockQ2_K>) {
      return d * static_cast<float>(quant::sub_scale(b, i / 16)) * x -
             half_to_float(b.dmin) * static_cast<float>(quant::sub_min(b, i / 16));
    } else if constexpr (requires { b.dmin; }) {
      const quant::ScaleMin sub = quant::scale_min_k(b.scales, i / 32);
      return d * static_cast<float>(sub.scale) * x -
             half_to_float(b.dmin) * static_cast<float>(sub.min);
    } else if constexpr (requires { b.m; }) {
      return d * x + half_to_float(b.m);
    } else if constexpr (requires { quant::sub_scale(b, 0); }) {
      constexpr int kSub = std::is_same_v<Block, quant::BlockIQ4_XS> ? 32 : 16;
      return d * static_cast<float>(quant::sub_scale(b, i / kSub)) * x;
    } else {
      return d * x;
    }
  }
}

template <typename Block, int kElements>
__device__ inline float in_blocks(const std::byte* row, int i) {
  return block_value(reinterpret_cast<const Block*>(row)[i / kElements], i % kElements);
}

// Element i of a row of a table.
__device__ inline float row_value(TensorType type, const std::byte* row, int i) {
  switch (type) {
    case TensorType::f32:
      return reinterpret_cast<const float*>(row)[i];
    case TensorType::f16:
      return half_to_float(reinterpret_cast<const uint16_t*>(row)[i]);
    case TensorType::bf16:
      return math::bf16_to_f32(reinterpret_cast<const uint16_t*>(row)[i]);
    case TensorType::q4_0:
      return in_blocks<quant::BlockQ4_0, 32>(row, i);
    case TensorType::q4_1:
      return in_blocks<quant::BlockQ4_1, 32>(row, i);
    case TensorType::q5_0:
      return in_blocks<quant::BlockQ5_0, 32>(row, i);
    case TensorType::q5_1:
      return in_blocks<quant::BlockQ5_1, 32>(row, i);
    case TensorType::q8_0:
      return in_blocks<quant::BlockQ8_0, 32>(row, i);
    case TensorType::q2_k:
      return in_blocks<quant::BlockQ2_K, 256>(row, i);
    case TensorType::q3_k:
      return in_blocks<quant::BlockQ3_K, 256>(row, i);
    case TensorType::q4_k:
      return in_blocks<quant::BlockQ4_K, 256>(row, i);
    case TensorType::q5_k:
      return in_blocks<quant::BlockQ5_K, 256>(row, i);
    case TensorType::q6_k:
      return in_blocks<quant::BlockQ6_K, 256>(row, i);
    case TensorType::iq4_nl:
      return in_blocks<quant::BlockIQ4_NL, 32>(row, i);
    case TensorType::iq4_xs:
      return in_blocks<quant::BlockIQ4_XS, 256>(row, i);
    default:
      return in_blocks<quant::BlockMXFP4, 32>(row, i);
  }
}

// A thread has an element.
__device__ inline void embed_element(const EmbedRowsArgs& args, int64_t at) {
  if (at >= args.rows * args.width) return;
  const int width = static_cast<int>(args.width);
  const int row = static_cast<int>(at / width), i = static_cast<int>(at % width);
  args.out[at] = row_value(args.type, args.encoded + row * args.row_bytes, i) * args.scale;
}

}  // namespace
}  // namespace lockstep::kernels::cuda
