#include "kernels/cpu/pass_plan.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/ops/quantize_activations.h"

namespace lockstep::kernels {
namespace {

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};

[[noreturn]] void refuse(const Op* op, const std::string& what) {
  throw Error(ExitCode::bad_use, (op ? "op " + op->name + ": " : std::string()) + what);
}

void check_pages(const Op& op, const PassPlan::Segment& segment, bool write) {
  const PassSegment& pass = *segment.pass;
  if (op.layer < 0 || static_cast<size_t>(op.layer) >= pass.kv.size()) {
    refuse(&op, "the sequence has no state for layer " + std::to_string(op.layer));
  }
  const KvLayerView& kv = pass.kv[static_cast<size_t>(op.layer)];
  const int64_t end = pass.first_position + segment.rows;
  bool covered = kv.n_pages * kPagePositions >= end;
  if (write) {
    for (int64_t p = pass.first_position / kPagePositions; covered && p * kPagePositions < end;
         ++p) {
      covered = kv.k_pages[p] != nullptr && kv.v_pages[p] != nullptr;
    }
  }
  if (!covered) {
    refuse(&op, "the sequence has no pages for positions up to " + std::to_string(end));
  }
}

void check_op(const Graph& graph, const Op& op, const PassPlan& plan) {
  const auto width = [&](Slot slot) { return graph.slots[static_cast<size_t>(slot)].width; };
  const auto require = [&](bool fits, const char* what) {
    if (!fits) refuse(&op, what);
  };
  const auto for_each_segment = [&](const auto& check) {
    for (const PassPlan::Segment& segment : plan.segments) {
      if (segment.rows > 0) check(segment);
    }
  };
  std::visit(
      Overloaded{
          [&](const op::Embed& a) {
            require(a.table->n_in == width(a.out), "table and output differ in width");
            for (const int32_t token : plan.tokens) {
              if (token < 0 || token >= a.table->n_out) {
                refuse(&op, "token " + std::to_string(token) + " is outside the vocabulary of " +
                                std::to_string(a.table->n_out));
              }
            }
          },
          [&](const op::RmsNorm& a) {
            require(width(a.in) == width(a.out) && a.group > 0 && width(a.in) % a.group == 0,
                    "widths and group don't fit");
          },
          [&](const op::Linear& a) {
            for (const op::LinearOut& out : a.outs) {
              const Weight& w = *out.weight;
              const ActivationForm form = activation_form(w.type);
              const int64_t block = form == ActivationForm::q256  ? 256
                                    : form == ActivationForm::q32 ? 32
                                                                  : 1;
              require(w.n_in == width(a.in) && w.n_out == width(out.out) && w.n_in % block == 0,
                      "the weight's shape doesn't fit its slots");
              require(form != ActivationForm::f32 || w.type == TensorType::f32 ||
                          w.type == TensorType::f16 || w.type == TensorType::bf16,
                      "there is no product for this weight type");
            }
          },
          [&](const op::Rope& a) {
            require(width(a.inout) == a.n_head * a.head_dim && a.spec->n_rot <= a.head_dim,
                    "heads don't fit the slot");
          },
          [&](const op::KvWrite& a) {
            for_each_segment([&](const PassPlan::Segment& segment) {
              check_pages(op, segment, true);
              const KvLayerView& kv = segment.pass->kv[static_cast<size_t>(op.layer)];
              require(width(a.k) == int64_t{kv.n_head_kv} * kv.head_dim && width(a.v) == width(a.k),
                      "the state's heads don't fit the slots");
            });
          },
          [&](const op::Attention& a) {
            require(width(a.q) == a.n_head * a.head_dim && width(a.out) == width(a.q),
                    "heads don't fit the slots");
            for_each_segment([&](const PassPlan::Segment& segment) {
              check_pages(op, segment, false);
              const KvLayerView& kv = segment.pass->kv[static_cast<size_t>(op.layer)];
              require(kv.head_dim == a.head_dim && kv.n_head_kv > 0 && a.n_head % kv.n_head_kv == 0,
                      "the state's heads don't fit the op's");
            });
          },
          [&](const op::Add& a) {
            require(width(a.a) == width(a.b) && width(a.a) == width(a.out), "widths differ");
          },
          [&](const op::GatedAct& a) {
            require(width(a.gate) == width(a.up) && width(a.gate) == width(a.out), "widths differ");
          },
          [&](const op::SelectRows& a) { require(width(a.in) == width(a.out), "widths differ"); },
          [&](const op::Softcap&) {},
      },
      op.args);
}

}  // namespace

