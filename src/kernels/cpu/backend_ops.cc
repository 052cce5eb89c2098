// How each op of a graph becomes kernel calls.
#include <algorithm>

#include "kernels/cpu/backend.h"

namespace lockstep::kernels {

void CpuBackend::rope_rows(Range rows) {
  for (size_t i = 0; i < facts_.rope_specs.size(); ++i) {
    const RopeTable& table = rope_tables_[i];
    const auto pairs = static_cast<int64_t>(table.frequencies.f.size());
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      rope_row(table.frequencies, plan_.positions[static_cast<size_t>(row)],
               table.cos.as<float>() + row * pairs, table.sin.as<float>() + row * pairs);
    }
  }
}

// Each activation form that some weight needs.
void CpuBackend::quantise(int op_index, Part part) {
  const auto& linear = std::get<op::Linear>(op(op_index).args);
  const int64_t rows = plan_.rows_at(op_index);
  const auto make = [&](ActivationForm form, const QuantizedBuffers& buffers) {
    for (const op::LinearOut& out : linear.outs) {
      if (activation_form(out.weight->type) != form) continue;
      run_kernel(kernels_.quantize_activations,
                 QuantizeActivationsArgs{slot(linear.in), rows, width(linear.in), form,
                                         buffers.view(kernels_.rows_together(form, rows)),
                                         faults(op_index)},
                 part);
      return;
    }
  };
  make(ActivationForm::q32, q32_);
  make(ActivationForm::q256, q256_);
}

// The tiles of all outputs are one row of items.
void CpuBackend::run_product(int op_index, Range tiles) {
  const auto& linear = std::get<op::Linear>(op(op_index).args);
  const auto& packed = packed_->outs[static_cast<size_t>(op_index)];
  const float* x = slot(linear.in);
  const int64_t rows = plan_.rows_at(op_index);
  int64_t offset = 0;
  for (size_t i = 0; i < linear.outs.size(); ++i) {
    const op::LinearOut& out = linear.outs[i];
    const Weight& w = *out.weight;
    const int64_t own_tiles = (w.n_out + 15) / 16;
    const Range own{std::max<int64_t>(0, tiles.begin - offset),
                    std::min(own_tiles, tiles.end - offset)};
    offset += own_tiles;
    if (own.empty()) continue;
    const ActivationForm form = activation_form(w.type);
    if (form == ActivationForm::f32) {
      kernels_.matmul_float({&w, out.bias, x, rows, slot(out.out)}, own);
    } else {
      const QuantizedBuffers& buffers = form == ActivationForm::q32 ? q32_ : q256_;
      kernels_.matmul_quantized(
          {&w, packed[i], out.bias, buffers.view(kernels_.rows_together(form, rows)), rows,
           slot(out.out)},
          own);
    }
  }
}

AttentionArgs CpuBackend::attention_args(int op_index, const PassPlan::Segment& segment) const {
  const auto& a = std::get<op::Attention>(op(op_index).args);
  AttentionArgs args{slot(a.q) + segment.first_row * width(a.q),
                     slot(a.out) + segment.first_row * width(a.out),
                     segment.rows,
                     segment.pass->first_position,
                     a.n_head,
                     a.head_dim,
                     a.scale,
                     a.softcap,
                     a.window,
                     &segment.pass->kv[static_cast<size_t>(op(op_index).layer)],
                     {faults(op_index).row_fault + segment.first_row}};
  // With fewer tiles and heads than workers the keys are cut, too.
  const AttentionSpans spans = attention_spans(args);
  if (team_.size() > 1 && spans.count > 1 && args.tiles_and_heads() < 2 * team_.size()) {
    const int64_t index = &segment - plan_.segments.data();
    args.spans = spans;
    args.spans.cut = true;
    if (partials_.data()) {  // reserve() asks before there is any
      args.spans.partials = partials_.as<float>() + index * partial_floats_;
      args.spans.done = spans_done_.as<int32_t>() + index * 2 * team_.size();
    }
  }
  return args;
}

