#include "kernels/cpu/pass_plan.h"

#include <algorithm>
#include <cstring>
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

// Shapes that no pass changes.
void check_op(const Graph& graph, const Op& op) {
  const auto width = [&](Slot slot) { return graph.slots[static_cast<size_t>(slot)].width; };
  const auto require = [&](bool fits, const char* what) {
    if (!fits) refuse(&op, what);
  };
  std::visit(
      Overloaded{
          [&](const op::Embed& a) {
            require(a.table->n_in == width(a.out), "table and output differ in width");
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
          [&](const op::KvWrite& a) { require(width(a.v) == width(a.k), "widths differ"); },
          [&](const op::Attention& a) {
            require(width(a.q) == a.n_head * a.head_dim && width(a.out) == width(a.q),
                    "heads don't fit the slots");
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

void check_tokens(const Op& op, const PassPlan& plan) {
  const Weight& table = *std::get<op::Embed>(op.args).table;
  for (const int32_t token : plan.tokens) {
    if (token < 0 || token >= table.n_out) {
      refuse(&op, "token " + std::to_string(token) + " is outside the vocabulary of " +
                      std::to_string(table.n_out));
    }
  }
}

// The state that KvWrite or Attention works on.
void check_state(const Graph& graph, const Op& op, const PassPlan::Segment& segment) {
  const auto* write = std::get_if<op::KvWrite>(&op.args);
  check_pages(op, segment, write != nullptr);
  const KvLayerView& kv = segment.pass->kv[static_cast<size_t>(op.layer)];
  if (write) {
    const int64_t width = graph.slots[static_cast<size_t>(write->k)].width;
    if (width != int64_t{kv.n_head_kv} * kv.head_dim) {
      refuse(&op, "the state's heads don't fit the slots");
    }
  } else {
    const auto& a = std::get<op::Attention>(op.args);
    if (kv.head_dim != a.head_dim || kv.n_head_kv <= 0 || a.n_head % kv.n_head_kv != 0) {
      refuse(&op, "the state's heads don't fit the op's");
    }
  }
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

std::vector<PassFault> faults_of(const PassPlan& plan, const uint8_t* flags, int n_ops) {
  std::vector<PassFault> faults;
  if (!std::memchr(flags, 1, static_cast<size_t>((n_ops + 1) * plan.rows))) return faults;
  std::vector<bool> faulted(static_cast<size_t>(plan.rows));
  for (int i = 0; i <= n_ops; ++i) {
    const uint8_t* own = flags + i * plan.rows;
    const int op_index = std::min(i, n_ops - 1);
    const auto rows = static_cast<size_t>(plan.rows_at(op_index));
    if (!std::memchr(own, 1, rows)) continue;
    for (size_t r = 0; r < rows; ++r) {
      const int64_t row = plan.pass_row(op_index, static_cast<int64_t>(r));
      if (!own[r] || faulted[static_cast<size_t>(row)]) continue;
      faulted[static_cast<size_t>(row)] = true;
      faults.push_back({row, op_index});
    }
  }
  std::sort(faults.begin(), faults.end(),
            [](const PassFault& a, const PassFault& b) { return a.row < b.row; });
  return faults;
}

std::optional<PlantPlace> place_of(const Graph& graph, const PassPlan& plan, const Plant& plant) {
  const Op& op = graph.ops[static_cast<size_t>(plant.op)];
  const int64_t row = plan.row_of_position(plant.op, plant.position);
  if (row < 0 || plant.element < 0) return std::nullopt;
  int64_t element = plant.element;
  if (std::holds_alternative<op::KvWrite>(op.args)) {
    const KvLayerView& kv = plan.segments[0].pass->kv[static_cast<size_t>(op.layer)];
    const int64_t page = plant.position / kPagePositions, place = plant.position % kPagePositions;
    for (const bool is_v : {false, true}) {
      const int64_t bytes = kv_row_bytes(is_v ? kv.v_type : kv.k_type, kv.head_dim);
      if (element < bytes * kv.n_head_kv) {
        return PlantPlace{(is_v ? kv.v_pages : kv.k_pages)[page], -1,
                          (element / bytes * kPagePositions + place) * bytes + element % bytes,
                          plant.bit & 7};
      }
      element -= bytes * kv.n_head_kv;
    }
    return std::nullopt;
  }
  for (const Slot out : output_slots(op.args)) {
    const int64_t width = graph.slots[static_cast<size_t>(out)].width;
    if (element < width) {
      // little-endian
      return PlantPlace{nullptr, out, 4 * (row * width + element) + (plant.bit & 31) / 8,
                        plant.bit & 7};
    }
    element -= width;
  }
  return std::nullopt;
}

GraphFacts facts_of(const Graph& graph) {
  GraphFacts facts;
  const auto n_ops = static_cast<int>(graph.ops.size());
  facts.select_op = n_ops;
  facts.slot_is_late.assign(graph.slots.size(), 1);
  for (int i = 0; i < n_ops; ++i) {
    const Op& op = graph.ops[static_cast<size_t>(i)];
    const bool state = std::holds_alternative<op::KvWrite>(op.args) ||
                       std::holds_alternative<op::Attention>(op.args);
    const bool embed = std::holds_alternative<op::Embed>(op.args);
    const auto* rope = std::get_if<op::Rope>(&op.args);
    const bool selects = std::holds_alternative<op::SelectRows>(op.args);
    if (facts.select_op < n_ops && (state || embed || rope || selects)) {
      refuse(&op, "can't come after the rows were selected");
    }
    if (selects) facts.select_op = i;
    check_op(graph, op);
    if (embed) facts.embeds.push_back(i);
    if (state) facts.kv_ops.push_back(i);
    const bool late = i >= facts.select_op;
    for (const Slot slot : output_slots(op.args)) {
      if (!late) facts.slot_is_late[static_cast<size_t>(slot)] = 0;
    }
    if (rope && std::find(facts.rope_specs.begin(), facts.rope_specs.end(), rope->spec) ==
                    facts.rope_specs.end()) {
      facts.rope_specs.push_back(rope->spec);
    }
    if (const auto* linear = std::get_if<op::Linear>(&op.args)) {
      for (const op::LinearOut& out : linear->outs) {
        const ActivationForm form = activation_form(out.weight->type);
        if (form == ActivationForm::f32) continue;
        GraphFacts::Widest& widest = form == ActivationForm::q32 ? facts.q32 : facts.q256;
        int64_t& own = late ? widest.selected : widest.all;
        own = std::max(own, out.weight->n_in);
      }
    }
  }
  return facts;
}

PassPlan plan_pass(const Graph& graph, const GraphFacts& facts, const Pass& pass) {
  PassPlan plan;
  plan.select_op = facts.select_op;
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
  for (const int i : facts.embeds) check_tokens(graph.ops[static_cast<size_t>(i)], plan);
  for (const PassPlan::Segment& segment : plan.segments) {
    if (segment.rows == 0) continue;
    for (const int i : facts.kv_ops) check_state(graph, graph.ops[static_cast<size_t>(i)], segment);
  }

  const auto wanted = static_cast<int64_t>(plan.selected.size());
  if (facts.select_op == static_cast<int>(graph.ops.size()) && wanted != plan.rows) {
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
