// Runs passes on a CUDA device, on one stream: a launch for each step of the graph (steps.h), or
// for each op where somebody looks between them (an observer, a planted fault). What a pass brings
// along (embedding rows, positions, page lists, selected rows, fault flags) is made on the CPU by
// the functions every backend uses, and goes over in one copy. Narrow passes of one sequence are
// recorded when their shape comes back, and then made by one call.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/pass_plan.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/pages.h"
#include "kernels/cuda/steps.h"
#include "kernels/cuda/weights.h"

namespace lockstep::kernels::cuda {

class CudaBackend final : public Backend {
 public:
  explicit CudaBackend(std::shared_ptr<Device> device)
      : CudaBackend(device, std::make_shared<DeviceWeightStore>(device),
                    std::make_shared<DevicePages>(device)) {}

  BackendInfo info() const override;
  LoadReport prepare(const Graph& graph) override;
  // On the same device: isa and threads are the CPU's.
  std::unique_ptr<Backend> sibling(const std::string& isa, int threads) const override;
  void set_observer(OpObserver* observer) override { observer_ = observer; }
  void run(const Graph& graph, Pass& pass) override;
  std::shared_ptr<PageMemory> page_memory() const override;
  double read_gb_s() override;
  std::optional<int64_t> free_memory() const override { return device_->memory().free; }
  std::shared_ptr<float[]> logits_memory(int64_t floats) override;

 private:
  CudaBackend(std::shared_ptr<Device> device, std::shared_ptr<DeviceWeightStore> store,
              std::shared_ptr<DevicePages> pages)
      : device_(std::move(device)), store_(std::move(store)), pages_(std::move(pages)) {}

  // What goes to the device before a pass, in one block.
  class Block {
   public:
    // Returns the offset of `bytes` bytes that the caller fills.
    int64_t add(int64_t bytes);
    std::byte* at(int64_t offset) { return bytes_.data() + offset; }
    void clear() { bytes_.clear(); }
    int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
    const std::byte* data() const { return bytes_.data(); }

   private:
    std::vector<std::byte> bytes_;
  };
  // Offsets in the block. `room` entries each.
  struct PageLists {
    int64_t k = 0, v = 0;
  };
  struct SegmentLists {
    int64_t place = 0, room = 0;
    std::vector<PageLists> layers;
  };
  // What a recorded pass depends on.
  using Shape = std::tuple<int64_t, int64_t, int64_t, int64_t, KvType,
                           KvType>;  // rows, selected, room, greatest_wanted, types

  void check(const Graph& graph);
  void reserve(const Graph& graph);
  void fill_block(const Graph& graph);
  void run_launches();
  void run_ops();
  void run_steps();
  void run_step(const step::Single&);
  void run_step(const step::RowChain&);
  void run_step(const step::Linear&);
  void run_step(const step::Heads&);
  void run_step(const step::Attention&);
  void run_step(const step::GatedAct&);
  void run_products(const op::Linear&, int op_index);
  HeadsArgs heads_of(const step::Heads&, size_t segment) const;
  void run_attention(const step::Attention&, const bool (&forms)[2]);
  void make_inputs();
  void check_logits();
  void read_results(const Graph& graph);
  void forget_rows();
  std::optional<Shape> shape() const;
  void run_op(const op::Embed&, int op_index);
  void run_op(const op::RmsNorm&, int op_index);
  void run_op(const op::Linear&, int op_index);
  void run_op(const op::Rope&, int op_index);
  void run_op(const op::KvWrite&, int op_index);
  void run_op(const op::Attention&, int op_index);
  void run_op(const op::Add&, int op_index);
  void run_op(const op::GatedAct&, int op_index);
  void run_op(const op::SelectRows&, int op_index);
  void run_op(const op::Softcap&, int op_index);
  void apply_plant();

  float* slot(Slot index) const { return slots_[static_cast<size_t>(index)].as<float>(); }
  int64_t width(Slot index) const { return graph_->slots[static_cast<size_t>(index)].width; }
  int n_ops() const { return static_cast<int>(graph_->ops.size()); }
  uint8_t* faults(int op_index) const {
    return on_device<uint8_t>(flags_at_) + op_index * plan_.rows;
  }
  template <typename T>
  const T& args_of(int op_index) const {
    return std::get<T>(graph_->ops[static_cast<size_t>(op_index)].args);
  }
  template <typename T>
  bool grow(DeviceBuffer& buffer, T bytes, const char* what);
  template <typename T>
  T* on_device(int64_t offset) const {
    return reinterpret_cast<T*>(block_memory_.as<std::byte>() + offset);
  }
  DeviceKv layer_of(int op_index, size_t segment) const;
  const PassPlace* place_of_segment(size_t segment) const {
    return on_device<PassPlace>(segments_[segment].place);
  }
  const float* embedded_of(int op_index) const;
  std::pair<const float*, const float*> rotary_of(const RopeSpec* spec) const;
  DeviceActivations quantised(bool superblocks) const;

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<DeviceWeightStore> store_;
  const std::shared_ptr<DevicePages> pages_;
  OpObserver* observer_ = nullptr;

  // Kept from pass to pass.
  std::weak_ptr<const void> known_;  // Graph::identity of the two that follow
  GraphFacts facts_;
  DeviceBuffer rotary_pairs_;        // of all specs, in order
  std::vector<int64_t> first_pair_;  // of each spec, then how many there are
  std::vector<DeviceBuffer> slots_;
  std::vector<Step> steps_;
  DeviceBuffer q_[2], d_[2], sums_[2];  // [form q32, q256]; sums: d_sums or digits
  DeviceBuffer block_memory_, rotary_, embeds_, partials_, spans_, maxima_, read_buffer_,
      read_sink_;
  HostBuffer block_there_, results_;
  // Passes seen, null where they came once. All of the same buffers and weights.
  std::map<Shape, std::shared_ptr<Recording>> recorded_;
  int64_t read_bytes_ = 0;
  Block block_;

  // Of the pass that runs.
  const Graph* graph_ = nullptr;
  Pass* pass_ = nullptr;
  std::shared_ptr<const DeviceWeights> weights_;
  PassPlan plan_;
  // Of the Embed ops in order: where the table's rows are in the block, and the first float of
  // embeds_ that they become.
  struct EmbedPlace {
    int64_t encoded = 0, first = 0;
  };
  std::vector<EmbedPlace> embedded_;
  std::vector<SegmentLists> segments_;
  int64_t greatest_wanted_ = 0;  // above 0: lists in place of logits rows
  int64_t greatest_at_ = 0, positions_at_ = 0, selected_at_ = 0, flags_at_ = 0, forgotten_at_ = 0;
  DevicePages::Fills forgotten_;
};

}  // namespace lockstep::kernels::cuda
