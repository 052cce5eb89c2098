#include "kernels/cuda/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/error.h"
#include "kernels/cpu/float_mode.h"
#include "kernels/ops/quantize_activations.h"
#include "kernels/rope_table.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int64_t kReadBytes = 2LL << 30;  // far above any L2
// Passes of at most so many rows are recorded, and so many of them kept.
constexpr int64_t kMostRecordedRows = 32;
constexpr size_t kMostRecorded = 128;
// Attention page by page, whose pages are joined to spans later, while its sums take no more than
// this; span by span in wide passes, which have blocks enough.
constexpr int64_t kMostBytesApart = 128 << 20, kMostRowsApart = 32;
// Passes in which each block of attention turns the heads that it reads: a few more of them would
// take it longer than a launch for all does.
constexpr int64_t kMostRowsTurned = 8;

FloatType float_type(TensorType type) {
  return type == TensorType::f16    ? FloatType::f16
         : type == TensorType::bf16 ? FloatType::bf16
                                    : FloatType::f32;
}

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
  return std::unique_ptr<CudaBackend>(new CudaBackend(device_, store_, pages_));
}

std::shared_ptr<PageMemory> CudaBackend::page_memory() const {
  return pages_;
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

std::shared_ptr<float[]> CudaBackend::logits_memory(int64_t floats) {
  auto memory = std::make_shared<HostBuffer>();
  auto* at = reinterpret_cast<float*>(memory->reserve(device_, 4 * floats));
  return {at, [memory](float*) {}};
}

void CudaBackend::run(const Graph& graph, Pass& pass) {
  graph_ = &graph;
  pass_ = &pass;
  pass.faults.clear();
  pass.greatest.clear();
  if (pass.plant) pass.plant->done = false;
  const CanonicalFloatMode mode;
  check(graph);
  plan_ = plan_pass(graph, facts_, pass);
  if (plan_.rows == 0) return;
  const auto weights = store_->of(graph);
  if (weights != weights_) recorded_.clear();
  weights_ = weights;
  reserve(graph);
  fill_block(graph);
  forget_rows();
  run_launches();
  read_results(graph);
  if (!observer_) return;
  const std::vector<double> ms = device_->times();
  for (int i = 0; i < n_ops(); ++i) {
    observer_->on_op(i, ms[static_cast<size_t>(i)], plan_.rows_at(i));
  }
}

// Flags, and the greatest logits or whole rows.
void CudaBackend::read_results(const Graph& graph) {
  Pass& pass = *pass_;
  const auto wanted = static_cast<int64_t>(plan_.selected.size());
  const int64_t row_bytes = 4 * graph.n_vocab, rows = greatest_wanted_ > 0 ? 0 : wanted;
  const int64_t small = flags_at_ + (n_ops() + 1) * plan_.rows;  // the block's first bytes
  // Straight to their place where the device can write there.
  const bool direct = device_->is_host_memory(pass.logits.data());
  std::byte* results = results_.reserve(device_, small + (direct ? 0 : wanted * row_bytes));
  const auto logits_there = [&](int64_t row) {
    return direct ? reinterpret_cast<std::byte*>(pass.logits.data() + row * graph.n_vocab)
                  : results + small + row * row_bytes;
  };
  const auto start_rows = [&](int64_t first, int64_t n) {
    if (n > 0) {
      device_->start_download(logits_there(first), slot(graph.logits) + first * graph.n_vocab,
                              n * row_bytes);
    }
  };
  const auto take_rows = [&](int64_t first, int64_t n) {
    if (direct || n == 0) return;
    std::memcpy(pass.logits.data() + first * graph.n_vocab, logits_there(first),
                static_cast<size_t>(n * row_bytes));
  };
  start_rows(0, rows);
  device_->start_download(results, block_memory_.as<std::byte>(), small);
  device_->wait();
  take_rows(0, rows);
  pass.faults = faults_of(plan_, reinterpret_cast<const uint8_t*>(results + flags_at_), n_ops());
  if (greatest_wanted_ == 0) return;
  pass.greatest.resize(static_cast<size_t>(wanted));
  for (int64_t row = 0; row < wanted; ++row) {
    const auto& found = reinterpret_cast<const GreatestLogits*>(results)[row];
    if (found.count > kGreatestRoom) {
      start_rows(row, 1);
      device_->wait();
      take_rows(row, 1);
      continue;
    }
    auto& list = pass.greatest[static_cast<size_t>(row)];
    list.assign(found.list, found.list + found.count);
    std::sort(list.begin(), list.end(),
              [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  }
}

void CudaBackend::forget_rows() {
  if (forgotten_.places.empty()) return;
  device_->kernels().fill({on_device<FillPlace>(forgotten_at_),
                           static_cast<int64_t>(forgotten_.places.size()), forgotten_.value},
                          device_->stream());
}

std::optional<CudaBackend::Shape> CudaBackend::shape() const {
  if (plan_.segments.size() != 1 || plan_.rows > kMostRecordedRows) return std::nullopt;
  const auto& kv = plan_.segments[0].pass->kv;
  if (kv.empty()) return std::nullopt;
  return Shape{plan_.rows,        static_cast<int64_t>(plan_.selected.size()),
               segments_[0].room, greatest_wanted_,
               kv[0].k_type,      kv[0].v_type};
}

void CudaBackend::run_launches() {
  if (observer_ || pass_->plant) {
    run_ops();
    return;
  }
  const std::optional<Shape> own = shape();
  if (!own) {
    run_steps();
    return;
  }
  const auto known = recorded_.find(*own);
  if (known == recorded_.end()) {
    if (recorded_.size() >= kMostRecorded) recorded_.clear();
    recorded_[*own] = nullptr;
    run_steps();
    return;
  }
  if (!known->second) {
    device_->begin_recording();
    run_steps();
    known->second = device_->end_recording();
  }
  device_->replay(*known->second);
}

void CudaBackend::run_ops() {
  make_inputs();
  if (observer_) device_->mark();
  for (int i = 0; i < n_ops(); ++i) {
    if (plan_.rows_at(i) > 0) {
      std::visit([&](const auto& args) { run_op(args, i); },
                 graph_->ops[static_cast<size_t>(i)].args);
    }
    if (pass_->plant && pass_->plant->op == i) apply_plant();
    if (observer_) device_->mark();
  }
  check_logits();
}

void CudaBackend::make_inputs() {
  InputsArgs args;
  if (first_pair_.back() > 0) {
    args.rotary = {rotary_pairs_.as<RotaryPair>(), first_pair_.back(),
                   on_device<int64_t>(positions_at_), plan_.rows, rotary_.as<float>()};
  }
  for (size_t i = 0; i < embedded_.size(); ++i) {
    const auto& embed = args_of<op::Embed>(facts_.embeds[i]);
    args.embed = {on_device<std::byte>(embedded_[i].encoded),
                  embed.table->type,
                  plan_.rows,
                  embed.table->n_in,
                  embed.table->row_bytes,
                  embed.scale,
                  embeds_.as<float>() + embedded_[i].first};
    device_->kernels().inputs(args, device_->stream());
    args = {};
  }
  if (args.rotary.rows > 0) device_->kernels().inputs(args, device_->stream());
}

void CudaBackend::run_steps() {
  make_inputs();
  for (const Step& step : steps_) {
    std::visit([&](const auto& args) { run_step(args); }, step);
  }
  check_logits();
}

void CudaBackend::check_logits() {
  const auto wanted = static_cast<int64_t>(plan_.selected.size());
  if (wanted == 0) return;
  float* maxima = greatest_wanted_ > 0 ? maxima_.as<float>() : nullptr;
  device_->kernels().check_logits(
      {slot(graph_->logits), wanted, graph_->n_vocab, faults(n_ops()), maxima}, device_->stream());
  if (maxima == nullptr) return;
  device_->kernels().greatest_logits({slot(graph_->logits), maxima, wanted, graph_->n_vocab,
                                      greatest_wanted_, on_device<GreatestLogits>(greatest_at_)},
                                     device_->stream());
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
  std::vector<RotaryPair> pairs;
  first_pair_.assign(1, 0);
  for (const RopeSpec* spec : facts_.rope_specs) {
    const RopeFrequencies rope = rope_frequencies(*spec);
    const auto first = static_cast<int32_t>(pairs.size()), n = static_cast<int32_t>(rope.f.size());
    for (const double f : rope.f) pairs.push_back({f, rope.scaled ? rope.mscale : 1.0f, first, n});
    first_pair_.push_back(first + n);
  }
  if (!pairs.empty()) {
    const auto bytes = static_cast<int64_t>(pairs.size() * sizeof(RotaryPair));
    rotary_pairs_.reserve(device_, bytes, "rotary frequencies");
    device_->upload(rotary_pairs_.as<RotaryPair>(), pairs.data(), bytes);
  }
  steps_ = steps_of(graph);
  recorded_.clear();
  known_ = graph.identity;
}

template <typename T>
bool CudaBackend::grow(DeviceBuffer& buffer, T bytes, const char* what) {
  const bool moved = buffer.reserve(device_, bytes, what);
  if (moved) recorded_.clear();
  return moved;
}

void CudaBackend::reserve(const Graph& graph) {
  const auto selected = static_cast<int64_t>(plan_.selected.size());
  // Rows of fewer stretches than logits are wanted have no bound, and fit as they are or don't.
  const int64_t stretches = logits_stretches(graph.n_vocab);
  const bool listed = pass_->greatest_wanted <= stretches || graph.n_vocab <= kGreatestRoom;
  greatest_wanted_ = listed && selected > 0 ? pass_->greatest_wanted : 0;
  if (greatest_wanted_ > 0) grow(maxima_, 4 * selected * stretches, "the greatest logits");
  if (first_pair_.back() > 0) grow(rotary_, 8 * plan_.rows * first_pair_.back(), "rotary rows");
  if (slots_.size() < graph.slots.size()) slots_.resize(graph.slots.size());
  for (size_t i = 0; i < graph.slots.size(); ++i) {
    const int64_t rows = facts_.slot_is_late[i] ? selected : plan_.rows;
    grow(slots_[i], 4 * std::max<int64_t>(1, rows) * graph.slots[i].width, "activations");
  }
  const GraphFacts::Widest widest[] = {facts_.q32, facts_.q256};
  for (int form = 0; form < 2; ++form) {
    const int64_t all = segments_of(widest[form].all), late = segments_of(widest[form].selected);
    const int64_t late_rows = std::max<int64_t>(1, selected);
    const int64_t segments = std::max(plan_.rows * all, late_rows * late);
    if (segments == 0) continue;
    const char* what = "quantised activations";
    grow(q_[form], std::max(activation_bytes(plan_.rows, all), activation_bytes(late_rows, late)),
         what);
    grow(d_[form], 4 * segments * (form ? 1 : 8), what);
    grow(sums_[form], 32 * segments, what);
  }
}

void CudaBackend::fill_block(const Graph& graph) {
  // First what comes back: lists, which need not go over, and flags.
  block_.clear();
  const auto selected = static_cast<int64_t>(plan_.selected.size());
  greatest_at_ = block_.add(
      greatest_wanted_ > 0 ? static_cast<int64_t>(sizeof(GreatestLogits)) * selected : 0);
  const int64_t flags = (n_ops() + 1) * plan_.rows;
  flags_at_ = block_.add(flags);
  std::memset(block_.at(flags_at_), 0, static_cast<size_t>(flags));
  embedded_.clear();
  int64_t floats = 0;
  for (const int i : facts_.embeds) {
    const Weight& table = *std::get<op::Embed>(graph.ops[static_cast<size_t>(i)].args).table;
    const int64_t at = block_.add(plan_.rows * table.row_bytes);
    for (int64_t row = 0; row < plan_.rows; ++row) {
      const int32_t token = plan_.tokens[static_cast<size_t>(row)];
      std::memcpy(block_.at(at + row * table.row_bytes), table.data + token * table.row_bytes,
                  static_cast<size_t>(table.row_bytes));
    }
    embedded_.push_back({at, floats});
    floats += plan_.rows * table.n_in;
  }
  if (floats > 0) grow(embeds_, 4 * floats, "embedding rows");
  positions_at_ = block_.add(8 * plan_.rows);
  std::memcpy(block_.at(positions_at_), plan_.positions.data(),
              static_cast<size_t>(8 * plan_.rows));
  selected_at_ = block_.add(8 * std::max<int64_t>(1, selected));
  if (selected > 0) {
    std::memcpy(block_.at(selected_at_), plan_.selected.data(), static_cast<size_t>(8 * selected));
  }
  segments_.assign(plan_.segments.size(), {});
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const PassPlan::Segment& segment = plan_.segments[s];
    if (segment.rows == 0) continue;
    SegmentLists& lists = segments_[s];
    lists.place = block_.add(sizeof(PassPlace));
    const PassPlace place{segment.pass->first_position};
    std::memcpy(block_.at(lists.place), &place, sizeof place);
    const int64_t end = segment.pass->first_position + segment.rows;
    const int64_t n_pages = (end + kPagePositions - 1) / kPagePositions;
    // Whole spans, so that passes of one shape stay of one shape for a while.
    lists.room = (n_pages + kSpanPages - 1) / kSpanPages * kSpanPages;
    for (const KvLayerView& kv : segment.pass->kv) {
      const auto list = [&](std::byte* const* pages) {
        const int64_t at = block_.add(8 * lists.room);
        const int64_t there = std::min(n_pages, kv.n_pages);
        if (there > 0) std::memcpy(block_.at(at), pages, static_cast<size_t>(8 * there));
        return at;
      };
      const int64_t k = list(kv.k_pages);
      lists.layers.push_back({k, list(kv.v_pages)});
    }
  }
  // Last: a recorded pass has everything else at the places that its shape says.
  forgotten_ = pages_->take_fills();
  const auto fills = static_cast<int64_t>(forgotten_.places.size() * sizeof(FillPlace));
  forgotten_at_ = block_.add(fills);
  if (fills > 0) {
    std::memcpy(block_.at(forgotten_at_), forgotten_.places.data(), static_cast<size_t>(fills));
  }
  constexpr int64_t kRoom = 1 << 20;  // it hardly ever moves
  grow(block_memory_, std::max(kRoom, block_.size()), "a pass's inputs");
  std::byte* there = block_there_.reserve(device_, std::max(kRoom, block_.size()));
  const int64_t bytes = block_.size() - flags_at_;
  std::memcpy(there, block_.data() + flags_at_, static_cast<size_t>(bytes));
  device_->start_upload(block_memory_.as<std::byte>() + flags_at_, there, bytes);
}

DeviceKv CudaBackend::layer_of(int op_index, size_t segment) const {
  const auto layer = static_cast<size_t>(graph_->ops[static_cast<size_t>(op_index)].layer);
  const KvLayerView& kv = plan_.segments[segment].pass->kv[layer];
  const PageLists& lists = segments_[segment].layers[layer];
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
          superblocks ? sums_[form].as<int8_t>() : nullptr};
}

std::pair<const float*, const float*> CudaBackend::rotary_of(const RopeSpec* spec) const {
  const auto& specs = facts_.rope_specs;
  const auto index =
      static_cast<size_t>(std::find(specs.begin(), specs.end(), spec) - specs.begin());
  const int64_t first = first_pair_[index], n = first_pair_[index + 1] - first;
  const float* cos = rotary_.as<float>() + 2 * plan_.rows * first;
  return {cos, cos + plan_.rows * n};
}

// --- one op --------------------------------------------------------------------------------------

// Of the Embed ops in order, where op op_index's rows are.
const float* CudaBackend::embedded_of(int op_index) const {
  const auto found = std::find(facts_.embeds.begin(), facts_.embeds.end(), op_index);
  return embeds_.as<float>() + embedded_[static_cast<size_t>(found - facts_.embeds.begin())].first;
}

void CudaBackend::run_op(const op::Embed& a, int op_index) {
  const int64_t bytes = 4 * plan_.rows * a.table->n_in;
  device_->copy(slot(a.out), embedded_of(op_index), bytes, bytes, 1);
}

void CudaBackend::run_op(const op::RmsNorm& a, int op_index) {
  device_->kernels().rms_norm(
      {slot(a.in), weights_->vectors.at(a.weight), slot(a.out), plan_.rows_at(op_index),
       width(a.in), a.group, a.eps, faults(op_index)},
      device_->stream());
}

void CudaBackend::run_op(const op::Linear& a, int op_index) {
  const LinearForms forms = forms_of(a);
  for (const bool superblocks : {false, true}) {
    if (!forms.q[superblocks ? 1 : 0]) continue;
    device_->kernels().quantize({slot(a.in), plan_.rows_at(op_index), width(a.in), superblocks,
                                 quantised(superblocks), faults(op_index)},
                                device_->stream());
  }
  run_products(a, op_index);
}

// Of an input that is quantised: matrices of one format and table in one launch.
void CudaBackend::run_products(const op::Linear& a, int op_index) {
  const int64_t rows = plan_.rows_at(op_index);
  std::vector<bool> done(a.outs.size());
  for (size_t first = 0; first < a.outs.size(); ++first) {
    if (done[first]) continue;
    const Weight& w = *a.outs[first].weight;
    const auto bias_of = [&](const op::LinearOut& out) {
      return out.bias ? weights_->vectors.at(out.bias) : nullptr;
    };
    if (activation_form(w.type) == ActivationForm::f32) {
      const op::LinearOut& out = a.outs[first];
      device_->kernels().matmul_float({weights_->floats.at(&w), float_type(w.type), w.n_in, w.n_out,
                                       bias_of(out), slot(a.in), rows, slot(out.out)},
                                      device_->stream());
      continue;
    }
    const DeviceMatrix& matrix = weights_->matrices.at(&w);
    ProductsArgs args;
    args.format = matrix.format;
    args.n_in = w.n_in;
    args.rows = rows;
    args.x = quantised(format_info(matrix.format).superblocks);
    std::copy(std::begin(matrix.table.words), std::end(matrix.table.words), args.table);
    args.wide_d = matrix.wide_d;
    args.processors = device_->processors();
    int n = 0;
    for (size_t i = first; i < a.outs.size() && n < kMostProducts; ++i) {
      const op::LinearOut& out = a.outs[i];
      if (done[i] || out.weight->type != w.type) continue;
      done[i] = true;
      args.outs[n++] = {weights_->matrices.at(out.weight).packed, out.weight->n_out, bias_of(out),
                        slot(out.out)};
    }
    device_->kernels().products(args, device_->stream());
  }
}

void CudaBackend::run_op(const op::Rope& a, int op_index) {
  const auto [cos, sin] = rotary_of(a.spec);
  device_->kernels().rope({slot(a.inout), cos, sin, plan_.rows_at(op_index), a.n_head, a.head_dim,
                           a.spec->n_rot, a.spec->pairing == RopeSpec::Pairing::halves},
                          device_->stream());
}

void CudaBackend::run_op(const op::KvWrite& a, int op_index) {
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const PassPlan::Segment& segment = plan_.segments[s];
    if (segment.rows == 0) continue;
    device_->kernels().kv_write(
        {slot(a.k) + segment.first_row * width(a.k), slot(a.v) + segment.first_row * width(a.v),
         segment.rows, place_of_segment(s), layer_of(op_index, s),
         faults(op_index) + segment.first_row},
        device_->stream());
  }
}

