// The table of all kernels. Quantised products are in translation units of their own.
#pragma once

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/inputs.cuh"
#include "kernels/cuda/logits.cuh"
#include "kernels/cuda/products_float.cuh"
#include "kernels/cuda/rows.cuh"

namespace lockstep::kernels::cuda {

LOCKSTEP_APART void products_q32(const ProductsArgs& args, Stream stream);   // products_q32.cuh
LOCKSTEP_APART void products_q256(const ProductsArgs& args, Stream stream);  // products_q256.cuh

namespace {

void products(const ProductsArgs& args, Stream stream) {
  if (format_info(args.format).superblocks) {
    products_q256(args, stream);
  } else {
    products_q32(args, stream);
  }
}

[[maybe_unused]] constexpr DeviceKernels kTable = {
    quantize,        products,     matmul_float, rms_norm,        inputs,         rope,
    kv_write,        add,          gated_act,    softcap,         select_rows,    check_logits,
    row_chain,       act_quantize, heads,        attention_units, attention_join, attention_merge,
    greatest_logits, fill,         read};

}  // namespace
}  // namespace lockstep::kernels::cuda
