#include "kernels/cuda/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/float_mode.h"
#include "kernels/cpu/kernels.h"
#include "kernels/ops/quantize_activations.h"

namespace lockstep::kernels::cuda {
namespace {

// Pages of KV in the device's memory.
class DevicePages final : public PageMemory {
 public:
  explicit DevicePages(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  std::byte* allocate(int64_t bytes) override {
    return static_cast<std::byte*>(device_->allocate(bytes));
  }
  void release(std::byte* page) noexcept override { device_->release(page); }
  void fill(std::byte* at, int value, int64_t bytes, int64_t pitch, int64_t rows) override {
    device_->fill(at, value, bytes, pitch, rows);
  }
  void copy(std::byte* to, const std::byte* from, int64_t bytes, int64_t pitch,
            int64_t rows) override {
    device_->copy(to, from, bytes, pitch, rows);
  }
  const std::byte* view(const std::byte* page, int64_t bytes, std::byte* buffer) override {
    device_->download(buffer, page, bytes);
    return buffer;
  }
  const char* name() const override { return "device memory"; }

 private:
  std::shared_ptr<Device> device_;
};

constexpr int64_t kReadBytes = 2LL << 30;  // far above any L2

}  // namespace

int64_t CudaBackend::Block::add(int64_t bytes) {
  constexpr int64_t kAlignment = 64;
  const int64_t at = (size() + kAlignment - 1) / kAlignment * kAlignment;
  bytes_.resize(static_cast<size_t>(at + bytes));
  return at;
}

BackendInfo CudaBackend::info() const {
  return {"cuda", device_->architecture(), 1, device_->name(), device_->driver()};
}

std::unique_ptr<Backend> CudaBackend::sibling(const std::string&, int) const {
  return std::make_unique<CudaBackend>(device_, store_);
}

std::shared_ptr<PageMemory> CudaBackend::page_memory() const {
  return std::make_shared<DevicePages>(device_);
}

LoadReport CudaBackend::prepare(const Graph& graph) {
  const auto start = std::chrono::steady_clock::now();
  const auto weights = store_->of(graph);
  const double ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return {ms, weights->bytes, 0};
}

double CudaBackend::read_gb_s() {
  if (read_bytes_ == 0) {
    const int64_t half_free = device_->memory().free / 2 / 16 * 16;
    const int64_t bytes = std::clamp<int64_t>(half_free, 1 << 20, kReadBytes);
    read_buffer_.reserve(device_, bytes, "a buffer to measure bandwidth with");
    read_bytes_ = bytes;
    device_->fill(read_buffer_.as<std::byte>(), 0x5A, read_bytes_, read_bytes_, 1);
    read_sink_.reserve(device_, 256, "a word");
  }
  const ReadArgs args{read_buffer_.as<std::byte>(), read_bytes_ / 16, read_sink_.as<uint32_t>()};
  constexpr int kTimes = 8;
  device_->mark();
  for (int i = 0; i < kTimes; ++i) {
    device_->kernels().read(args, device_->stream());
    device_->mark();
  }
  std::vector<double> ms = device_->times();
  std::sort(ms.begin(), ms.end());
  return static_cast<double>(read_bytes_) / (ms[ms.size() / 2] * 1e6);
}

void CudaBackend::run(const Graph& graph, Pass& pass) {
  graph_ = &graph;
  pass_ = &pass;
  pass.faults.clear();
  if (pass.plant) pass.plant->done = false;
  const CanonicalFloatMode mode;
  check(graph);
  plan_ = plan_pass(graph, facts_, pass);
  if (plan_.rows == 0) return;
  weights_ = store_->of(graph);
  reserve(graph);
  fill_block(graph);
  const int64_t flags = (n_ops() + 1) * plan_.rows;
  device_->fill(flags_.as<uint8_t>(), 0, flags, flags, 1);
  next_embed_ = 0;
  if (observer_) device_->mark();
  for (int i = 0; i < n_ops(); ++i) {
    if (plan_.rows_at(i) > 0) {
      std::visit([&](const auto& args) { run_op(args, i); },
                 graph.ops[static_cast<size_t>(i)].args);
    }
    if (pass.plant && pass.plant->op == i) apply_plant();
    if (observer_) device_->mark();
  }
  const auto wanted = static_cast<int64_t>(plan_.selected.size());
  if (wanted > 0) {
    device_->kernels().check_logits({slot(graph.logits), wanted, graph.n_vocab, faults(n_ops())},
                                    device_->stream());
    device_->download(pass.logits.data(), slot(graph.logits), 4 * wanted * graph.n_vocab);
  }
  std::vector<uint8_t> found(static_cast<size_t>(flags));
  device_->download(found.data(), flags_.as<uint8_t>(), flags);
  pass.faults = faults_of(plan_, found.data(), n_ops());
  if (!observer_) return;
  const std::vector<double> ms = device_->times();
  for (int i = 0; i < n_ops(); ++i) {
    observer_->on_op(i, ms[static_cast<size_t>(i)], plan_.rows_at(i));
  }
}

void CudaBackend::check(const Graph& graph) {
  if (known_.lock() == graph.identity) return;
  known_.reset();
  facts_ = facts_of(graph);
  for (const int i : facts_.kv_ops) {
    const Op& op = graph.ops[static_cast<size_t>(i)];
    const auto* attention = std::get_if<op::Attention>(&op.args);
    if (attention && attention->head_dim > kMaxHeadDim) {
      throw Error(ExitCode::bad_use,
                  fmt::format("op {}: heads of {} elements; the CUDA kernels take up to {}, use "
                              "--device cpu",
                              op.name, attention->head_dim, kMaxHeadDim));
    }
  }
  ropes_.clear();
  for (const RopeSpec* spec : facts_.rope_specs) ropes_.push_back(rope_frequencies(*spec));
  known_ = graph.identity;
}

void CudaBackend::reserve(const Graph& graph) {
  const auto selected = static_cast<int64_t>(plan_.selected.size());
  if (slots_.size() < graph.slots.size()) slots_.resize(graph.slots.size());
  for (size_t i = 0; i < graph.slots.size(); ++i) {
    const int64_t rows = facts_.slot_is_late[i] ? selected : plan_.rows;
    slots_[i].reserve(device_, 4 * std::max<int64_t>(1, rows) * graph.slots[i].width,
                      "activations");
  }
  const GraphFacts::Widest widest[] = {facts_.q32, facts_.q256};
  for (int form = 0; form < 2; ++form) {
    const int64_t n = std::max(plan_.rows * widest[form].all,
                               std::max<int64_t>(1, selected) * widest[form].selected);
    if (n == 0) continue;
    const char* what = "quantised activations";
    q_[form].reserve(device_, n, what);
    d_[form].reserve(device_, 4 * (n / (form ? 256 : 32)), what);
    sums_[form].reserve(device_, form ? 2 * (n / 16) : 4 * (n / 32), what);
  }
  flags_.reserve(device_, (n_ops() + 1) * plan_.rows, "fault flags");
}

void CudaBackend::fill_block(const Graph& graph) {
  block_.clear();
  embedded_.clear();
  for (const int i : facts_.embeds) {
    const auto& embed = std::get<op::Embed>(graph.ops[static_cast<size_t>(i)].args);
    const int64_t at = block_.add(4 * plan_.rows * embed.table->n_in);
    const EmbedArgs args{embed.table, plan_.tokens.data(), embed.scale, plan_.rows,
                         reinterpret_cast<float*>(block_.at(at))};
    all_cpu_kernels()[0]->embed(args, {0, args.items()});
    embedded_.push_back(at);
  }
  rotary_.clear();
  for (const RopeFrequencies& rope : ropes_) {
    const auto pairs = static_cast<int64_t>(rope.f.size());
    const int64_t cos = block_.add(4 * plan_.rows * pairs),
                  sin = block_.add(4 * plan_.rows * pairs);
    for (int64_t row = 0; row < plan_.rows; ++row) {
      rope_row(rope, plan_.positions[static_cast<size_t>(row)],
               reinterpret_cast<float*>(block_.at(cos)) + row * pairs,
               reinterpret_cast<float*>(block_.at(sin)) + row * pairs);
    }
    rotary_.emplace_back(cos, sin);
  }
  const auto selected = static_cast<int64_t>(plan_.selected.size());
  selected_at_ = block_.add(8 * std::max<int64_t>(1, selected));
  if (selected > 0) {
    std::memcpy(block_.at(selected_at_), plan_.selected.data(), static_cast<size_t>(8 * selected));
  }
  pages_.assign(plan_.segments.size(), {});
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const PassPlan::Segment& segment = plan_.segments[s];
    if (segment.rows == 0) continue;
    const int64_t end = segment.pass->first_position + segment.rows;
    const int64_t n_pages = (end + kPagePositions - 1) / kPagePositions;
    pages_[s].resize(segment.pass->kv.size());
    for (size_t layer = 0; layer < pages_[s].size(); ++layer) {
      const KvLayerView& kv = segment.pass->kv[layer];
      const auto list = [&](std::byte* const* pages) {
        const int64_t at = block_.add(8 * n_pages);
        const int64_t there = std::min(n_pages, kv.n_pages);
        if (there > 0) std::memcpy(block_.at(at), pages, static_cast<size_t>(8 * there));
        return at;
      };
      const int64_t k = list(kv.k_pages);
      pages_[s][layer] = {k, list(kv.v_pages)};
    }
  }
  block_memory_.reserve(device_, block_.size(), "a pass's inputs");
  device_->upload(block_memory_.as<std::byte>(), block_.data(), block_.size());
}

DeviceKv CudaBackend::layer_of(int op_index, size_t segment) const {
  const auto layer = static_cast<size_t>(graph_->ops[static_cast<size_t>(op_index)].layer);
  const KvLayerView& kv = plan_.segments[segment].pass->kv[layer];
  const PageLists& lists = pages_[segment][layer];
  return {kv.k_type,
          kv.v_type,
          kv.n_head_kv,
          kv.head_dim,
          on_device<std::byte*>(lists.k),
          on_device<std::byte*>(lists.v)};
}

DeviceActivations CudaBackend::quantised(bool superblocks) const {
  const int form = superblocks ? 1 : 0;
  return {q_[form].as<int8_t>(), d_[form].as<float>(),
          superblocks ? nullptr : sums_[form].as<float>(),
          superblocks ? sums_[form].as<int16_t>() : nullptr};
}

void CudaBackend::run_op(const op::Embed& a, int) {
  const int64_t bytes = 4 * plan_.rows * a.table->n_in;
  device_->copy(slot(a.out), on_device<std::byte>(embedded_[next_embed_++]), bytes, bytes, 1);
}

void CudaBackend::run_op(const op::RmsNorm& a, int op_index) {
  device_->kernels().rms_norm(
      {slot(a.in), weights_->vectors.at(a.weight), slot(a.out), plan_.rows_at(op_index),
       width(a.in), a.group, a.eps, faults(op_index)},
      device_->stream());
}

void CudaBackend::run_op(const op::Linear& a, int op_index) {
  const int64_t rows = plan_.rows_at(op_index);
  for (const ActivationForm form : {ActivationForm::q32, ActivationForm::q256}) {
    const bool needed = std::any_of(a.outs.begin(), a.outs.end(), [form](const op::LinearOut& out) {
      return activation_form(out.weight->type) == form;
    });
    if (!needed) continue;
    const bool superblocks = form == ActivationForm::q256;
    device_->kernels().quantize(
        {slot(a.in), rows, width(a.in), superblocks, quantised(superblocks), faults(op_index)},
        device_->stream());
  }
  for (const op::LinearOut& out : a.outs) {
    const Weight& w = *out.weight;
    const float* bias = out.bias ? weights_->vectors.at(out.bias) : nullptr;
    const ActivationForm form = activation_form(w.type);
    if (form == ActivationForm::f32) {
      const FloatType type = w.type == TensorType::f16    ? FloatType::f16
                             : w.type == TensorType::bf16 ? FloatType::bf16
                                                          : FloatType::f32;
      device_->kernels().matmul_float(
          {weights_->floats.at(&w), type, w.n_in, w.n_out, bias, slot(a.in), rows, slot(out.out)},
          device_->stream());
      continue;
    }
    const bool superblocks = form == ActivationForm::q256;
    device_->kernels().matmul_quantized({weights_->matrices.at(&w), w.n_in, w.n_out, bias,
                                         quantised(superblocks), rows, slot(out.out), superblocks},
                                        device_->stream());
  }
}

void CudaBackend::run_op(const op::Rope& a, int op_index) {
  const auto& specs = facts_.rope_specs;
  const auto index =
      static_cast<size_t>(std::find(specs.begin(), specs.end(), a.spec) - specs.begin());
  device_->kernels().rope(
      {slot(a.inout), on_device<float>(rotary_[index].first),
       on_device<float>(rotary_[index].second), plan_.rows_at(op_index), a.n_head, a.head_dim,
       a.spec->n_rot, a.spec->pairing == RopeSpec::Pairing::halves},
      device_->stream());
}

void CudaBackend::run_op(const op::KvWrite& a, int op_index) {
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const PassPlan::Segment& segment = plan_.segments[s];
    if (segment.rows == 0) continue;
    device_->kernels().kv_write(
        {slot(a.k) + segment.first_row * width(a.k), slot(a.v) + segment.first_row * width(a.v),
         segment.rows, segment.pass->first_position, layer_of(op_index, s),
         faults(op_index) + segment.first_row},
        device_->stream());
  }
}

