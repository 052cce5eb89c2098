// The scalar kernels of one instruction set, for its table.
#pragma once

#include "kernels/cpu/kernels.h"
#include "kernels/reference/isa.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {

void embed(const EmbedArgs&, Range items);
void rms_norm(const RmsNormArgs&, Range items);
void quantize_activations(const QuantizeActivationsArgs&, Range items);
void matmul_quantized(const MatmulQuantizedArgs&, Range items);
void matmul_float(const MatmulFloatArgs&, Range items);
void rope(const RopeArgs&, Range items);
void kv_write(const KvWriteArgs&, Range items);
void attention(const AttentionArgs&, Range items, std::byte* scratch);
void add(const AddArgs&, Range items);
void gated_act(const GatedActArgs&, Range items);
void softcap(const SoftcapArgs&, Range items);
void select_rows(const SelectRowsArgs&, Range items);
void check_logits(const CheckLogitsArgs&, Range items);

extern const CpuKernels kTable;

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
