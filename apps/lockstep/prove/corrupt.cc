#include "prove/corrupt.h"

#include <algorithm>

#include "base/philox.h"

namespace lockstep::app {
namespace {

using kernels::Graph;
using kernels::Op;
using kernels::Slot;
namespace op = kernels::op;

// Seeded numbers: the n-th draw of one plant.
class Draws {
 public:
  Draws(uint64_t seed, uint32_t plant)
      : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)}, plant_(plant) {}
  int64_t below(int64_t n) {
    const auto words = philox4x32_10({plant_, next_++, 0x70726f76, 0}, key_);
    return static_cast<int64_t>((uint64_t{words[0]} << 32 | words[1]) % static_cast<uint64_t>(n));
  }

 private:
  std::array<uint32_t, 2> key_;
  uint32_t plant_, next_ = 0;
};

std::vector<Slot> outputs_of(const Op& op) {
  return std::visit(
      [](const auto& args) -> std::vector<Slot> {
        using T = std::decay_t<decltype(args)>;
        if constexpr (std::is_same_v<T, op::Linear>) {
          std::vector<Slot> slots;
          for (const op::LinearOut& out : args.outs) slots.push_back(out.out);
          return slots;
        } else if constexpr (std::is_same_v<T, op::Rope> || std::is_same_v<T, op::Softcap>) {
          return {args.inout};
        } else if constexpr (std::is_same_v<T, op::KvWrite>) {
          return {};
        } else {
          return {args.out};
        }
      },
      op.args);
}

std::vector<Slot> inputs_of(const Op& op) {
  return std::visit(
      [](const auto& args) -> std::vector<Slot> {
        using T = std::decay_t<decltype(args)>;
        if constexpr (std::is_same_v<T, op::Embed>) {
          return {};
        } else if constexpr (std::is_same_v<T, op::Rope> || std::is_same_v<T, op::Softcap>) {
          return {args.inout};
        } else if constexpr (std::is_same_v<T, op::KvWrite>) {
          return {args.k, args.v};
        } else if constexpr (std::is_same_v<T, op::Attention>) {
          return {args.q};
        } else if constexpr (std::is_same_v<T, op::Add>) {
          return {args.a, args.b};
        } else if constexpr (std::is_same_v<T, op::GatedAct>) {
          return {args.gate, args.up};
        } else {
          return {args.in};
        }
      },
      op.args);
}

bool contains(const std::vector<Slot>& slots, Slot slot) {
  return std::find(slots.begin(), slots.end(), slot) != slots.end();
}

// Whether something reads `slot` after op `index` and before it is written again: a plant where
// nothing reads later would prove nothing.
bool is_read_later(const Graph& graph, size_t index, Slot slot) {
  for (size_t i = index + 1; i < graph.ops.size(); ++i) {
    if (contains(inputs_of(graph.ops[i]), slot)) return true;
    if (contains(outputs_of(graph.ops[i]), slot)) return false;
  }
  return slot == graph.logits;
}

int64_t width_of(const Graph& graph, Slot slot) {
  return graph.slots[static_cast<size_t>(slot)].width;
}

std::vector<size_t> ops_where(const Graph& graph, const std::function<bool(size_t)>& wanted) {
  std::vector<size_t> ops;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    if (wanted(i)) ops.push_back(i);
  }
  return ops;
}

// Rows whose place in the arm is certain: the last one of the prompt and those decoded after it.
constexpr int64_t kRows = 6;
constexpr int64_t kTokens = 12;

PlantResult choose_plant(const Prover& prover, const Case& of, uint64_t seed, int number) {
  const Graph& graph = prover.model().graph();
  const auto last = graph.ops.size() - 1;
  Draws draws(seed, static_cast<uint32_t>(number));
  PlantResult result;
  result.kind = static_cast<PlantResult::Kind>(number % 3);
  result.plant.position = static_cast<int64_t>(of.prompt.size()) - 1 + draws.below(kRows);
  size_t index = last;
  if (result.kind == PlantResult::Kind::logits) {
    result.plant.element = draws.below(graph.n_vocab);
    result.plant.bit = static_cast<int>(draws.below(32));
  } else if (result.kind == PlantResult::Kind::kv) {
    const auto ops = ops_where(
        graph, [&](size_t i) { return std::holds_alternative<op::KvWrite>(graph.ops[i].args); });
    index = ops[static_cast<size_t>(draws.below(static_cast<int64_t>(ops.size())))];
    const state::KvSpec spec = prover.model().kv_spec(of.k_type, of.v_type, 64);
    const state::KvLayerSpec& layer = spec.layers[static_cast<size_t>(graph.ops[index].layer)];
    result.plant.element =
        draws.below(layer.n_head_kv * (kernels::kv_row_bytes(of.k_type, layer.head_dim) +
                                       kernels::kv_row_bytes(of.v_type, layer.head_dim)));
    result.plant.bit = static_cast<int>(draws.below(8));
  } else {
    const auto ops = ops_where(graph, [&](size_t i) {
      const std::vector<Slot> slots = outputs_of(graph.ops[i]);
      return i != last && !slots.empty() && std::all_of(slots.begin(), slots.end(), [&](Slot slot) {
               return is_read_later(graph, i, slot);
             });
    });
    index = ops[static_cast<size_t>(draws.below(static_cast<int64_t>(ops.size())))];
    int64_t elements = 0;
    for (const Slot slot : outputs_of(graph.ops[index])) elements += width_of(graph, slot);
    result.plant.element = draws.below(elements);
    result.plant.bit = static_cast<int>(draws.below(32));
  }
  result.plant.op = static_cast<int>(index);
  result.op = graph.ops[index].name;
  result.layer = graph.ops[index].layer;
  return result;
}

}  // namespace

std::string_view plant_kind_name(PlantResult::Kind kind) {
  static constexpr std::string_view kNames[] = {"logits", "KV", "elsewhere"};
  return kNames[static_cast<size_t>(kind)];
}

bool PlantResult::found() const {
  if (!first) return false;
  switch (kind) {
    case Kind::logits:
      // The row at position p chooses token p + 1. An exponent of all ones is a named fault
      // instead.
      return first->kind == Difference::Kind::fault ||
             (first->kind == Difference::Kind::logits && first->position == plant.position + 1);
    case Kind::kv:
      return first->kind == Difference::Kind::fault ||
             (first->kind == Difference::Kind::kv && first->position == plant.position);
    case Kind::elsewhere:
      return true;
  }
  return false;
}

std::vector<PlantResult> run_plants(Prover& prover, const Case& of, uint64_t seed,
                                    const std::function<void(const PlantResult&)>& on_result) {
  prover.plain(of);  // before anything is planted
  std::vector<PlantResult> results;
  decode::Session& session = prover.kept_session(of);
  for (int number = 0; number < kPlants; ++number) {
    PlantResult result = choose_plant(prover, of, seed, number);
    How how;
    how.backend = prover.backend();
    how.tokens = kTokens;
    Trace trace;
    session.set_plant(&result.plant);
    prover.decode(session, of.prompt, of, how, trace);
    session.set_plant(nullptr);
    result.applied = result.plant.done;
    result.first = compare(prover.plain(of), trace).first;
    on_result(result);
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace lockstep::app
