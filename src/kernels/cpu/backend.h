// Runs passes on the CPU's cores: every op's items are shared among the workers of one thread team,
// who meet at a barrier between ops.
#pragma once

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_team.h"
#include "kernels/backend.h"
#include "kernels/cpu/barrier.h"
#include "kernels/cpu/buffer.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/packed_store.h"
#include "kernels/cpu/pass_plan.h"
#include "kernels/rope_table.h"

namespace lockstep::kernels {

// Activations in one quantised form.
struct QuantizedBuffers {
  Buffer q, d, sums, d_sums;

  void reserve(int64_t rows, int64_t n, int64_t block) {
    q.reserve(rows * n);
    d.reserve(rows * (n / block) * 4);
    sums.reserve(rows * (n / 32) * 4);
    d_sums.reserve(rows * (n / block) * 4);
  }
  QuantizedActivations view() const {
    return {q.as<int8_t>(), d.as<float>(), sums.as<int16_t>(), d_sums.as<float>()};
  }
};

struct RopeTable {
  RopeFrequencies frequencies;
  Buffer cos, sin;  // [rows][n_rot ÷ 2]
};

class CpuBackend final : public Backend {
 public:
  CpuBackend(const std::string& isa, int threads, std::shared_ptr<PackedStore> store)
      : kernels_(select_cpu_kernels(isa)), team_(threads), store_(std::move(store)) {}

  BackendInfo info() const override { return {"cpu", kernels_.isa, team_.size()}; }
  LoadReport prepare(const Graph& graph) override;
  std::unique_ptr<Backend> sibling(const std::string& isa, int threads) const override {
    return std::make_unique<CpuBackend>(isa, threads, store_);
  }
  void set_observer(OpObserver* observer) override { observer_ = observer; }
  void run(const Graph& graph, Pass& pass) override;

 private:
  void reserve(const Graph& graph, const Pass& pass);
  void work(int worker, Barrier& barrier);
  void rope_rows(int worker);
  void after_op(int op_index, double milliseconds);
  void check_logits();
  void collect_faults(int op_index, uint8_t* flags);
  void apply_plant(int op_index);

  // One worker's part of one op.
  struct Step {
    const Op& op;
    int index;  // in Graph::ops
    int worker;
    int64_t rows;
    FaultFlags faults;
    Barrier& barrier;
  };
  void execute(const op::Embed&, const Step&);
  void execute(const op::RmsNorm&, const Step&);
  void execute(const op::Linear&, const Step&);
  void execute(const op::Rope&, const Step&);
  void execute(const op::KvWrite&, const Step&);
  void execute(const op::Attention&, const Step&);
  void execute(const op::Add&, const Step&);
  void execute(const op::GatedAct&, const Step&);
  void execute(const op::SelectRows&, const Step&);
  void execute(const op::Softcap&, const Step&);

  float* slot(Slot index) const { return slots_[static_cast<size_t>(index)]; }
  int64_t width(Slot index) const { return graph_->slots[static_cast<size_t>(index)].width; }
  // Ops alternate between two sets of flags, so that worker 0 can read those of the last op while
  // the others are in the next one.
  uint8_t* flags(int op_index) const { return flags_.as<uint8_t>() + (op_index & 1) * plan_.rows; }

  // Shares `items` of phase `phase` (0 or 1) of an op among the workers, in chunks taken as each
  // worker comes; who takes which never changes a bit.
  template <typename Function>
  void share(int op_index, int phase, int64_t items, int64_t chunk, Function&& run);
  // The items of an op with one kernel.
  template <typename Args>
  void share_kernel(int op_index, void (*kernel)(const Args&, Range), const Args& args) {
    share_evenly(op_index, args.items(), [&](Range range) { kernel(args, range); });
  }
  template <typename Function>
  void share_evenly(int op_index, int64_t items, Function&& run);
  // The same over the items of all segments; run(segment, range of its items).
  template <typename Items, typename Function>
  void share_segments(int op_index, int64_t chunk, Items&& items_of, Function&& run);

  const CpuKernels& kernels_;
  ThreadTeam team_;
  const std::shared_ptr<PackedStore> store_;
  OpObserver* observer_ = nullptr;

  // Kept from pass to pass.
  std::vector<Buffer> slot_memory_;
  QuantizedBuffers q32_, q256_;
  std::vector<RopeTable> rope_tables_;
  Buffer scratch_, flags_;
  int64_t scratch_stride_ = 0;

  // Of the pass that runs.
  const Graph* graph_ = nullptr;
  Pass* pass_ = nullptr;
  std::shared_ptr<const PackedGraph> packed_;
  PassPlan plan_;
  std::vector<float*> slots_;
  std::vector<int> first_fault_;                       // [rows], op index or -1
  std::unique_ptr<std::atomic<int64_t>[]> next_item_;  // [2·(ops + 1)]
  std::exception_ptr observer_error_;
};

template <typename Function>
void CpuBackend::share(int op_index, int phase, int64_t items, int64_t chunk, Function&& run) {
  std::atomic<int64_t>& next = next_item_[static_cast<size_t>(2 * op_index + phase)];
  while (true) {
    const int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
    if (begin >= items) return;
    run(Range{begin, std::min(items, begin + chunk)});
  }
}

template <typename Function>
void CpuBackend::share_evenly(int op_index, int64_t items, Function&& run) {
  // Eight turns a worker even out a core that is taken away for a while.
  const int64_t turns = team_.size() == 1 ? 1 : 8 * team_.size();
  share(op_index, 0, items, std::max<int64_t>(1, items / turns), run);
}

template <typename Items, typename Function>
void CpuBackend::share_segments(int op_index, int64_t chunk, Items&& items_of, Function&& run) {
  int64_t total = 0;
  for (const PassPlan::Segment& segment : plan_.segments) total += items_of(segment);
  share(op_index, 0, total, chunk, [&](Range range) {
    int64_t offset = 0;
    for (const PassPlan::Segment& segment : plan_.segments) {
      const int64_t items = items_of(segment);
      const Range own{std::max<int64_t>(0, range.begin - offset),
                      std::min(items, range.end - offset)};
      if (!own.empty()) run(segment, own);
      offset += items;
    }
  });
}

}  // namespace lockstep::kernels
