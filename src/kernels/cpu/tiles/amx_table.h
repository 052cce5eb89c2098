// The AVX-512 table with AMX products for passes of many rows.
#pragma once

#include "kernels/ops/matmul_quantized.h"

namespace lockstep::kernels::amx {

int64_t rows_together(ActivationForm form, int64_t rows);
void matmul_quantized(const MatmulQuantizedArgs& args, Range items);

}  // namespace lockstep::kernels::amx