void CudaBackend::run_op(const op::Attention& a, int op_index) {
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const PassPlan::Segment& segment = plan_.segments[s];
    if (segment.rows == 0) continue;
    device_->kernels().attention(
        {slot(a.q) + segment.first_row * width(a.q), slot(a.out) + segment.first_row * width(a.out),
         segment.rows, segment.pass->first_position, a.n_head, a.head_dim, a.scale, a.softcap,
         a.window, layer_of(op_index, s), faults(op_index) + segment.first_row},
        device_->stream());
  }
}

void CudaBackend::run_op(const op::Add& a, int op_index) {
  device_->kernels().add(
      {slot(a.a), slot(a.b), slot(a.out), plan_.rows_at(op_index) * width(a.out)},
      device_->stream());
}

void CudaBackend::run_op(const op::GatedAct& a, int op_index) {
  device_->kernels().gated_act({slot(a.gate), slot(a.up), slot(a.out), plan_.rows_at(op_index),
                                width(a.out), a.act == Activation::gelu_tanh, faults(op_index)},
                               device_->stream());
}

void CudaBackend::run_op(const op::SelectRows& a, int op_index) {
  device_->kernels().select_rows({slot(a.in), on_device<int64_t>(selected_at_), slot(a.out),
                                  plan_.rows_at(op_index), width(a.out)},
                                 device_->stream());
}

void CudaBackend::run_op(const op::Softcap& a, int op_index) {
  device_->kernels().softcap(
      {slot(a.inout), plan_.rows_at(op_index), width(a.inout), a.cap, faults(op_index)},
      device_->stream());
}

void CudaBackend::apply_plant() {
  const std::optional<PlantPlace> place = place_of(*graph_, plan_, *pass_->plant);
  if (!place) return;
  std::byte* at = place->page ? place->page : reinterpret_cast<std::byte*>(slot(place->slot));
  std::byte byte;
  device_->download(&byte, at + place->byte, 1);
  byte ^= std::byte{1} << place->bit;
  device_->upload(at + place->byte, &byte, 1);
  pass_->plant->done = true;
}

}  // namespace lockstep::kernels::cuda
