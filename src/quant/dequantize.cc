#include "quant/dequantize.h"

#include <cmath>
#include <cstring>

#include "base/half.h"
#include "quant/blocks.h"

namespace lockstep::quant {
namespace {

using gguf::TensorType;

template <typename Block>
Block load(const std::byte* src, int64_t index) {
  Block block;
  std::memcpy(&block, src + index * static_cast<int64_t>(sizeof(Block)), sizeof(Block));
  return block;
}

// One overload per format: n_values of a block, in the law's order of roundings. The product of an
// f16 scale, an integer sub-scale and a code has at most 24 significant bits, so it is exact and
// only the last operation of a format with a minimum rounds.
void dequantize(const BlockQ4_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(code(b, i));
}
void dequantize(const BlockQ4_1& b, float* y) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(code(b, i)) + m;
}
void dequantize(const BlockQ5_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(code(b, i));
}
void dequantize(const BlockQ5_1& b, float* y) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(code(b, i)) + m;
}
void dequantize(const BlockQ8_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(b.qs[i]);
}

void dequantize(const BlockIQ4_NL& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(code(b, i));
}
void dequantize(const BlockMXFP4& b, float* y) {
  const float d = scale_mxfp4(b.e);
  for (int i = 0; i < 32; ++i) y[i] = d * static_cast<float>(code(b, i));
}

void dequantize(const BlockQ2_K& b, float* y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int i = 0; i < 256; ++i) {
    const float scale = d * static_cast<float>(sub_scale(b, i / 16));
    y[i] = scale * static_cast<float>(code(b, i)) - dmin * static_cast<float>(sub_min(b, i / 16));
  }
}
template <typename Block>
void dequantize_with_min(const Block& b, float* y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int j = 0; j < 8; ++j) {
    const ScaleMin sm = scale_min_k(b.scales, j);
    const float scale = d * static_cast<float>(sm.scale);
    const float min = dmin * static_cast<float>(sm.min);
    for (int i = 32 * j; i < 32 * j + 32; ++i) y[i] = scale * static_cast<float>(code(b, i)) - min;
  }
}
void dequantize(const BlockQ4_K& b, float* y) {
  dequantize_with_min(b, y);
}
void dequantize(const BlockQ5_K& b, float* y) {
  dequantize_with_min(b, y);
}
// Scales of sub-blocks of `kSub` elements, no minimum.
template <int kSub, typename Block>
void dequantize_scaled(const Block& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 256; ++i) {
    y[i] = (d * static_cast<float>(sub_scale(b, i / kSub))) * static_cast<float>(code(b, i));
  }
}
void dequantize(const BlockQ3_K& b, float* y) {
  dequantize_scaled<16>(b, y);
}
void dequantize(const BlockQ6_K& b, float* y) {
  dequantize_scaled<16>(b, y);
}
void dequantize(const BlockIQ4_XS& b, float* y) {
  dequantize_scaled<32>(b, y);
}

template <typename Block, int kElements>
void dequantize_blocks(const std::byte* src, float* dst, int64_t n) {
  for (int64_t i = 0; i < n / kElements; ++i) dequantize(load<Block>(src, i), dst + i * kElements);
}

bool is_finite_f16(uint16_t bits) {
  return (bits & 0x7C00u) != 0x7C00u;
}

template <typename Block>
bool is_finite(const Block& b) {
  if constexpr (requires { b.m; }) return is_finite_f16(b.d) && is_finite_f16(b.m);
  if constexpr (requires { b.dmin; }) return is_finite_f16(b.d) && is_finite_f16(b.dmin);
  return is_finite_f16(b.d);
}
bool is_finite(const BlockMXFP4& b) {
  return b.e != 255;
}

template <typename Block, int kElements>
bool blocks_are_finite(const std::byte* src, int64_t n) {
  for (int64_t i = 0; i < n / kElements; ++i) {
    if (!is_finite(load<Block>(src, i))) return false;
  }
  return true;
}

}  // namespace

bool is_supported(TensorType type) {
  switch (type) {
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::bf16:
    case TensorType::q4_0:
    case TensorType::q4_1:
    case TensorType::q5_0:
    case TensorType::q5_1:
    case TensorType::q8_0:
    case TensorType::q2_k:
    case TensorType::q3_k:
    case TensorType::q4_k:
    case TensorType::q5_k:
    case TensorType::q6_k:
    case TensorType::iq4_nl:
    case TensorType::iq4_xs:
    case TensorType::mxfp4:
      return true;
    default:
      return false;
  }
}

