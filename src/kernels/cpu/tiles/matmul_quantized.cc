// The product over packed tiles, by the form of the weights: in two files, each large once it is
// unrolled for every format and number of rows.
#include "kernels/cpu/tiles/matmul_forms.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {

void matmul_quantized(const MatmulQuantizedArgs& args, Range items) {
  if (activation_form(args.weight->type) == ActivationForm::q32) {
    matmul_form32(args, items);
  } else {
    matmul_form256(args, items);
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
