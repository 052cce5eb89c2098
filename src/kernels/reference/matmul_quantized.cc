#include "kernels/ops/matmul_quantized.h"

#include "kernels/reference/reference.h"
#include "kernels/reference/weight_codes.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

// Rows taken together, so that a weight block is decoded once for all of them.
constexpr int64_t kRowsTogether = 32;

inline float sum_lanes(const float* l) {
  return ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]));
}

inline void store(const MatmulQuantizedArgs& args, int64_t row, int64_t n, const float* lanes) {
  float y = sum_lanes(lanes);
  if (args.bias) y = y + args.bias[n];
  args.out[row * args.weight->n_out + n] = y;
}

template <typename Format>
void product_q32(const MatmulQuantizedArgs& args, Range items) {
  const Weight& w = *args.weight;
  const int64_t blocks = w.n_in / 32;
  for (int64_t n = 16 * items.begin; n < smaller(16 * items.end, w.n_out); ++n) {
    const std::byte* weight_row = w.data + n * w.row_bytes;
    for (int64_t first = 0; first < args.rows; first += kRowsTogether) {
      const int64_t rows = smaller(kRowsTogether, args.rows - first);
      float lanes[kRowsTogether][8] = {};
      for (int64_t b0 = 0; b0 < blocks; b0 += 8) {  // one segment
        const int64_t count = smaller<int64_t>(8, blocks - b0);
        alignas(64) int16_t code[256];
        float d[8], m[8];
        for (int64_t b = 0; b < count; ++b) {
          Format::decode(weight_row + (b0 + b) * Format::kBytes, code + 32 * b, d + b, m + b);
        }
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t row = first + r;
          const int8_t* q = args.x.q + row * w.n_in + b0 * 32;
          float acc = 0.0f;
          for (int64_t b = 0; b < count; ++b) {
            int32_t isum = 0;
            for (int i = 0; i < 32; ++i) {
              isum += code[32 * b + i] * static_cast<int16_t>(q[32 * b + i]);
            }
            const int64_t at = (b0 + b) * args.rows + row;
            acc = math::fma_rn(static_cast<float>(isum), d[b] * args.x.d[at], acc);
            if constexpr (Format::kHasMin) {
              acc = math::fma_rn(m[b], args.x.d_sums[at], acc);
            }
          }
          float& lane = lanes[r][b0 / 8 % 8];
          lane = lane + acc;
        }
      }
      for (int64_t r = 0; r < rows; ++r) store(args, first + r, n, lanes[r]);
    }
  }
}

template <typename Format>
void product_q256(const MatmulQuantizedArgs& args, Range items) {
  const Weight& w = *args.weight;
  const int64_t segments = w.n_in / 256;
  for (int64_t n = 16 * items.begin; n < smaller(16 * items.end, w.n_out); ++n) {
    const std::byte* weight_row = w.data + n * w.row_bytes;
    for (int64_t first = 0; first < args.rows; first += kRowsTogether) {
      const int64_t rows = smaller(kRowsTogether, args.rows - first);
      float lanes[kRowsTogether][8] = {};
      for (int64_t s = 0; s < segments; ++s) {
        alignas(64) int16_t scaled[256];
        int32_t min[16];
        float d, dmin;
        Format::decode(weight_row + s * Format::kBytes, scaled, min, &d, &dmin);
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t row = first + r;
          const int8_t* q = args.x.q + row * w.n_in + s * 256;
          const float dx = args.x.d[s * args.rows + row];
          int32_t t = 0;
          for (int i = 0; i < 256; ++i) t += scaled[i] * static_cast<int16_t>(q[i]);
          float acc = static_cast<float>(t) * (d * dx);
          if constexpr (Format::kHasMin) {
            int32_t u = 0;
            for (int64_t j = 0; j < 8; ++j) {
              const int16_t* sums = args.x.sums + 2 * ((8 * s + j) * args.rows + row);
              if constexpr (Format::kMinElements == 16) {
                u -= min[2 * j] * sums[0] + min[2 * j + 1] * sums[1];
              } else {
                u -= min[j] * (sums[0] + sums[1]);
              }
            }
            acc = math::fma_rn(-static_cast<float>(u), dmin * dx, acc);
          }
          float& lane = lanes[r][s % 8];
          lane = lane + acc;
        }
      }
      for (int64_t r = 0; r < rows; ++r) store(args, first + r, n, lanes[r]);
    }
  }
}

}  // namespace

void matmul_quantized(const MatmulQuantizedArgs& args, Range items) {
  switch (args.weight->type) {
    case TensorType::q4_0:
      return product_q32<Q4_0>(args, items);
    case TensorType::q4_1:
      return product_q32<Q4_1>(args, items);
    case TensorType::q5_0:
      return product_q32<Q5_0>(args, items);
    case TensorType::q5_1:
      return product_q32<Q5_1>(args, items);
    case TensorType::q8_0:
      return product_q32<Q8_0>(args, items);
    case TensorType::q2_k:
      return product_q256<Q2_K>(args, items);
    case TensorType::q3_k:
      return product_q256<Q3_K>(args, items);
    case TensorType::q4_k:
      return product_q256<Q4_K>(args, items);
    case TensorType::q5_k:
      return product_q256<Q5_K>(args, items);
    case TensorType::q6_k:
      return product_q256<Q6_K>(args, items);
    case TensorType::iq4_nl:
      return product_q32<IQ4_NL>(args, items);
    case TensorType::iq4_xs:
      return product_q256<IQ4_XS>(args, items);
    case TensorType::mxfp4:
      return product_q32<MXFP4>(args, items);
    default:
      __builtin_trap();  // the executor asks activation_form first
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
