#include "kernels/cpu/schedule.h"

#include "kernels/ops/quantize_activations.h"

namespace lockstep::kernels {
namespace {

int64_t pieces_of(int64_t width) {
  return (width + 255) / 256;
}

// 256-element pieces in a row of the op; 0: it needs whole rows.
int64_t pieces_of(const Graph& graph, const Op& op) {
  const auto width = [&](Slot slot) { return graph.slots[static_cast<size_t>(slot)].width; };
  if (const auto* add = std::get_if<op::Add>(&op.args)) return pieces_of(width(add->out));
  if (const auto* act = std::get_if<op::GatedAct>(&op.args)) return pieces_of(width(act->out));
  if (const auto* cap = std::get_if<op::Softcap>(&op.args)) return pieces_of(width(cap->inout));
  return 0;
}

class Scheduler {
 public:
  Scheduler(const Graph& graph, bool fuse) : graph_(graph), fuse_(fuse) {}

  std::vector<Phase> schedule() {
    const auto n_ops = static_cast<int>(graph_.ops.size());
    for (int i = 0; i < n_ops; ++i) {
      const Op& op = graph_.ops[static_cast<size_t>(i)];
      if (const auto* linear = std::get_if<op::Linear>(&op.args)) {
        quantise(i, *linear);
        single(Phase::Kind::product, i);
      } else if (std::holds_alternative<op::Attention>(op.args)) {
        single(Phase::Kind::attention, i);
      } else {
        // After SelectRows there are other rows.
        if (!fuse_ || std::holds_alternative<op::SelectRows>(op.args)) close();
        extend(i, pieces_of(graph_, op));
        chain_.end_op = i + 1;
      }
    }
    if (!fuse_) close();
    extend(n_ops, pieces_of(graph_.n_vocab));
    chain_.check_logits = true;
    close();
    if (!phases_.empty()) {
      if (phases_[0].kind != Phase::Kind::rows) phases_.insert(phases_.begin(), Phase{});
      phases_[0].rope_tables = true;
    }
    return std::move(phases_);
  }

 private:
  void quantise(int i, const op::Linear& linear) {
    bool needed = false;
    for (const op::LinearOut& out : linear.outs) {
      needed |= activation_form(out.weight->type) != ActivationForm::f32;
    }
    if (!needed) return;
    if (!fuse_) close();
    extend(i, pieces_of(graph_.slots[static_cast<size_t>(linear.in)].width));
    chain_.quantise_for = i;
    close();
  }

  void single(Phase::Kind kind, int i) {
    close();
    phases_.push_back({.kind = kind, .first_op = i, .end_op = i + 1});
  }

  // A step of `pieces` pieces a row (0: whole rows) joins the chain, or begins one at op i.
  void extend(int i, int64_t pieces) {
    if (!open_) {
      chain_ = {.kind = pieces > 0 ? Phase::Kind::pieces : Phase::Kind::rows,
                .first_op = i,
                .end_op = i,
                .pieces = pieces};
      open_ = true;
    } else if (pieces != chain_.pieces) {
      chain_.kind = Phase::Kind::rows;
      chain_.pieces = 0;
    }
  }

  void close() {
    if (open_) phases_.push_back(chain_);
    open_ = false;
  }

  const Graph& graph_;
  const bool fuse_;
  std::vector<Phase> phases_;
  Phase chain_;
  bool open_ = false;
};

}  // namespace

std::vector<Phase> make_schedule(const Graph& graph, bool fuse) {
  return Scheduler(graph, fuse).schedule();
}

}  // namespace lockstep::kernels
