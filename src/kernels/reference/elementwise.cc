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

namespace {

// Pairs (x[step·i], x[step·i + to_second]), i < half.
inline void turn(float* x, const float* cos, const float* sin, int64_t half, int64_t step,
                 int64_t to_second) {
  for (int64_t i = 0; i < half; ++i) {
    const float x0 = x[step * i], x1 = x[step * i + to_second];
    x[step * i] = math::fma_rn(x0, cos[i], -(x1 * sin[i]));
    x[step * i + to_second] = math::fma_rn(x1, cos[i], x0 * sin[i]);
  }
}

}  // namespace

void rope(const RopeArgs& args, Range items) {
  const int64_t half = args.n_rot / 2;
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t row = item / args.n_head;
    float* x = args.x + item * args.head_dim;
    const float* cos = args.cos + row * half;
    const float* sin = args.sin + row * half;
    // Two calls, so that each has its step as a constant.
    if (args.halves) {
      turn(x, cos, sin, half, 1, half);
    } else {
      turn(x, cos, sin, half, 2, 1);
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

namespace {

template <float (*act)(float)>
inline void gated(const float* gate, const float* up, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = act(gate[i]) * up[i];
}

}  // namespace

void gated_act(const GatedActArgs& args, Range items) {
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Chunk chunk = chunk_of(item, args.width);
    const int64_t at = chunk.row * args.width + chunk.begin, n = chunk.end - chunk.begin;
    if (any_non_finite(args.gate + at, n)) set_fault(args.faults, chunk.row);
    if (args.gelu) {
      gated<math::gelu>(args.gate + at, args.up + at, args.out + at, n);
    } else {
      gated<math::silu>(args.gate + at, args.up + at, args.out + at, n);
    }
  }
}

void softcap(const SoftcapArgs& args, Range items) {
  for (int64_t item = items.begin; item < items.end; ++item) {
    const Chunk chunk = chunk_of(item, args.width);
    float* x = args.x + chunk.row * args.width + chunk.begin;
    const int64_t n = chunk.end - chunk.begin;
    if (any_non_finite(x, n)) set_fault(args.faults, chunk.row);
    for (int64_t i = 0; i < n; ++i) x[i] = args.cap * math::tanh(x[i] / args.cap);
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
    const float* x = args.x + chunk.row * args.width + chunk.begin;
    if (any_non_finite(x, chunk.end - chunk.begin)) set_fault(args.faults, chunk.row);
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
