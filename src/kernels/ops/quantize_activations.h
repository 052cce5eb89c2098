// Rows to int8 blocks, the left side of a product with quantised weights. Two forms, by weight
// type: q32 for Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4; q256 for Q2_K to Q6_K and IQ4_XS.
//
// Formula    per block of 32 or 256 elements: a = max|x|;
//            a < 2^-100:  d = 0, q = 0
//            otherwise:   d = a ÷ 127, r = 127 ÷ a, q = roundeven(x·r) as int8
//            form q256: sums = -Σ q over every 16 elements (what an offset or a minimum of the
//            weights is multiplied with); form q32: of every block starts = -128·Σ q (where the
//            sum of codes stored as code + 128 starts), and d_sums = d·float(Σ q).
// Shapes     x [rows][n]; n % block == 0. What one step of a product reads for all rows lies
//            together: d, d_sums, starts [n ÷ block][rows]; sums [n ÷ 32][rows][2]; q in groups of
//            `together` rows (the last may be fewer), each [n ÷ 4][rows of the group][4].
// Item       256 consecutive elements of one row (the last of a row may be shorter):
//            item = row·ceil(n ÷ 256) + index.
// Order      none to fix: max and integer sums are exact.
// Aliasing   none.
// Bytes      rows·n·(4 + 1 + 4/32 + 4/block), in form q32 4/block more.
// Faults     an element of the block with all exponent bits set; the block is then d = 0, q = 0.
#pragma once

#include "kernels/types.h"

namespace lockstep::kernels {

enum class ActivationForm : uint8_t { f32, q32, q256 };

// What a product with weights of this type reads.
ActivationForm activation_form(TensorType weight_type);

struct QuantizedActivations {
  int8_t* q = nullptr;
  float* d = nullptr;
  int16_t* sums = nullptr;    // form q256
  int32_t* starts = nullptr;  // form q32
  float* d_sums = nullptr;    // form q32
  int64_t together = 1;       // what CpuKernels::rows_together says of them

  // Where elements k … k + 3 of a row are in q; 4 divides k.
  int64_t q_index(int64_t rows, int64_t n, int64_t row, int64_t k) const {
    const int64_t first = row / together * together;
    const int64_t group = rows - first < together ? rows - first : together;
    return first * n + k * group + 4 * (row - first);
  }
};

struct QuantizeActivationsArgs {
  const float* x = nullptr;
  int64_t rows = 0, n = 0;
  ActivationForm form = ActivationForm::q32;  // not f32
  QuantizedActivations out;
  FaultFlags faults;

  int64_t items() const { return rows * ((n + 255) / 256); }
};

}  // namespace lockstep::kernels
