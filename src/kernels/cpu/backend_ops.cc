// How each op of a graph becomes kernel calls.
#include "kernels/cpu/backend.h"

namespace lockstep::kernels {

void CpuBackend::execute(const op::Embed& a, const Step& step) {
  share_kernel(step.index, kernels_.embed,
               EmbedArgs{a.table, plan_.tokens.data(), a.scale, step.rows, slot(a.out)});
}

void CpuBackend::execute(const op::RmsNorm& a, const Step& step) {
  share_kernel(step.index, kernels_.rms_norm,
               RmsNormArgs{slot(a.in), a.weight, slot(a.out), step.rows, width(a.in), a.group,
                           a.eps, step.faults});
}

// Each activation form that some weight needs is made once; then the tiles of all outputs are one
// row of items.
void CpuBackend::execute(const op::Linear& a, const Step& step) {
  const float* x = slot(a.in);
  bool needed[3] = {};
  int64_t tiles = 0;  // of 16 columns
  for (const op::LinearOut& out : a.outs) {
    needed[static_cast<int>(activation_form(out.weight->type))] = true;
    tiles += (out.weight->n_out + 15) / 16;
  }
  const auto quantizer = [&](ActivationForm form, const QuantizedBuffers& buffers) {
    return QuantizeActivationsArgs{x, step.rows, width(a.in), form, buffers.view(), step.faults};
  };
  const bool q32 = needed[static_cast<int>(ActivationForm::q32)];
  const bool q256 = needed[static_cast<int>(ActivationForm::q256)];
  if (q32 || q256) {
    const int64_t items = quantizer(ActivationForm::q32, q32_).items();  // the same in both forms
    share(step.index, 1, items, 8, [&](Range range) {
      if (q32) kernels_.quantize_activations(quantizer(ActivationForm::q32, q32_), range);
      if (q256) kernels_.quantize_activations(quantizer(ActivationForm::q256, q256_), range);
    });
    step.barrier.arrive_and_wait();
  }
  if (step.rows == 0) return;
  const auto& packed = packed_->outs[static_cast<size_t>(step.index)];
  share_evenly(step.index, tiles, [&](Range range) {
    int64_t offset = 0;
    for (size_t i = 0; i < a.outs.size(); ++i) {
      const op::LinearOut& out = a.outs[i];
      const Weight& w = *out.weight;
      const int64_t own_tiles = (w.n_out + 15) / 16;
      const Range own{std::max<int64_t>(0, range.begin - offset),
                      std::min(own_tiles, range.end - offset)};
      offset += own_tiles;
      if (own.empty()) continue;
      const ActivationForm form = activation_form(w.type);
      if (form == ActivationForm::f32) {
        kernels_.matmul_float({&w, out.bias, x, step.rows, slot(out.out)}, own);
      } else {
        const QuantizedBuffers& buffers = form == ActivationForm::q32 ? q32_ : q256_;
        kernels_.matmul_quantized({&w, packed[i], out.bias, buffers.view(), step.rows, slot(out.out)}, own);
      }
    }
  });
}

void CpuBackend::execute(const op::Rope& a, const Step& step) {
  size_t index = 0;
  while (plan_.rope_specs[index] != a.spec) ++index;
  const RopeTable& table = rope_tables_[index];
  share_kernel(
      step.index, kernels_.rope,
      RopeArgs{slot(a.inout), table.cos.as<float>(), table.sin.as<float>(), step.rows, a.n_head,
               a.head_dim, a.spec->n_rot, a.spec->pairing == RopeSpec::Pairing::halves});
}

void CpuBackend::execute(const op::KvWrite& a, const Step& step) {
  const auto args_of = [&](const PassPlan::Segment& segment) {
    return KvWriteArgs{slot(a.k) + segment.first_row * width(a.k),
                       slot(a.v) + segment.first_row * width(a.v),
                       segment.rows,
                       segment.pass->first_position,
                       &segment.pass->kv[static_cast<size_t>(step.op.layer)],
                       {step.faults.row_fault + segment.first_row}};
  };
  share_segments(
      step.index, 16, [&](const PassPlan::Segment& segment) { return args_of(segment).items(); },
      [&](const PassPlan::Segment& segment, Range range) {
        kernels_.kv_write(args_of(segment), range);
      });
}

void CpuBackend::execute(const op::Attention& a, const Step& step) {
  std::byte* scratch = scratch_.data() + step.worker * scratch_stride_;
  const auto args_of = [&](const PassPlan::Segment& segment) {
    return AttentionArgs{slot(a.q) + segment.first_row * width(a.q),
                         slot(a.out) + segment.first_row * width(a.out),
                         segment.rows,
                         segment.pass->first_position,
                         a.n_head,
                         a.head_dim,
                         a.scale,
                         a.softcap,
                         a.window,
                         &segment.pass->kv[static_cast<size_t>(step.op.layer)],
                         {step.faults.row_fault + segment.first_row}};
  };
  share_segments(
      step.index, 1, [&](const PassPlan::Segment& segment) { return args_of(segment).items(); },
      [&](const PassPlan::Segment& segment, Range range) {
        kernels_.attention(args_of(segment), range, scratch);
      });
}

void CpuBackend::execute(const op::Add& a, const Step& step) {
  share_kernel(step.index, kernels_.add,
               AddArgs{slot(a.a), slot(a.b), slot(a.out), step.rows, width(a.out)});
}

void CpuBackend::execute(const op::GatedAct& a, const Step& step) {
  share_kernel(step.index, kernels_.gated_act,
               GatedActArgs{slot(a.gate), slot(a.up), slot(a.out), step.rows, width(a.out),
                            a.act == Activation::gelu_tanh, step.faults});
}

void CpuBackend::execute(const op::SelectRows& a, const Step& step) {
  share_kernel(
      step.index, kernels_.select_rows,
      SelectRowsArgs{slot(a.in), plan_.selected.data(), slot(a.out), step.rows, width(a.out)});
}

void CpuBackend::execute(const op::Softcap& a, const Step& step) {
  share_kernel(step.index, kernels_.softcap,
               SoftcapArgs{slot(a.inout), step.rows, width(a.inout), a.cap, step.faults});
}

}  // namespace lockstep::kernels
