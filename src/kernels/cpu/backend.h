// Runs passes on the CPU's cores: the phases of a graph's schedule, each cut into chunks that the
// workers of one thread team take as they come; who takes which never changes a bit.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_team.h"
#include "kernels/backend.h"
#include "kernels/cpu/buffer.h"
#include "kernels/cpu/kernels.h"
#include "kernels/cpu/packed_store.h"
#include "kernels/cpu/pass_plan.h"
#include "kernels/cpu/schedule.h"
#include "kernels/rope_table.h"

namespace lockstep::kernels {

// Activations in one quantised form.
struct QuantizedBuffers {
  Buffer q, d, sums, starts, d_sums;

  void reserve(int64_t rows, int64_t n, int64_t block) {
    q.reserve(rows * n);
    d.reserve(rows * (n / block) * 4);
    sums.reserve(rows * (n / 32) * 4);
    starts.reserve(rows * (n / 32) * 4);
    d_sums.reserve(rows * (n / block) * 4);
  }
  QuantizedActivations view(int64_t together) const {
    return {q.as<int8_t>(),       d.as<float>(),      sums.as<int16_t>(),
            starts.as<int32_t>(), d_sums.as<float>(), together};
  }
};

struct RopeTable {
  RopeFrequencies frequencies;
  Buffer cos, sin;  // [rows][n_rot ÷ 2]
};

class CpuBackend final : public Backend, private TeamWork {
 public:
  CpuBackend(const std::string& isa, int threads, std::shared_ptr<PackedStore> store)
      : kernels_(select_cpu_kernels(isa)),
        team_(threads),
        store_(std::move(store)),
        cursors_(static_cast<size_t>(team_.size())) {}

  BackendInfo info() const override { return {"cpu", kernels_.isa, team_.size()}; }
  LoadReport prepare(const Graph& graph) override;
  std::unique_ptr<Backend> sibling(const std::string& isa, int threads) const override {
    return std::make_unique<CpuBackend>(isa, threads, store_);
  }
  void set_observer(OpObserver* observer) override { observer_ = observer; }
  void run(const Graph& graph, Pass& pass) override;

 private:
  // Rows [begin, end) of a chain, or pieces of all its rows in row order.
  struct Part {
    Range range;
    bool pieces;
  };

  void schedule(const Graph& graph);
  void reserve(const Graph& graph, const Pass& pass);
  void cut_phases();
  void begin_phase(int phase);
  int take_chunk(int phase, int worker);
  void fetch_ahead(int phase, int worker) const;
  int64_t items(const Phase& phase) const;

  void run(int phase, int chunk, int worker) override;
  void after(int phase) override;
  void run_chain(const Phase& phase, Part part);
  void run_product(int op_index, Range tiles);
  void run_attention(int op_index, Range items, int worker);

  void rope_rows(Range rows);
  void quantise(int op_index, Part part);
  void check_logits(Part part);
  void execute(const op::Embed&, int op_index, Part part);
  void execute(const op::RmsNorm&, int op_index, Part part);
  void execute(const op::Rope&, int op_index, Part part);
  void execute(const op::KvWrite&, int op_index, Part part);
  void execute(const op::Add&, int op_index, Part part);
  void execute(const op::GatedAct&, int op_index, Part part);
  void execute(const op::SelectRows&, int op_index, Part part);
  void execute(const op::Softcap&, int op_index, Part part);
  void execute(const op::Linear&, int, Part) {}  // phases of their own
  void execute(const op::Attention&, int, Part) {}

  AttentionArgs attention_args(int op_index, const PassPlan::Segment& segment) const;
  void apply_plant();
  void report_faults();
  void observe(int op_index, int64_t nanoseconds);

  float* slot(Slot index) const { return slots_[static_cast<size_t>(index)]; }
  int64_t width(Slot index) const { return graph_->slots[static_cast<size_t>(index)].width; }
  const Op& op(int index) const { return graph_->ops[static_cast<size_t>(index)]; }
  int n_ops() const { return static_cast<int>(graph_->ops.size()); }
  // One byte for each row of each op; those at n_ops() are of the last look at the logits.
  FaultFlags faults(int op_index) const { return {flags_.as<uint8_t>() + op_index * plan_.rows}; }

  template <typename Args>
  static void run_kernel(void (*kernel)(const Args&, Range), const Args& args, Part part) {
    if (args.rows == 0) return;
    const int64_t each = part.pieces ? 1 : args.items() / args.rows;
    kernel(args, {part.range.begin * each, part.range.end * each});
  }

  const CpuKernels& kernels_;
  ThreadTeam team_;
  const std::shared_ptr<PackedStore> store_;
  OpObserver* observer_ = nullptr;

  // Kept from pass to pass.
  std::vector<Buffer> slot_memory_;
  QuantizedBuffers q32_, q256_;
  std::vector<RopeTable> rope_tables_;
  Buffer scratch_, flags_, partials_, spans_done_;
  int64_t scratch_stride_ = 0, partial_floats_ = 0;  // of a worker; of a segment
  std::weak_ptr<const void> scheduled_;              // Graph::identity of the two that follow
  bool fused_ = false;
  GraphFacts facts_;
  std::vector<Phase> phases_;

  // Of the pass that runs.
  const Graph* graph_ = nullptr;
  Pass* pass_ = nullptr;
  std::shared_ptr<const PackedGraph> packed_;
  PassPlan plan_;
  std::vector<float*> slots_;
  std::vector<int32_t> chunks_;              // [phases]
  std::vector<int64_t> items_, chunk_size_;  // [phases]
  std::vector<int32_t> row_chunks_;          // [phases] chunks with work; the others fetch ahead
  std::vector<int> ahead_;                   // [phases] the next product; -1: none
  // Of the phase that runs.
  struct alignas(64) Cursor {
    std::atomic<int64_t> next{0};  // chunks taken of a worker's part
  };
  std::vector<Cursor> cursors_;  // [workers]
  std::atomic<int32_t> rows_left_{0};
  // With an observer: the time workers spent in each op in this phase, and an op's share of the
  // time that phases took.
  std::unique_ptr<std::atomic<int64_t>[]> busy_ns_;
  std::vector<double> op_ms_;
  int64_t phase_start_ns_ = 0;
};

}  // namespace lockstep::kernels
