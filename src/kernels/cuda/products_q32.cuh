// Products of form q32: a translation unit of their own, since these take long to compile.
#pragma once

#include "kernels/cuda/products.cuh"

namespace lockstep::kernels::cuda {

LOCKSTEP_APART void products_q32(const ProductsArgs& args, Stream stream) {
  switch (args.format) {
    case Format::q8_0:
      return launch_products<Format::q8_0>(args, stream);
    case Format::q4_0:
      return launch_products<Format::q4_0>(args, stream);
    case Format::q4_1:
      return launch_products<Format::q4_1>(args, stream);
    case Format::q5_0:
      return launch_products<Format::q5_0>(args, stream);
    case Format::q5_1:
      return launch_products<Format::q5_1>(args, stream);
    default:
      return launch_products<Format::table32>(args, stream);
  }
}

}  // namespace lockstep::kernels::cuda
