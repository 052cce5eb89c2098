#include "quant/quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"
#include "quant/blocks.h"

namespace lockstep::quant {
namespace {

using gguf::TensorType;

// A scale that binary16 cannot hold is cut to its greatest value: a finite row gives finite blocks.
uint16_t store_scale(float scale) {
  return f32_to_f16(std::clamp(scale, -65504.0f, 65504.0f));
}

int nearest(float value, int low, int high) {
  return static_cast<int>(
      std::nearbyint(std::clamp(value, static_cast<float>(low), static_cast<float>(high))));
}

// x ÷ d as a code; everything is 0 where the scale is.
int nearest_code(float x, float d, int low, int high) {
  return d == 0.0f ? std::clamp(0, low, high) : nearest(x / d, low, high);
}

// The first element of greatest magnitude, with its sign: it gets the one code that has no
// opposite.
float peak(const float* x, int n) {
  float best = 0.0f;
  for (int i = 0; i < n; ++i) {
    if (std::fabs(x[i]) > std::fabs(best)) best = x[i];
  }
  return best;
}

void set_low_code(uint8_t* qs, int i, int q) {
  qs[i % 16] |= static_cast<uint8_t>((q & 15) << (i / 16 * 4));
}
void set_fifth_bit(uint8_t* qh, int i, int q) {
  qh[i / 8] |= static_cast<uint8_t>((q >> 4 & 1) << (i % 8));
}

void quantize(const float* x, BlockQ4_0& b) {
  b.d = store_scale(peak(x, 32) / -8.0f);
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) set_low_code(b.qs, i, nearest_code(x[i], d, -8, 7) + 8);
}

void quantize(const float* x, BlockQ5_0& b) {
  b.d = store_scale(peak(x, 32) / -16.0f);
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) {
    const int q = nearest_code(x[i], d, -16, 15) + 16;
    set_low_code(b.qs, i, q);
    set_fifth_bit(b.qh, i, q);
  }
}

void quantize(const float* x, BlockQ4_1& b) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  b.d = store_scale((*high - *low) / 15.0f);
  b.m = store_scale(*low);
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int i = 0; i < 32; ++i) set_low_code(b.qs, i, nearest_code(x[i] - m, d, 0, 15));
}

void quantize(const float* x, BlockQ5_1& b) {
  const auto [low, high] = std::minmax_element(x, x + 32);
  b.d = store_scale((*high - *low) / 31.0f);
  b.m = store_scale(*low);
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (int i = 0; i < 32; ++i) {
    const int q = nearest_code(x[i] - m, d, 0, 31);
    set_low_code(b.qs, i, q);
    set_fifth_bit(b.qh, i, q);
  }
}

void quantize(const float* x, BlockQ8_0& b) {
  b.d = store_scale(std::fabs(peak(x, 32)) / 127.0f);
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) b.qs[i] = static_cast<int8_t>(nearest_code(x[i], d, -127, 127));
}

// The index whose code is nearest to value.
int nearest_index(float value, const int8_t (&codes)[16]) {
  const auto nearer = [value](int8_t a, int8_t b) {
    return std::fabs(value - static_cast<float>(a)) < std::fabs(value - static_cast<float>(b));
  };
  return static_cast<int>(std::min_element(codes, codes + 16, nearer) - codes);
}

void quantize(const float* x, BlockIQ4_NL& b) {
  b.d = store_scale(peak(x, 32) / -127.0f);
  const float d = f16_to_f32(b.d);
  for (int i = 0; i < 32; ++i) {
    set_low_code(b.qs, i, nearest_index(d == 0.0f ? 0.0f : x[i] / d, kCodesIQ4));
  }
}

void quantize(const float* x, BlockMXFP4& b) {
  // The greatest value comes to 8 … 16 steps; what is above 12 is cut.
  const float most = std::fabs(peak(x, 32));
  if (most == 0.0f) return;
  b.e = static_cast<uint8_t>(std::clamp(std::ilogb(most) - 3 + 128, 0, 254));
  const float d = scale_mxfp4(b.e);
  for (int i = 0; i < 32; ++i) set_low_code(b.qs, i, nearest_index(x[i] / d, kCodesMXFP4));
}