int64_t PassPlan::row_of_position(int op_index, int64_t position) const {
  if (segments.empty()) return -1;
  const int64_t row = position - segments[0].pass->first_position;
  if (row < 0 || row >= segments[0].rows) return -1;
  if (op_index < select_op) return row;
  const auto found = std::find(selected.begin(), selected.end(), row);
  return found == selected.end() ? -1 : found - selected.begin();
}

std::vector<Slot> output_slots(const OpArgs& args) {
  return std::visit(Overloaded{
                        [](const op::Linear& a) {
                          std::vector<Slot> slots;
                          for (const op::LinearOut& out : a.outs) slots.push_back(out.out);
                          return slots;
                        },
                        [](const op::KvWrite&) { return std::vector<Slot>{}; },
                        [](const op::Rope& a) { return std::vector<Slot>{a.inout}; },
                        [](const op::Softcap& a) { return std::vector<Slot>{a.inout}; },
                        [](const auto& a) { return std::vector<Slot>{a.out}; },
                    },
                    args);
}

PassPlan plan_pass(const Graph& graph, const Pass& pass) {
  PassPlan plan;
  for (const PassSegment& segment : pass.segments) {
    const auto rows = static_cast<int64_t>(segment.tokens.size());
    plan.segments.push_back({&segment, plan.rows, rows});
    for (int64_t i = 0; i < rows; ++i) {
      plan.tokens.push_back(segment.tokens[static_cast<size_t>(i)]);
      plan.positions.push_back(segment.first_position + i);
      if (i >= segment.first_logits_row) plan.selected.push_back(plan.rows + i);
    }
    plan.rows += rows;
  }

  const auto n_ops = static_cast<int>(graph.ops.size());
  plan.select_op = n_ops;
  plan.slot_rows.assign(graph.slots.size(), 0);
  for (int i = 0; i < n_ops; ++i) {
    const Op& op = graph.ops[static_cast<size_t>(i)];
    const bool per_sequence = std::holds_alternative<op::Rope>(op.args) ||
                              std::holds_alternative<op::KvWrite>(op.args) ||
                              std::holds_alternative<op::Attention>(op.args) ||
                              std::holds_alternative<op::Embed>(op.args);
    const bool selects = std::holds_alternative<op::SelectRows>(op.args);
    if (plan.select_op < n_ops && (per_sequence || selects)) {
      refuse(&op, "can't come after the rows were selected");
    }
    if (selects) plan.select_op = i;
    check_op(graph, op, plan);
    for (const Slot slot : output_slots(op.args)) {
      int64_t& rows = plan.slot_rows[static_cast<size_t>(slot)];
      rows = std::max(rows, plan.rows_at(i));
    }
    if (const auto* rope = std::get_if<op::Rope>(&op.args)) {
      if (std::find(plan.rope_specs.begin(), plan.rope_specs.end(), rope->spec) ==
          plan.rope_specs.end()) {
        plan.rope_specs.push_back(rope->spec);
      }
    }
  }

  const auto wanted = static_cast<int64_t>(plan.selected.size());
  if (plan.select_op == n_ops && wanted != plan.rows) {
    refuse(nullptr, "the graph has no SelectRows, so every row must want logits");
  }
  if (static_cast<int64_t>(pass.logits.size()) != wanted * graph.n_vocab) {
    refuse(nullptr, "the pass wants " + std::to_string(wanted) +
                        " rows of logits, its memory holds " + std::to_string(pass.logits.size()) +
                        " elements");
  }
  return plan;
}

}  // namespace lockstep::kernels