void dequantize_row(TensorType type, const std::byte* src, float* dst, int64_t n) {
  switch (type) {
    case TensorType::f32:
      std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case TensorType::f16:
      for (int64_t i = 0; i < n; ++i) dst[i] = f16_to_f32(load<uint16_t>(src, i));
      return;
    case TensorType::bf16:
      for (int64_t i = 0; i < n; ++i) dst[i] = bf16_to_f32(load<uint16_t>(src, i));
      return;
    case TensorType::q4_0:
      return dequantize_blocks<BlockQ4_0, 32>(src, dst, n);
    case TensorType::q4_1:
      return dequantize_blocks<BlockQ4_1, 32>(src, dst, n);
    case TensorType::q5_0:
      return dequantize_blocks<BlockQ5_0, 32>(src, dst, n);
    case TensorType::q5_1:
      return dequantize_blocks<BlockQ5_1, 32>(src, dst, n);
    case TensorType::q8_0:
      return dequantize_blocks<BlockQ8_0, 32>(src, dst, n);
    case TensorType::q2_k:
      return dequantize_blocks<BlockQ2_K, 256>(src, dst, n);
    case TensorType::q3_k:
      return dequantize_blocks<BlockQ3_K, 256>(src, dst, n);
    case TensorType::q4_k:
      return dequantize_blocks<BlockQ4_K, 256>(src, dst, n);
    case TensorType::q5_k:
      return dequantize_blocks<BlockQ5_K, 256>(src, dst, n);
    case TensorType::q6_k:
      return dequantize_blocks<BlockQ6_K, 256>(src, dst, n);
    case TensorType::iq4_nl:
      return dequantize_blocks<BlockIQ4_NL, 32>(src, dst, n);
    case TensorType::iq4_xs:
      return dequantize_blocks<BlockIQ4_XS, 256>(src, dst, n);
    case TensorType::mxfp4:
      return dequantize_blocks<BlockMXFP4, 32>(src, dst, n);
    default:
      return;
  }
}

bool row_is_finite(TensorType type, const std::byte* src, int64_t n) {
  switch (type) {
    case TensorType::f32:
      for (int64_t i = 0; i < n; ++i) {
        if (!std::isfinite(load<float>(src, i))) return false;
      }
      return true;
    case TensorType::f16:
      for (int64_t i = 0; i < n; ++i) {
        if (!is_finite_f16(load<uint16_t>(src, i))) return false;
      }
      return true;
    case TensorType::bf16:
      for (int64_t i = 0; i < n; ++i) {
        if ((load<uint16_t>(src, i) & 0x7F80u) == 0x7F80u) return false;
      }
      return true;
    case TensorType::q4_0:
      return blocks_are_finite<BlockQ4_0, 32>(src, n);
    case TensorType::q4_1:
      return blocks_are_finite<BlockQ4_1, 32>(src, n);
    case TensorType::q5_0:
      return blocks_are_finite<BlockQ5_0, 32>(src, n);
    case TensorType::q5_1:
      return blocks_are_finite<BlockQ5_1, 32>(src, n);
    case TensorType::q8_0:
      return blocks_are_finite<BlockQ8_0, 32>(src, n);
    case TensorType::q2_k:
      return blocks_are_finite<BlockQ2_K, 256>(src, n);
    case TensorType::q3_k:
      return blocks_are_finite<BlockQ3_K, 256>(src, n);
    case TensorType::q4_k:
      return blocks_are_finite<BlockQ4_K, 256>(src, n);
    case TensorType::q5_k:
      return blocks_are_finite<BlockQ5_K, 256>(src, n);
    case TensorType::q6_k:
      return blocks_are_finite<BlockQ6_K, 256>(src, n);
    case TensorType::iq4_nl:
      return blocks_are_finite<BlockIQ4_NL, 32>(src, n);
    case TensorType::iq4_xs:
      return blocks_are_finite<BlockIQ4_XS, 256>(src, n);
    case TensorType::mxfp4:
      return blocks_are_finite<BlockMXFP4, 32>(src, n);
    default:
      return false;
  }
}

}  // namespace lockstep::quant
