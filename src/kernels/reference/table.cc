#include "kernels/cpu/tiles/pack.h"
#include "kernels/reference/reference.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

int64_t rows_together(ActivationForm, int64_t) {
  return LOCKSTEP_ROWS_TOGETHER;
}

}  // namespace

extern const CpuKernels kTable;
const CpuKernels kTable = {
    .isa = LOCKSTEP_ISA_NAME,
    .embed = embed,
    .rms_norm = rms_norm,
    .quantize_activations = quantize_activations,
    .rows_together = rows_together,
    .packing = LOCKSTEP_PACKING,
    .matmul_quantized = matmul_quantized,
    .matmul_float = matmul_float,
    .rope = rope,
    .kv_write = kv_write,
    .attention = attention,
    .add = add,
    .gated_act = gated_act,
    .softcap = softcap,
    .select_rows = select_rows,
    .check_logits = check_logits,
};

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