void quantize(const float* x, BlockQ2_K& b) {
  float scales[16], mins[16];
  for (int j = 0; j < 16; ++j) {
    const auto [low, high] = std::minmax_element(x + 16 * j, x + 16 * j + 16);
    mins[j] = std::max(0.0f, -*low);  // the minimum can only lower values
    scales[j] = std::max(0.0f, (*high + mins[j]) / 3.0f);
  }
  b.d = store_scale(*std::max_element(scales, scales + 16) / 15.0f);
  b.dmin = store_scale(*std::max_element(mins, mins + 16) / 15.0f);
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (int j = 0; j < 16; ++j) {
    const int scale = nearest_code(scales[j], d, 0, 15), min = nearest_code(mins[j], dmin, 0, 15);
    b.scales[j] = static_cast<uint8_t>(scale | min << 4);
    for (int i = 16 * j; i < 16 * j + 16; ++i) {
      const int q =
          nearest_code(x[i] + dmin * static_cast<float>(min), d * static_cast<float>(scale), 0, 3);
      b.qs[i / 128 * 32 + i % 32] |= static_cast<uint8_t>(q << (i / 32 % 4 * 2));
    }
  }
}

void quantize(const float* x, BlockQ3_K& b) {
  float scales[16];
  for (int j = 0; j < 16; ++j) scales[j] = peak(x + 16 * j, 16) / -4.0f;
  b.d = store_scale(std::fabs(peak(scales, 16)) / 31.0f);
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    const int scale = nearest_code(scales[j], d, -32, 31);
    set_sub_scale(b, j, scale);
    for (int i = 16 * j; i < 16 * j + 16; ++i) {
      const int q = nearest_code(x[i], d * static_cast<float>(scale), -4, 3) + 4;
      b.qs[i / 128 * 32 + i % 32] |= static_cast<uint8_t>((q & 3) << (i / 32 % 4 * 2));
      b.hmask[i % 32] |= static_cast<uint8_t>((q >> 2) << (i / 32));
    }
  }
}

void quantize(const float* x, BlockIQ4_XS& b) {
  float scales[8];
  for (int j = 0; j < 8; ++j) scales[j] = peak(x + 32 * j, 32) / -127.0f;
  b.d = store_scale(std::fabs(peak(scales, 8)) / 31.0f);
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 8; ++j) {
    const int code = nearest_code(scales[j], d, -32, 31);
    set_sub_scale(b, j, code);
    const float scale = d * static_cast<float>(code);
    for (int i = 0; i < 32; ++i) {
      const float steps = scale == 0.0f ? 0.0f : x[32 * j + i] / scale;
      set_low_code(b.qs + 16 * j, i, nearest_index(steps, kCodesIQ4));
    }
  }
}

// The codes of Q4_K (max_code 15) and Q5_K (31), and the scales they need.
template <typename Block>
void quantize_with_min(const float* x, Block& b, int max_code, uint8_t (&codes)[256]) {
  float scales[8], mins[8];
  for (int j = 0; j < 8; ++j) {
    const auto [low, high] = std::minmax_element(x + 32 * j, x + 32 * j + 32);
    mins[j] = std::max(0.0f, -*low);  // the minimum can only lower values
    scales[j] = std::max(0.0f, (*high + mins[j]) / static_cast<float>(max_code));
  }
  b.d = store_scale(*std::max_element(scales, scales + 8) / 63.0f);
  b.dmin = store_scale(*std::max_element(mins, mins + 8) / 63.0f);
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  ScaleMin pairs[8];
  for (int j = 0; j < 8; ++j) {
    pairs[j] = {static_cast<uint8_t>(nearest_code(scales[j], d, 0, 63)),
                static_cast<uint8_t>(nearest_code(mins[j], dmin, 0, 63))};
    const float scale = d * static_cast<float>(pairs[j].scale);
    const float min = dmin * static_cast<float>(pairs[j].min);
    for (int i = 32 * j; i < 32 * j + 32; ++i) {
      codes[i] = static_cast<uint8_t>(nearest_code(x[i] + min, scale, 0, max_code));
      b.qs[i / 64 * 32 + i % 32] |= static_cast<uint8_t>((codes[i] & 15) << (i / 32 % 2 * 4));
    }
  }
  const auto packed = pack_scale_min_k(pairs);
  std::copy(packed.begin(), packed.end(), b.scales);
}

