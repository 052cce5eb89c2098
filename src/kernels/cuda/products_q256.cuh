// Products of form q256: a translation unit of their own, since these take long to compile.
#pragma once

#include "kernels/cuda/products.cuh"

namespace lockstep::kernels::cuda {

LOCKSTEP_APART void products_q256(const ProductsArgs& args, Stream stream) {
  switch (args.format) {
    case Format::q2_k:
      return launch_products<Format::q2_k>(args, stream);
    case Format::q3_k:
      return launch_products<Format::q3_k>(args, stream);
    case Format::q4_k:
      return launch_products<Format::q4_k>(args, stream);
    case Format::q5_k:
      return launch_products<Format::q5_k>(args, stream);
    case Format::q6_k:
      return launch_products<Format::q6_k>(args, stream);
    default:
      return launch_products<Format::iq4_xs>(args, stream);
  }
}

}  // namespace lockstep::kernels::cuda
