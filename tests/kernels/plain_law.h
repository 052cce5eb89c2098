// The law written down a second time, one element after another, with knobs that make it wrong on
// purpose: the right setting must agree with the kernels bit for bit, a wrong one must not.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/math/elementary.h"
#include "quant/blocks.h"
#include "random_data.h"

namespace lockstep::kernels::test {

inline float power_of_two_tree(std::vector<float> lane) {
  for (size_t h = lane.size() / 2; h >= 1; h /= 2) {
    for (size_t i = 0; i < h; ++i) lane[i] += lane[i + h];
  }
  return lane[0];
}

struct DotKnobs {
  int lanes = 16;
  bool fused = true;
};
inline float plain_dot(const float* a, const float* b, int64_t n, DotKnobs knobs = {}) {
  std::vector<float> lane(static_cast<size_t>(knobs.lanes), 0.0f);
  for (int64_t i = 0; i < n; ++i) {
    float& l = lane[static_cast<size_t>(i % knobs.lanes)];
    l = knobs.fused ? std::fma(a[i], b[i], l) : l + a[i] * b[i];
  }
  return power_of_two_tree(lane);
}

inline float plain_sum_of_squares(const float* x, int64_t n, int lanes = 256) {
  return plain_dot(x, x, n, {lanes, true});
}

struct QuantizeKnobs {
  bool reciprocal = true;  // x·(127 ÷ a), not x ÷ (a ÷ 127)
  bool even = true;        // ties to even, not away from 0
};
// One block; returns d.
inline float plain_quantize(const float* x, int64_t n, int* q, QuantizeKnobs knobs = {}) {
  float a = 0.0f;
  for (int64_t i = 0; i < n; ++i) a = std::fmax(a, std::fabs(x[i]));
  if (a < std::ldexp(1.0f, -100)) {
    std::fill_n(q, n, 0);
    return 0.0f;
  }
  const float d = a / 127.0f, r = 127.0f / a;
  for (int64_t i = 0; i < n; ++i) {
    const float y = knobs.reciprocal ? x[i] * r : x[i] / d;
    q[i] = static_cast<int>(knobs.even ? std::nearbyint(y) : std::round(y));
  }
  return d;
}

struct Q4Knobs {
  bool first = true;        // of several greatest, not the last
  bool reciprocal = true;   // x·(1 ÷ d), not x ÷ d
  bool exact_scale = true;  // codes by v ÷ -8 as it is, not as it is stored
};
// One block of the q4_0 cache: codes 0 … 15; returns d before it is stored as f16.
inline float plain_quantize_q4(const float* x, int* q, Q4Knobs knobs = {}) {
  float v = 0.0f;
  for (int i = 0; i < 32; ++i) {
    const float a = std::fabs(x[i]), most = std::fabs(v);
    if (a > most || (!knobs.first && a == most)) v = x[i];
  }
  if (std::fabs(v) < std::ldexp(1.0f, -100)) {
    std::fill_n(q, 32, 8);
    return 0.0f;
  }
  const float d = v / -8.0f, used = knobs.exact_scale ? d : f16_to_f32(f32_to_f16(d));
  const float r = 1.0f / used;
  for (int i = 0; i < 32; ++i) {
    const float y = knobs.reciprocal ? x[i] * r : x[i] / used;
    const float code = std::trunc(y + 8.5f);  // not finite where a control's scale is 0
    q[i] = code < 15.0f ? static_cast<int>(std::max(code, 0.0f)) : 15;
  }
  return d;
}

struct ProductKnobs {
  int lanes = 8;
  int segment = 256;  // elements
  bool fused = true;
  bool scale_in_float = false;  // 256-types: each sub-block scaled in binary32
  bool bias_first = false;      // the bias starts lane 0
};

// One block's codes and factors, by the quant room's own reading of the bytes.
struct PlainBlock {
  int n = 32;    // elements
  int sub = 32;  // elements of a sub-block
  std::vector<int> code, scale, min;
  float d = 0, m = 0;  // m: the amount added (32-types) or taken away times min (256-types)
  bool has_min = false;
};
template <typename Block>
Block read_block(const std::byte* at) {
  Block block;
  std::memcpy(&block, at, sizeof block);
  return block;
}
template <typename Block>
PlainBlock block32(const std::byte* at) {
  const Block b = read_block<Block>(at);
  PlainBlock out;
  for (int i = 0; i < 32; ++i) out.code.push_back(quant::code(b, i));
  if constexpr (requires { b.e; }) {
    out.d = std::ldexp(1.0f, b.e - 128);
  } else {
    out.d = f16_to_f32(b.d);
  }
  if constexpr (requires { b.m; }) {
    out.m = f16_to_f32(b.m);
    out.has_min = true;
  }
  return out;
}
template <typename Block>
PlainBlock block256(const std::byte* at, int sub) {
  const Block b = read_block<Block>(at);
  PlainBlock out;
  out.n = 256;
  out.sub = sub;
  for (int i = 0; i < 256; ++i) out.code.push_back(quant::code(b, i));
  out.d = f16_to_f32(b.d);
  if constexpr (requires { b.dmin; }) {
    out.m = f16_to_f32(b.dmin);
    out.has_min = true;
  }
  for (int j = 0; j < 256 / sub; ++j) {
    if constexpr (requires { quant::sub_scale(b, j); }) {
      out.scale.push_back(quant::sub_scale(b, j));
      if constexpr (requires { quant::sub_min(b, j); }) out.min.push_back(quant::sub_min(b, j));
    } else {
      out.scale.push_back(quant::scale_min_k(b.scales, j).scale);
      out.min.push_back(quant::scale_min_k(b.scales, j).min);
    }
  }
  return out;
}
inline PlainBlock plain_block(TensorType type, const std::byte* at) {
  switch (type) {
    case TensorType::q4_0:
      return block32<quant::BlockQ4_0>(at);
    case TensorType::q4_1:
      return block32<quant::BlockQ4_1>(at);
    case TensorType::q5_0:
      return block32<quant::BlockQ5_0>(at);
    case TensorType::q5_1:
      return block32<quant::BlockQ5_1>(at);
    case TensorType::q8_0:
      return block32<quant::BlockQ8_0>(at);
    case TensorType::iq4_nl:
      return block32<quant::BlockIQ4_NL>(at);
    case TensorType::mxfp4:
      return block32<quant::BlockMXFP4>(at);
    case TensorType::q2_k:
      return block256<quant::BlockQ2_K>(at, 16);
    case TensorType::q3_k:
      return block256<quant::BlockQ3_K>(at, 16);
    case TensorType::q4_k:
      return block256<quant::BlockQ4_K>(at, 32);
    case TensorType::q5_k:
      return block256<quant::BlockQ5_K>(at, 32);
    case TensorType::iq4_xs:
      return block256<quant::BlockIQ4_XS>(at, 32);
    default:
      return block256<quant::BlockQ6_K>(at, 16);
  }
}

// One row of the weight, decoded, so that it serves many rows of activations.
inline std::vector<PlainBlock> plain_weight_row(const Weight& w, int64_t n) {
  const gguf::TypeInfo& info = gguf::type_info(w.type);
  std::vector<PlainBlock> blocks;
  for (int64_t b = 0; b < w.n_in / info.block_elements; ++b) {
    blocks.push_back(plain_block(w.type, w.data + n * w.row_bytes + b * info.block_bytes));
  }
  return blocks;
}

inline float plain_product(const std::vector<PlainBlock>& w, const float* x, const float* bias,
                           ProductKnobs knobs = {}, QuantizeKnobs quantize = {}) {
  const auto mul_add = [&](float a, float b, float c) {
    return knobs.fused ? std::fma(a, b, c) : a * b + c;
  };
  std::vector<float> lane(static_cast<size_t>(knobs.lanes), 0.0f);
  if (bias && knobs.bias_first) lane[0] = *bias;
  int64_t k = 0;
  float acc = 0.0f;
  for (const PlainBlock& block : w) {
    std::vector<int> q(static_cast<size_t>(block.n));
    const float dx = plain_quantize(x + k, block.n, q.data(), quantize);
    if (block.n == 32) {
      int isum = 0, sum = 0;
      for (size_t i = 0; i < 32; ++i) {
        isum += block.code[i] * q[i];
        sum += q[i];
      }
      acc = mul_add(static_cast<float>(isum), block.d * dx, acc);
      if (block.has_min) acc = mul_add(block.m, dx * static_cast<float>(sum), acc);
    } else {
      int t = 0, u = 0;
      float scaled = 0.0f;
      for (int j = 0; j < 256 / block.sub; ++j) {
        int isum = 0, sum = 0;
        for (int i = j * block.sub; i < (j + 1) * block.sub; ++i) {
          isum += block.code[static_cast<size_t>(i)] * q[static_cast<size_t>(i)];
          sum += q[static_cast<size_t>(i)];
        }
        t += block.scale[static_cast<size_t>(j)] * isum;
        if (block.has_min) u += block.min[static_cast<size_t>(j)] * sum;
        scaled =
            std::fma(static_cast<float>(isum),
                     block.d * static_cast<float>(block.scale[static_cast<size_t>(j)]), scaled);
      }
      acc = knobs.scale_in_float ? scaled * dx : static_cast<float>(t) * (block.d * dx);
      if (block.has_min) acc = mul_add(-static_cast<float>(u), block.m * dx, acc);
    }
    k += block.n;
    if (k % knobs.segment == 0 || &block == &w.back()) {
      float& l = lane[static_cast<size_t>((k - 1) / knobs.segment % knobs.lanes)];
      l = l + acc;
      acc = 0.0f;
    }
  }
  // ((0+1)+(2+3))+((4+5)+(6+7)): neighbours first.
  for (size_t count = lane.size(); count > 1; count /= 2) {
    for (size_t i = 0; i < count / 2; ++i) lane[i] = lane[2 * i] + lane[2 * i + 1];
  }
  return bias && !knobs.bias_first ? lane[0] + *bias : lane[0];
}

struct AttentionKnobs {
  int64_t page = 64;
  int64_t span_pages = 16;
  int lanes = 16;
  int64_t window_shift = 0;  // visible positions too many
};
// One query row and head over its keys k[j], v[j], rows of head_dim as the cache returns them.
inline std::vector<float> plain_attention(const float* q, const std::vector<const float*>& k,
                                          const std::vector<const float*>& v, int64_t position,
                                          int64_t head_dim, float scale, float cap, int64_t window,
                                          AttentionKnobs knobs = {}) {
  struct Part {
    bool any = false;
    float m = 0, l = 0;
    std::vector<float> o;
  };
  const auto merge = [&](Part a, const Part& b) {
    if (!b.any) return a;
    if (!a.any) return b;
    const float m = a.m > b.m ? a.m : b.m;
    const float ea = math::exp(a.m - m), eb = math::exp(b.m - m);
    a.l = std::fma(b.l, eb, a.l * ea);
    for (size_t i = 0; i < a.o.size(); ++i) a.o[i] = std::fma(b.o[i], eb, a.o[i] * ea);
    a.m = m;
    return a;
  };
  const int64_t first =
      window > 0 ? std::max<int64_t>(0, position - window + 1 - knobs.window_shift) : 0;
  Part result;
  for (int64_t span = 0; span * knobs.span_pages * knobs.page <= position; ++span) {
    Part of_span;
    for (int64_t p = span * knobs.span_pages; p < (span + 1) * knobs.span_pages; ++p) {
      Part page;
      std::vector<float> s;
      std::vector<int64_t> keys;
      for (int64_t j = p * knobs.page; j < (p + 1) * knobs.page && j <= position; ++j) {
        if (j < first) continue;
        float score =
            plain_dot(q, k[static_cast<size_t>(j)], head_dim, {knobs.lanes, true}) * scale;
        if (cap != 0.0f) score = cap * math::tanh(score / cap);
        s.push_back(score);
        keys.push_back(j);
      }
      if (s.empty()) continue;
      page.any = true;
      page.m = s[0];
      for (const float score : s) page.m = score > page.m ? score : page.m;
      page.o.assign(static_cast<size_t>(head_dim), 0.0f);
      for (size_t i = 0; i < s.size(); ++i) {
        const float e = math::exp(s[i] - page.m);
        page.l = page.l + e;
        const float* value = v[static_cast<size_t>(keys[i])];
        for (int64_t d = 0; d < head_dim; ++d) {
          float& o = page.o[static_cast<size_t>(d)];
          o = std::fma(e, value[d], o);
        }
      }
      of_span = merge(of_span, page);
    }
    result = merge(result, of_span);
  }
  for (float& o : result.o) o = o / result.l;
  return result.o;
}

}  // namespace lockstep::kernels::test