void CudaBackend::run_op(const op::Attention&, int op_index) {
  run_attention({op_index}, {false, false});
}

// forms: those in which the step's product reads the result.
void CudaBackend::run_attention(const step::Attention& step, const bool (&forms)[2]) {
  const auto& a = args_of<op::Attention>(step.op);
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    const PassPlan::Segment& segment = plan_.segments[s];
    if (segment.rows == 0) continue;
    const int64_t pages = segments_[s].room;
    const auto partial_bytes = [&](int64_t units) {
      return 4 * segment.rows * a.n_head * units * partial_floats(a.head_dim);
    };
    const bool apart = segment.rows <= kMostRowsApart && partial_bytes(pages) <= kMostBytesApart;
    const int64_t spans = pages / kSpanPages;
    AttentionUnitsArgs units;
    units.q = slot(a.q) + segment.first_row * width(a.q);
    units.rows = segment.rows;
    units.n_head = a.n_head;
    units.head_dim = a.head_dim;
    units.scale = a.scale;
    units.softcap = a.softcap;
    units.window = a.window;
    units.place = place_of_segment(s);
    units.kv = layer_of(step.op, s);
    units.faults = faults(step.op) + segment.first_row;
    units.processors = device_->processors();
    units.unit_pages = apart ? 1 : kSpanPages;
    units.units = apart ? pages : spans;
    grow(partials_, partial_bytes(units.units), "sums of attention");
    units.partials = partials_.as<float>();
    if (step.heads) {
      const HeadsArgs heads = heads_of(*step.heads, s);
      if (segment.rows <= kMostRowsTurned && turns_heads(units.unit_pages, a.head_dim)) {
        units.heads = heads;
      } else {
        device_->kernels().heads(heads, device_->stream());
      }
    }
    device_->kernels().attention_units(units, device_->stream());
    const bool join = apart && spans > 1;
    if (join) {
      grow(spans_, partial_bytes(spans), "sums of attention");
      device_->kernels().attention_join({units.partials, segment.rows, a.n_head, a.head_dim,
                                         a.window, units.place, pages, spans, spans_.as<float>()},
                                        device_->stream());
    }
    AttentionMergeArgs merge;
    merge.partials = join ? spans_.as<float>() : units.partials;
    merge.rows = segment.rows;
    merge.n_head = a.n_head;
    merge.head_dim = a.head_dim;
    merge.window = a.window;
    merge.place = place_of_segment(s);
    merge.unit_pages = join ? kSpanPages : units.unit_pages;
    merge.units = join ? spans : units.units;
    if (step.keep_out) merge.out = slot(a.out) + segment.first_row * width(a.out);
    for (int form = 0; form < 2 && step.linear >= 0; ++form) {
      merge.forms[form] = forms[form];
      merge.quantized[form] = quantised(form == 1);
      merge.quantized[form].first_row = segment.first_row;
    }
    if (step.linear >= 0) merge.out_faults = faults(step.linear) + segment.first_row;
    device_->kernels().attention_merge(merge, device_->stream());
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

// --- one step ------------------------------------------------------------------------------------

void CudaBackend::run_step(const step::Single& step) {
  if (plan_.rows_at(step.op) == 0) return;
  std::visit([&](const auto& args) { run_op(args, step.op); },
             graph_->ops[static_cast<size_t>(step.op)].args);
}

void CudaBackend::run_step(const step::RowChain& step) {
  RowChainArgs args;
  args.rows = plan_.rows_at(step.first());
  if (args.rows == 0) return;
  if (step.embed >= 0) {
    const auto& embed = args_of<op::Embed>(step.embed);
    args.source = embedded_of(step.embed);
    args.h = slot(embed.out);
    args.width = width(embed.out);
  } else if (step.add >= 0) {
    const auto& add = args_of<op::Add>(step.add);
    args.source = args.h = slot(add.out);
    args.branch = slot(add.b);
    args.width = width(add.out);
    if (step.branch_norm >= 0) {
      const auto& norm = args_of<op::RmsNorm>(step.branch_norm);
      args.branch_norm = weights_->vectors.at(norm.weight);
      args.branch_eps = norm.eps;
      args.branch_faults = faults(step.branch_norm);
    }
  } else if (step.select >= 0) {
    const auto& select = args_of<op::SelectRows>(step.select);
    args.source = slot(select.in);
    args.select = on_device<int64_t>(selected_at_);
    args.h = slot(select.out);
    args.width = width(select.out);
  } else {
    const auto& norm = args_of<op::RmsNorm>(step.norm);
    args.source = slot(norm.in);
    args.width = width(norm.in);
  }
  if (step.norm >= 0) {
    const auto& norm = args_of<op::RmsNorm>(step.norm);
    args.norm = weights_->vectors.at(norm.weight);
    args.eps = norm.eps;
    args.norm_faults = faults(step.norm);
    if (step.keep_x) args.x = slot(norm.out);
  }
  if (step.linear >= 0) {
    const LinearForms forms = forms_of(args_of<op::Linear>(step.linear));
    for (int form = 0; form < 2; ++form) {
      args.forms[form] = forms.q[form];
      args.out[form] = quantised(form == 1);
    }
    args.out_faults = faults(step.linear);
  }
  device_->kernels().row_chain(args, device_->stream());
}

void CudaBackend::run_step(const step::Linear& step) {
  if (plan_.rows_at(step.op) == 0) return;
  const auto& linear = args_of<op::Linear>(step.op);
  if (step.quantised) {
    run_products(linear, step.op);
  } else {
    run_op(linear, step.op);
  }
}

HeadsArgs CudaBackend::heads_of(const step::Heads& step, size_t segment_index) const {
  const PassPlan::Segment& segment = plan_.segments[segment_index];
  const auto& q = args_of<op::Rope>(step.rope_q);
  const auto& write = args_of<op::KvWrite>(step.kv_write);
  const auto [cos, sin] = rotary_of(q.spec);
  HeadsArgs args;
  args.q = slot(q.inout) + segment.first_row * width(q.inout);
  args.k = slot(write.k) + segment.first_row * width(write.k);
  args.v = slot(write.v) + segment.first_row * width(write.v);
  args.rows = segment.rows;
  args.n_head = q.n_head;
  args.head_dim = q.head_dim;
  args.n_rot = q.spec->n_rot;
  args.halves = q.spec->pairing == RopeSpec::Pairing::halves;
  args.cos = cos + segment.first_row * (q.spec->n_rot / 2);
  args.sin = sin + segment.first_row * (q.spec->n_rot / 2);
  if (step.q_norm >= 0) {
    const auto& norm = args_of<op::RmsNorm>(step.q_norm);
    args.q_norm = weights_->vectors.at(norm.weight);
    args.q_eps = norm.eps;
    args.q_faults = faults(step.q_norm) + segment.first_row;
  }
  if (step.k_norm >= 0) {
    const auto& norm = args_of<op::RmsNorm>(step.k_norm);
    args.k_norm = weights_->vectors.at(norm.weight);
    args.k_eps = norm.eps;
    args.k_faults = faults(step.k_norm) + segment.first_row;
  }
  args.place = place_of_segment(segment_index);
  args.kv = layer_of(step.kv_write, segment_index);
  args.write_faults = faults(step.kv_write) + segment.first_row;
  return args;
}

void CudaBackend::run_step(const step::Heads& step) {
  for (size_t s = 0; s < plan_.segments.size(); ++s) {
    if (plan_.segments[s].rows > 0) device_->kernels().heads(heads_of(step, s), device_->stream());
  }
}

void CudaBackend::run_step(const step::Attention& step) {
  const LinearForms forms =
      step.linear >= 0 ? forms_of(args_of<op::Linear>(step.linear)) : LinearForms{};
  run_attention(step, forms.q);
}

void CudaBackend::run_step(const step::GatedAct& step) {
  const auto& a = args_of<op::GatedAct>(step.op);
  const int64_t rows = plan_.rows_at(step.op);
  if (rows == 0) return;
  const bool superblocks = forms_of(args_of<op::Linear>(step.linear)).q[1];
  device_->kernels().act_quantize(
      {{slot(a.gate), slot(a.up), step.keep_out ? slot(a.out) : nullptr, rows, width(a.out),
        a.act == Activation::gelu_tanh, faults(step.op)},
       superblocks,
       quantised(superblocks),
       faults(step.linear)},
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
