#include "kernels/cuda/packing.h"

#include <cstring>
#include <stdexcept>
#include <type_traits>

#include "base/half.h"
#include "kernels/ops/quantize_activations.h"
#include "quant/blocks.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;

struct Arrays {
  int8_t* codes;
  float* d;
  float* m;
  int8_t* scales;
  uint8_t* mins;
};

template <typename Block>
Block load(const std::byte* at) {
  Block block;
  std::memcpy(&block, at, sizeof block);
  return block;
}

// Block `index` of all.
template <typename Block>
void unpack32(const std::byte* at, int64_t index, const Arrays& to) {
  const auto block = load<Block>(at);
  for (int i = 0; i < 32; ++i) {
    to.codes[32 * index + i] = static_cast<int8_t>(quant::code(block, i));
  }
  if constexpr (requires { block.e; }) {
    to.d[index] = quant::scale_mxfp4(block.e);
  } else {
    to.d[index] = f16_to_f32(block.d);
  }
  if constexpr (requires { block.m; }) to.m[index] = f16_to_f32(block.m);
}

template <typename Block>
void unpack256(const std::byte* at, int64_t index, const Arrays& to) {
  const auto block = load<Block>(at);
  for (int i = 0; i < 256; ++i) {
    to.codes[256 * index + i] = static_cast<int8_t>(quant::code(block, i));
  }
  to.d[index] = f16_to_f32(block.d);
  if constexpr (requires { block.dmin; }) to.m[index] = f16_to_f32(block.dmin);
  for (int j = 0; j < 16; ++j) {
    const int64_t to_part = 16 * index + j;
    if constexpr (!requires { quant::sub_scale(block, 0); }) {  // Q4_K, Q5_K: one for 32 elements
      const quant::ScaleMin pair = quant::scale_min_k(block.scales, j / 2);
      to.scales[to_part] = static_cast<int8_t>(pair.scale);
      to.mins[to_part] = pair.min;
    } else {
      const int sub = std::is_same_v<Block, quant::BlockIQ4_XS> ? j / 2 : j;  // it has eight
      to.scales[to_part] = static_cast<int8_t>(quant::sub_scale(block, sub));
      if constexpr (requires { quant::sub_min(block, 0); }) {
        to.mins[to_part] = static_cast<uint8_t>(quant::sub_min(block, j));
      }
    }
  }
}

void (*unpacker(TensorType type))(const std::byte*, int64_t, const Arrays&) {
  switch (type) {
    case TensorType::q4_0:
      return unpack32<quant::BlockQ4_0>;
    case TensorType::q4_1:
      return unpack32<quant::BlockQ4_1>;
    case TensorType::q5_0:
      return unpack32<quant::BlockQ5_0>;
    case TensorType::q5_1:
      return unpack32<quant::BlockQ5_1>;
    case TensorType::q8_0:
      return unpack32<quant::BlockQ8_0>;
    case TensorType::iq4_nl:
      return unpack32<quant::BlockIQ4_NL>;
    case TensorType::mxfp4:
      return unpack32<quant::BlockMXFP4>;
    case TensorType::q2_k:
      return unpack256<quant::BlockQ2_K>;
    case TensorType::q3_k:
      return unpack256<quant::BlockQ3_K>;
    case TensorType::q4_k:
      return unpack256<quant::BlockQ4_K>;
    case TensorType::q5_k:
      return unpack256<quant::BlockQ5_K>;
    case TensorType::q6_k:
      return unpack256<quant::BlockQ6_K>;
    case TensorType::iq4_xs:
      return unpack256<quant::BlockIQ4_XS>;
    default:
      throw std::logic_error("packing: a type without blocks");
  }
}

bool has_min(TensorType type) {
  switch (type) {
    case TensorType::q4_1:
    case TensorType::q5_1:
    case TensorType::q2_k:
    case TensorType::q4_k:
    case TensorType::q5_k:
      return true;
    default:
      return false;
  }
}

}  // namespace

PackedLayout packed_layout(TensorType type, int64_t n_in, int64_t rows) {
  PackedLayout layout;
  layout.superblocks = activation_form(type) == ActivationForm::q256;
  const int64_t blocks = rows * n_in / (layout.superblocks ? 256 : 32);
  const auto next = [&](int64_t bytes) {
    const int64_t at = layout.bytes;
    layout.bytes += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  };
  layout.codes = next(rows * n_in);
  layout.d = next(4 * blocks);
  if (has_min(type)) layout.m = next(4 * blocks);
  if (layout.superblocks) layout.scales = next(rows * n_in / 16);
  if (layout.superblocks && has_min(type)) layout.mins = next(rows * n_in / 16);
  return layout;
}

void pack_rows(const Weight& weight, int64_t begin, int64_t rows, std::byte* packed) {
  const PackedLayout layout = packed_layout(weight.type, weight.n_in, rows);
  const auto at = [&](int64_t offset) { return offset < 0 ? nullptr : packed + offset; };
  const Arrays arrays = {
      reinterpret_cast<int8_t*>(at(layout.codes)), reinterpret_cast<float*>(at(layout.d)),
      reinterpret_cast<float*>(at(layout.m)), reinterpret_cast<int8_t*>(at(layout.scales)),
      reinterpret_cast<uint8_t*>(at(layout.mins))};
  const auto unpack = unpacker(weight.type);
  const gguf::TypeInfo& info = gguf::type_info(weight.type);
  const int64_t blocks = weight.n_in / info.block_elements;
  for (int64_t n = 0; n < rows; ++n) {
    const std::byte* row = weight.data + (begin + n) * weight.row_bytes;
    for (int64_t b = 0; b < blocks; ++b) unpack(row + b * info.block_bytes, n * blocks + b, arrays);
  }
}

}  // namespace lockstep::kernels::cuda
