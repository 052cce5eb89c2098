// The ops that touch each element alone: embed, rope, add, gated_act, softcap, select_rows,
// check_logits.
#include "kernels/math/elementary.h"
#include "kernels/reference/reference.h"
#include "quant/dequantize.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {

void embed(const EmbedArgs& args, Range items) {
  const Weight& table = *args.table;
  for (int64_t row = items.begin; row < items.end; ++row) {
    float* out = args.out + row * table.n_in;
    quant::dequantize_row(table.type, table.data + args.tokens[row] * table.row_bytes, out,
                          table.n_in);
    for (int64_t i = 0; i < table.n_in; ++i) out[i] = out[i] * args.scale;
  }
}

void rope(const RopeArgs& args, Range items) {
  const int64_t half = args.n_rot / 2;
  const int64_t first_step = args.halves ? 1 : 2;    // from pair to pair
  const int64_t to_second = args.halves ? half : 1;  // inside a pair
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t row = item / args.n_head;
    float* x = args.x + item * args.head_dim;
    const float* cos = args.cos + row * half;
    const float* sin = args.sin + row * half;
    for (int64_t i = 0; i < half; ++i) {
      float& first = x[i * first_step];
      float& second = x[i * first_step + to_second];
      const float x0 = first, x1 = second;
      first = math::fma_rn(x0, cos[i], -(x1 * sin[i]));
      second = math::fma_rn(x1, cos[i], x0 * sin[i]);
    }
  }
}

void add(const AddArgs& args, Range items) {
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Chunk chunk = chunk_of(item, args.width);
    const int64_t base = chunk.row * args.width;
    for (int64_t i = base + chunk.begin; i < base + chunk.end; ++i) {
      args.out[i] = args.a[i] + args.b[i];
    }
  }
}

void gated_act(const GatedActArgs& args, Range items) {
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Chunk chunk = chunk_of(item, args.width);
    const int64_t base = chunk.row * args.width;
    bool fault = false;
    for (int64_t i = base + chunk.begin; i < base + chunk.end; ++i) {
      const float gate = args.gate[i];
      fault |= is_non_finite(gate);
      args.out[i] = (args.gelu ? math::gelu(gate) : math::silu(gate)) * args.up[i];
    }
    if (fault) set_fault(args.faults, chunk.row);
  }
}

void softcap(const SoftcapArgs& args, Range items) {
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Chunk chunk = chunk_of(item, args.width);
    const int64_t base = chunk.row * args.width;
    bool fault = false;
    for (int64_t i = base + chunk.begin; i < base + chunk.end; ++i) {
      fault |= is_non_finite(args.x[i]);
      args.x[i] = args.cap * math::tanh(args.x[i] / args.cap);
    }
    if (fault) set_fault(args.faults, chunk.row);
  }
}

void select_rows(const SelectRowsArgs& args, Range items) {
  for (int64_t row = items.begin; row < items.end; ++row) {
    const float* in = args.in + args.index[row] * args.width;
    float* out = args.out + row * args.width;
    for (int64_t i = 0; i < args.width; ++i) out[i] = in[i];
  }
}

void check_logits(const CheckLogitsArgs& args, Range items) {
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Chunk chunk = chunk_of(item, args.width);
    bool fault = false;
    for (int64_t i = chunk.begin; i < chunk.end; ++i) {
      fault |= is_non_finite(args.x[chunk.row * args.width + i]);
    }
    if (fault) set_fault(args.faults, chunk.row);
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
