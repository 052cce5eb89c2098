#include "kernels/backend.h"

#include <chrono>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/float_mode.h"

namespace lockstep::kernels {

LoadReport CpuBackend::prepare(const Graph& graph) {
  const auto start = std::chrono::steady_clock::now();
  const auto packed = store_->of(graph, kernels_.packing, team_);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  return {took.count(), packed->bytes, packed->memory.huge_bytes()};
}

void CpuBackend::run(const Graph& graph, Pass& pass) {
  graph_ = &graph;
  pass_ = &pass;
  packed_ = store_->of(graph, kernels_.packing, team_);
  pass.faults.clear();
  if (pass.plant) pass.plant->done = false;
  {
    const CanonicalFloatMode mode;  // rope frequencies
    plan_ = plan_pass(graph, pass);
    if (plan_.rows == 0) return;
    reserve(graph, pass);
  }
  Barrier barrier(team_.size());
  team_.run([&](int worker) { work(worker, barrier); });
  for (int64_t row = 0; row < plan_.rows; ++row) {
    const int op_index = first_fault_[static_cast<size_t>(row)];
    if (op_index >= 0) pass.faults.push_back({row, op_index});
  }
  if (observer_error_) std::rethrow_exception(std::exchange(observer_error_, nullptr));
}

// All memory of the pass, so that no worker ever allocates (an exception there would leave the
// others waiting).
void CpuBackend::reserve(const Graph& graph, const Pass& pass) {
  slot_memory_.resize(std::max(slot_memory_.size(), graph.slots.size()));
  slots_.assign(graph.slots.size(), nullptr);
  for (size_t i = 0; i < graph.slots.size(); ++i) {
    if (static_cast<Slot>(i) == graph.logits) {
      slots_[i] = pass.logits.data();
      continue;
    }
    slot_memory_[i].reserve(std::max<int64_t>(1, plan_.slot_rows[i]) * graph.slots[i].width * 4);
    slots_[i] = slot_memory_[i].as<float>();
  }

  int64_t scratch = 64;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const Op& op = graph.ops[i];
    const int64_t rows = plan_.rows_at(static_cast<int>(i));
    if (const auto* linear = std::get_if<op::Linear>(&op.args)) {
      for (const op::LinearOut& out : linear->outs) {
        const ActivationForm form = activation_form(out.weight->type);
        if (form == ActivationForm::q32) q32_.reserve(rows, out.weight->n_in, 32);
        if (form == ActivationForm::q256) q256_.reserve(rows, out.weight->n_in, 256);
      }
    } else if (const auto* attention = std::get_if<op::Attention>(&op.args)) {
      for (const PassPlan::Segment& segment : plan_.segments) {
        const KvLayerView& kv = segment.pass->kv[static_cast<size_t>(op.layer)];
        scratch = std::max(
            scratch, attention_scratch_bytes(attention->head_dim, attention->n_head, kv.n_head_kv));
      }
    }
  }
  scratch_stride_ = scratch;
  scratch_.reserve(scratch * team_.size());

  rope_tables_.resize(std::max(rope_tables_.size(), plan_.rope_specs.size()));
  for (size_t i = 0; i < plan_.rope_specs.size(); ++i) {
    RopeTable& table = rope_tables_[i];
    table.frequencies = rope_frequencies(*plan_.rope_specs[i]);
    const auto bytes = plan_.rows * static_cast<int64_t>(table.frequencies.f.size()) * 4;
    table.cos.reserve(bytes);
    table.sin.reserve(bytes);
  }

  flags_.reserve(2 * plan_.rows);
  std::fill_n(flags_.as<uint8_t>(), 2 * plan_.rows, uint8_t{0});
  first_fault_.assign(static_cast<size_t>(plan_.rows), -1);
  next_item_ = std::make_unique<std::atomic<int64_t>[]>(2 * (graph.ops.size() + 1));
}

