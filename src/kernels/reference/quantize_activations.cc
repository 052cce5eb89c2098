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
      int8_t* q = args.out.q + at;
      const float a = max_magnitude(args.x + at, block);
      if (is_non_finite(a)) set_fault(args.faults, chunk.row);
      args.out.d[at / block] = quantize_int8(args.x + at, block, a, q);
      for (int64_t j = 0; j < block; j += 32) {
        int32_t sum = 0;
        for (int i = 0; i < 32; ++i) sum += q[j + i];
        args.out.sums[(at + j) / 32] = sum;
      }
    }
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
