// Activation quantisation, sixteen elements at a time. Compiled once per instruction set; the
// instructions are in LOCKSTEP_SIMD_HEADER.
#include "kernels/ops/quantize_activations.h"

#include LOCKSTEP_SIMD_HEADER
#include "kernels/reference/reference.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

using Float = Simd::Float;
using Int = Simd::Int;

// Magnitudes order as their bits do, what is not finite on top.
template <int64_t block>
inline float max_magnitude(const float* x) {
  Int most = Simd::magnitude(Simd::load_floats(x));
#pragma GCC unroll 16
  for (int64_t i = 16; i < block; i += 16) {
    most = Simd::max_int(most, Simd::magnitude(Simd::load_floats(x + i)));
  }
  return __builtin_bit_cast(float, Simd::max_lane(most));
}

// Where one row's values go.
struct RowOut {
  int8_t* q;        // four bytes every `step`
  int16_t* sums;    // form q256: two every 2·rows
  int32_t* starts;  // form q32: one every `rows`
  int64_t step, rows;
};

// 32 elements from k on: their bytes, and what their form has of their sums; returns the sum.
template <int64_t block>
inline int32_t put(const RowOut& out, int64_t k, Int low, Int high) {
  alignas(16) int8_t bytes[32];
  Simd::store_bytes(bytes, low);
  Simd::store_bytes(bytes + 16, high);
  int8_t* to = out.q + k / 4 * out.step;
#pragma GCC unroll 8
  for (int j = 0; j < 32; j += 4, to += out.step) __builtin_memcpy(to, bytes + j, 4);
  const int32_t first = Simd::sum_lanes(low), second = Simd::sum_lanes(high);
  if constexpr (block == 32) {
    out.starts[k / 32 * out.rows] = -128 * (first + second);
  } else {
    int16_t* sums = out.sums + 2 * (k / 32 * out.rows);
    sums[0] = static_cast<int16_t>(-first);
    sums[1] = static_cast<int16_t>(-second);
  }
  return first + second;
}

template <int64_t block>
void quantize(const QuantizeActivationsArgs& args, Range items) {
  const QuantizedActivations& to = args.out;
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Chunk chunk = chunk_of(item, args.n);
    const float* x = args.x + chunk.row * args.n;
    const int64_t first = to.q_index(args.rows, args.n, chunk.row, 0);
    const RowOut out{to.q + first, block == 32 ? nullptr : to.sums + 2 * chunk.row,
                     block == 32 ? to.starts + chunk.row : nullptr,
                     to.q_index(args.rows, args.n, chunk.row, 4) - first, args.rows};
    for (int64_t begin = chunk.begin; begin < chunk.end; begin += block) {
      const float a = max_magnitude<block>(x + begin);
      const int64_t at = begin / block * args.rows + chunk.row;
      int32_t sum = 0;
      float d = 0.0f;
      if (is_non_finite(a) || a < 0x1p-100f) {
        if (is_non_finite(a)) set_fault(args.faults, chunk.row);
        for (int64_t k = begin; k < begin + block; k += 32) {
          put<block>(out, k, Simd::zero_int(), Simd::zero_int());
        }
      } else {
        d = a / 127.0f;
        const float factor = 127.0f / a;
        const Float r = Simd::broadcast(&factor);
#pragma GCC unroll 2
        for (int64_t k = begin; k < begin + block; k += 32) {
          sum += put<block>(out, k, Simd::round(Simd::mul(Simd::load_floats(x + k), r)),
                            Simd::round(Simd::mul(Simd::load_floats(x + k + 16), r)));
        }
      }
      to.d[at] = d;
      if constexpr (block == 32) to.d_sums[at] = d * static_cast<float>(sum);
    }
  }
}

}  // namespace

void quantize_activations(const QuantizeActivationsArgs& args, Range items) {
  if (args.form == ActivationForm::q32) return quantize<32>(args, items);
  quantize<256>(args, items);
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