void CpuBackend::work(int worker, Barrier& barrier) {
  using Clock = std::chrono::steady_clock;
  const CanonicalFloatMode mode;
  rope_rows(worker);
  barrier.arrive_and_wait();
  const auto n_ops = static_cast<int>(graph_->ops.size());
  for (int i = 0; i < n_ops; ++i) {
    const Clock::time_point start = observer_ && worker == 0 ? Clock::now() : Clock::time_point();
    const Step step{
        graph_->ops[static_cast<size_t>(i)], i, worker, plan_.rows_at(i), {flags(i)}, barrier};
    std::visit([&](const auto& args) { execute(args, step); }, step.op.args);
    barrier.arrive_and_wait();
    if (pass_->plant && pass_->plant->op == i) {
      if (worker == 0) apply_plant(i);
      barrier.arrive_and_wait();
    }
    if (worker == 0) {
      collect_faults(i, flags(i));
      if (observer_)
        after_op(i, std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
  }
  check_logits();
  barrier.arrive_and_wait();
  if (worker == 0) collect_faults(n_ops - 1, flags(n_ops));
}

void CpuBackend::rope_rows(int worker) {
  const Range rows = part_of(plan_.rows, worker, team_.size());
  for (size_t i = 0; i < plan_.rope_specs.size(); ++i) {
    const RopeTable& table = rope_tables_[i];
    const auto pairs = static_cast<int64_t>(table.frequencies.f.size());
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      rope_row(table.frequencies, plan_.positions[static_cast<size_t>(row)],
               table.cos.as<float>() + row * pairs, table.sin.as<float>() + row * pairs);
    }
  }
}

void CpuBackend::check_logits() {
  const auto n_ops = static_cast<int>(graph_->ops.size());
  const CheckLogitsArgs args{slot(graph_->logits),
                             static_cast<int64_t>(plan_.selected.size()),
                             graph_->n_vocab,
                             {flags(n_ops)}};
  share_evenly(n_ops, args.items(), [&](Range range) { kernels_.check_logits(args, range); });
}

void CpuBackend::after_op(int op_index, double milliseconds) {
  try {
    if (!observer_error_) observer_->on_op(op_index, milliseconds, plan_.rows_at(op_index));
  } catch (...) {
    observer_error_ = std::current_exception();  // the other workers must not be left waiting
  }
}

void CpuBackend::collect_faults(int op_index, uint8_t* flags) {
  for (int64_t r = 0; r < plan_.rows_at(op_index); ++r) {
    if (!flags[r]) continue;
    flags[r] = 0;
    int& first = first_fault_[static_cast<size_t>(plan_.pass_row(op_index, r))];
    if (first < 0) first = op_index;
  }
}

void CpuBackend::apply_plant(int op_index) {
  Plant& plant = *pass_->plant;
  const int64_t row = plan_.row_of_position(op_index, plant.position);
  if (row < 0 || plant.element < 0) return;
  const Op& op = graph_->ops[static_cast<size_t>(op_index)];
  int64_t element = plant.element;
  if (std::holds_alternative<op::KvWrite>(op.args)) {
    const KvLayerView& kv = plan_.segments[0].pass->kv[static_cast<size_t>(op.layer)];
    const int64_t page = plant.position / kPagePositions, place = plant.position % kPagePositions;
    for (const bool is_v : {false, true}) {
      const int64_t bytes = kv_row_bytes(is_v ? kv.v_type : kv.k_type, kv.head_dim);
      if (element < bytes * kv.n_head_kv) {
        std::byte* target = (is_v ? kv.v_pages : kv.k_pages)[page] +
                            (element / bytes * kPagePositions + place) * bytes + element % bytes;
        *target ^= std::byte{1} << (plant.bit & 7);
        plant.done = true;
        return;
      }
      element -= bytes * kv.n_head_kv;
    }
    return;
  }
  for (const Slot out : output_slots(op.args)) {
    if (element < width(out)) {
      auto* bits = reinterpret_cast<std::byte*>(slot(out) + row * width(out) + element);
      bits[(plant.bit & 31) / 8] ^= std::byte{1} << (plant.bit & 7);  // little-endian
      plant.done = true;
      return;
    }
    element -= width(out);
  }
}

std::unique_ptr<Backend> make_cpu_backend(const std::string& isa, int threads) {
  return std::make_unique<CpuBackend>(isa, threads, std::make_shared<PackedStore>());
}

}  // namespace lockstep::kernels
