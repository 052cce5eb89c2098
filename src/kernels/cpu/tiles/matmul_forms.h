// The two halves of matmul_quantized over packed tiles.
#pragma once

#include "kernels/ops/matmul_quantized.h"
#include "kernels/reference/isa.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {

// For the types of ActivationForm q32, and of q256.
void matmul_form32(const MatmulQuantizedArgs& args, Range items);
void matmul_form256(const MatmulQuantizedArgs& args, Range items);

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
