#include "kernels/ops/quantize_activations.h"

#include "kernels/math/half.h"
#include "kernels/reference/block_int8.h"
#include "kernels/reference/reference.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {

void quantize_activations(const QuantizeActivationsArgs& args, Range items) {
  const int64_t block = args.form == ActivationForm::q32 ? 32 : 256;
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Chunk chunk = chunk_of(item, args.n);
    for (int64_t begin = chunk.begin; begin < chunk.end; begin += block) {
      const int64_t at = chunk.row * args.n + begin;
      const int64_t block_at = begin / block * args.rows + chunk.row;
      int8_t q[256];
      const float a = max_magnitude(args.x + at, block);
      if (is_non_finite(a)) set_fault(args.faults, chunk.row);
      const float d = quantize_int8(args.x + at, block, a, q);
      args.out.d[block_at] = d;
      const int64_t first = args.out.q_index(args.rows, args.n, chunk.row, begin);
      const int64_t step = args.out.q_index(args.rows, args.n, chunk.row, begin + 4) - first;
      int8_t* out = args.out.q + first;
      if (step == 4) {
        __builtin_memcpy(out, q, static_cast<size_t>(block));
      } else {
        for (int64_t i = 0; i < block; i += 4, out += step) __builtin_memcpy(out, q + i, 4);
      }
      int32_t sum = 0;
      for (int64_t j = 0; j < block; j += 16) {
        int32_t sixteen = 0;
        for (int i = 0; i < 16; ++i) sixteen += q[j + i];
        sum += sixteen;
        if (args.form == ActivationForm::q32) continue;
        const int64_t pair = (begin + j) / 32 * args.rows + chunk.row;
        args.out.sums[2 * pair + j / 16 % 2] = static_cast<int16_t>(-sixteen);
      }
      if (args.form == ActivationForm::q32) {
        args.out.starts[block_at] = -128 * sum;
        args.out.d_sums[block_at] = d * static_cast<float>(sum);
      }
    }
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