void CpuBackend::run_attention(int op_index, Range range, int worker) {
  std::byte* scratch = scratch_.data() + worker * scratch_stride_;
  int64_t offset = 0;
  for (const PassPlan::Segment& segment : plan_.segments) {
    const AttentionArgs args = attention_args(op_index, segment);
    const Range own{std::max<int64_t>(0, range.begin - offset),
                    std::min(args.items(), range.end - offset)};
    offset += args.items();
    if (!own.empty()) kernels_.attention(args, own, scratch);
  }
}

void CpuBackend::execute(const op::Embed& a, int, Part part) {
  run_kernel(kernels_.embed,
             EmbedArgs{a.table, plan_.tokens.data(), a.scale, plan_.rows, slot(a.out)}, part);
}

void CpuBackend::execute(const op::RmsNorm& a, int op_index, Part part) {
  run_kernel(kernels_.rms_norm,
             RmsNormArgs{slot(a.in), a.weight, slot(a.out), plan_.rows_at(op_index), width(a.in),
                         a.group, a.eps, faults(op_index)},
             part);
}

void CpuBackend::execute(const op::Rope& a, int op_index, Part part) {
  size_t index = 0;
  while (facts_.rope_specs[index] != a.spec) ++index;
  const RopeTable& table = rope_tables_[index];
  run_kernel(
      kernels_.rope,
      RopeArgs{slot(a.inout), table.cos.as<float>(), table.sin.as<float>(), plan_.rows_at(op_index),
               a.n_head, a.head_dim, a.spec->n_rot, a.spec->pairing == RopeSpec::Pairing::halves},
      part);
}

void CpuBackend::execute(const op::KvWrite& a, int op_index, Part part) {
  for (const PassPlan::Segment& segment : plan_.segments) {
    const Range own{std::max<int64_t>(0, part.range.begin - segment.first_row),
                    std::min(segment.rows, part.range.end - segment.first_row)};
    if (own.empty()) continue;
    run_kernel(kernels_.kv_write,
               KvWriteArgs{slot(a.k) + segment.first_row * width(a.k),
                           slot(a.v) + segment.first_row * width(a.v),
                           segment.rows,
                           segment.pass->first_position,
                           &segment.pass->kv[static_cast<size_t>(op(op_index).layer)],
                           {faults(op_index).row_fault + segment.first_row}},
               {own, false});
  }
}

void CpuBackend::execute(const op::Add& a, int op_index, Part part) {
  run_kernel(kernels_.add,
             AddArgs{slot(a.a), slot(a.b), slot(a.out), plan_.rows_at(op_index), width(a.out)},
             part);
}

void CpuBackend::execute(const op::GatedAct& a, int op_index, Part part) {
  run_kernel(kernels_.gated_act,
             GatedActArgs{slot(a.gate), slot(a.up), slot(a.out), plan_.rows_at(op_index),
                          width(a.out), a.act == Activation::gelu_tanh, faults(op_index)},
             part);
}

void CpuBackend::execute(const op::SelectRows& a, int op_index, Part part) {
  run_kernel(kernels_.select_rows,
             SelectRowsArgs{slot(a.in), plan_.selected.data(), slot(a.out), plan_.rows_at(op_index),
                            width(a.out)},
             part);
}

void CpuBackend::execute(const op::Softcap& a, int op_index, Part part) {
  run_kernel(
      kernels_.softcap,
      SoftcapArgs{slot(a.inout), plan_.rows_at(op_index), width(a.inout), a.cap, faults(op_index)},
      part);
}

void CpuBackend::check_logits(Part part) {
  run_kernel(kernels_.check_logits,
             CheckLogitsArgs{slot(graph_->logits), static_cast<int64_t>(plan_.selected.size()),
                             graph_->n_vocab, faults(n_ops())},
             part);
}

}  // namespace lockstep::kernels