void quantize(const float* x, BlockQ4_K& b) {
  uint8_t codes[256];
  quantize_with_min(x, b, 15, codes);
}

void quantize(const float* x, BlockQ5_K& b) {
  uint8_t codes[256];
  quantize_with_min(x, b, 31, codes);
  for (int i = 0; i < 256; ++i) b.qh[i % 32] |= static_cast<uint8_t>((codes[i] >> 4) << (i / 32));
}

void quantize(const float* x, BlockQ6_K& b) {
  float scales[16];
  for (int j = 0; j < 16; ++j) scales[j] = peak(x + 16 * j, 16) / -32.0f;
  b.d = store_scale(std::fabs(peak(scales, 16)) / 127.0f);
  const float d = f16_to_f32(b.d);
  for (int j = 0; j < 16; ++j) {
    b.scales[j] = static_cast<int8_t>(nearest_code(scales[j], d, -127, 127));
    const float scale = d * static_cast<float>(b.scales[j]);
    for (int i = 16 * j; i < 16 * j + 16; ++i) {
      const int q = nearest_code(x[i], scale, -32, 31) + 32;
      b.ql[i / 128 * 64 + i % 64] |= static_cast<uint8_t>((q & 15) << (i / 64 % 2 * 4));
      b.qh[i / 128 * 32 + i % 32] |= static_cast<uint8_t>((q >> 4) << (i / 32 % 4 * 2));
    }
  }
}

template <typename Block, int kElements>
void quantize_blocks(const float* src, std::byte* dst, int64_t n) {
  for (int64_t i = 0; i < n / kElements; ++i) {
    Block block{};
    quantize(src + i * kElements, block);
    std::memcpy(dst + i * static_cast<int64_t>(sizeof(Block)), &block, sizeof(Block));
  }
}

}  // namespace

void quantize_row(TensorType type, const float* src, std::byte* dst, int64_t n) {
  switch (type) {
    case TensorType::f32:
      std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(float));
      return;
    case TensorType::f16:
      for (int64_t i = 0; i < n; ++i) {
        const uint16_t half = f32_to_f16(src[i]);
        std::memcpy(dst + 2 * i, &half, 2);
      }
      return;
    case TensorType::bf16:
      for (int64_t i = 0; i < n; ++i) {
        const uint16_t brain = f32_to_bf16(src[i]);
        std::memcpy(dst + 2 * i, &brain, 2);
      }
      return;
    case TensorType::q4_0:
      return quantize_blocks<BlockQ4_0, 32>(src, dst, n);
    case TensorType::q4_1:
      return quantize_blocks<BlockQ4_1, 32>(src, dst, n);
    case TensorType::q5_0:
      return quantize_blocks<BlockQ5_0, 32>(src, dst, n);
    case TensorType::q5_1:
      return quantize_blocks<BlockQ5_1, 32>(src, dst, n);
    case TensorType::q8_0:
      return quantize_blocks<BlockQ8_0, 32>(src, dst, n);
    case TensorType::q2_k:
      return quantize_blocks<BlockQ2_K, 256>(src, dst, n);
    case TensorType::q3_k:
      return quantize_blocks<BlockQ3_K, 256>(src, dst, n);
    case TensorType::q4_k:
      return quantize_blocks<BlockQ4_K, 256>(src, dst, n);
    case TensorType::q5_k:
      return quantize_blocks<BlockQ5_K, 256>(src, dst, n);
    case TensorType::q6_k:
      return quantize_blocks<BlockQ6_K, 256>(src, dst, n);
    case TensorType::iq4_nl:
      return quantize_blocks<BlockIQ4_NL, 32>(src, dst, n);
    case TensorType::iq4_xs:
      return quantize_blocks<BlockIQ4_XS, 256>(src, dst, n);
    case TensorType::mxfp4:
      return quantize_blocks<BlockMXFP4, 32>(src, dst, n);
    default:
      return;
  }
}

}  // namespace lockstep::quant
