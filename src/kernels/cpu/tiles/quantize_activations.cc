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

template <int64_t block>
void quantize(const QuantizeActivationsArgs& args, Range items) {
  const QuantizedActivations& out = args.out;
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Chunk chunk = chunk_of(item, args.n);
    const float* x = args.x + chunk.row * args.n;
    const int64_t first = out.q_index(args.rows, args.n, chunk.row, 0);
    const int64_t step = out.q_index(args.rows, args.n, chunk.row, 4) - first;
    for (int64_t begin = chunk.begin; begin < chunk.end; begin += block) {
      const float a = max_magnitude<block>(x + begin);
      const bool fault = is_non_finite(a);
      if (fault) set_fault(args.faults, chunk.row);
      const bool zero = fault || a < 0x1p-100f;
      const float d = zero ? 0.0f : a / 127.0f, factor = 127.0f / a;
      const Float r = Simd::broadcast(&factor);
      int32_t sum = 0;
#pragma GCC unroll 2
      for (int64_t i = 0; i < block; i += 16) {
        const int64_t k = begin + i;
        const Int q = zero ? Simd::zero_int() : Simd::round(Simd::mul(Simd::load_floats(x + k), r));
        const int32_t sixteen = Simd::sum_lanes(q);
        sum += sixteen;
        out.sums[2 * (k / 32 * args.rows + chunk.row) + k / 16 % 2] =
            static_cast<int16_t>(-sixteen);
        alignas(16) int8_t bytes[16];
        Simd::store_bytes(bytes, q);
        int8_t* to = out.q + first + k / 4 * step;
        for (int j = 0; j < 16; j += 4, to += step) __builtin_memcpy(to, bytes + j, 4);
      }
      const int64_t at = begin / block * args.rows + chunk.row;
      out.d[at] = d;
      if (args.form == ActivationForm::q32) out.d_sums[at] = d * static_cast<float>(sum);
    }
  }
}

}  // namespace

void quantize_activations(const QuantizeActivationsArgs& args, Range items) {
  if (args.form == ActivationForm::q32) return quantize<32>(args, items);
  quantize<256>(args, items);
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
