#include "kernels/backend.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "kernels/cpu/backend.h"
#include "kernels/cpu/float_mode.h"

namespace lockstep::kernels {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Chunks of a phase even out a core that is taken away for a while. They shouldn't be so small that
// taking them costs: a chunk of a chain has at least this many pieces, one of a product as many
// bytes of weights.
constexpr int64_t kChunksPerWorker = 8;
constexpr int64_t kFewestPieces = 4;
constexpr int64_t kFewestBytes = 128 << 10;

// Workers without a row to work on fetch the beginning of their next matrices, no more than fits
// beside other things in the smallest second-level cache (512 KiB), and look every 16 lines whether
// the phase is over.
constexpr int64_t kMostAhead = 192 << 10, kAheadStep = 1024;
// Each is one more chunk that somebody has to take before the phase can end.
constexpr int32_t kMostFetching = 3;

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

LoadReport CpuBackend::prepare(const Graph& graph) {
  const int64_t start = now_ns();
  const auto packed = store_->of(graph, kernels_.packing, team_);
  return {static_cast<double>(now_ns() - start) * 1e-6, packed->bytes, packed->memory.huge_bytes()};
}

void CpuBackend::run(const Graph& graph, Pass& pass) {
  graph_ = &graph;
  pass_ = &pass;
  pass.faults.clear();
  if (pass.plant) pass.plant->done = false;
  const CanonicalFloatMode mode;
  schedule(graph);
  plan_ = plan_pass(graph, facts_, pass);
  if (plan_.rows == 0) return;
  packed_ = store_->of(graph, kernels_.packing, team_);
  reserve(graph, pass);
  cut_phases();
  phase_start_ns_ = observer_ ? now_ns() : 0;
  begin_phase(0);
  team_.run(chunks_, *this);
  report_faults();
  if (!observer_) return;
  for (int i = 0; i < n_ops(); ++i) {
    observer_->on_op(i, op_ms_[static_cast<size_t>(i)], plan_.rows_at(i));
  }
}

void CpuBackend::schedule(const Graph& graph) {
  // A plant goes into the output of one op, before the next one reads it.
  const bool fuse = pass_->plant == nullptr;
  if (scheduled_.lock() == graph.identity && fused_ == fuse) return;
  scheduled_.reset();
  facts_ = facts_of(graph);
  phases_ = make_schedule(graph, fuse);
  rope_tables_.resize(std::max(rope_tables_.size(), facts_.rope_specs.size()));
  for (size_t i = 0; i < facts_.rope_specs.size(); ++i) {
    rope_tables_[i].frequencies = rope_frequencies(*facts_.rope_specs[i]);
  }
  scheduled_ = graph.identity;
  fused_ = fuse;
}

// All memory of the pass, so that no worker ever allocates.
void CpuBackend::reserve(const Graph& graph, const Pass& pass) {
  const auto selected = static_cast<int64_t>(plan_.selected.size());
  slot_memory_.resize(std::max(slot_memory_.size(), graph.slots.size()));
  slots_.assign(graph.slots.size(), nullptr);
  for (size_t i = 0; i < graph.slots.size(); ++i) {
    if (static_cast<Slot>(i) == graph.logits) {
      slots_[i] = pass.logits.data();
      continue;
    }
    const int64_t rows = facts_.slot_is_late[i] ? selected : plan_.rows;
    slot_memory_[i].reserve(std::max<int64_t>(1, rows) * graph.slots[i].width * 4);
    slots_[i] = slot_memory_[i].as<float>();
  }
  q32_.reserve(plan_.rows, facts_.q32.all, 32);
  q32_.reserve(selected, facts_.q32.selected, 32);
  q256_.reserve(plan_.rows, facts_.q256.all, 256);
  q256_.reserve(selected, facts_.q256.selected, 256);

  const int64_t flags = (n_ops() + 1) * plan_.rows;
  flags_.reserve(flags);
  std::memset(flags_.data(), 0, static_cast<size_t>(flags));
  int64_t scratch = 64;
  for (const int i : facts_.kv_ops) {
    const auto* attention = std::get_if<op::Attention>(&op(i).args);
    if (!attention) continue;
    for (const PassPlan::Segment& segment : plan_.segments) {
      const KvLayerView& kv = segment.pass->kv[static_cast<size_t>(op(i).layer)];
      scratch = std::max(
          scratch, attention_scratch_bytes(attention->head_dim, attention->n_head, kv.n_head_kv));
      const AttentionArgs args = attention_args(i, segment);
      if (!args.spans.cut) continue;
      partial_floats_ =
          std::max(partial_floats_,
                   args.items() * attention_partial_floats(attention->head_dim, attention->n_head,
                                                           kv.n_head_kv));
    }
  }
  if (partial_floats_ > 0) {
    const auto segments = static_cast<int64_t>(plan_.segments.size());
    partials_.reserve(4 * partial_floats_ * segments);
    const int64_t counters = 4 * 2 * team_.size() * segments;
    spans_done_.reserve(counters);
    std::memset(spans_done_.data(), 0, static_cast<size_t>(counters));
  }
  scratch_stride_ = scratch;
  scratch_.reserve(scratch * team_.size());

  for (size_t i = 0; i < facts_.rope_specs.size(); ++i) {
    RopeTable& table = rope_tables_[i];
    const auto bytes = plan_.rows * static_cast<int64_t>(table.frequencies.f.size()) * 4;
    table.cos.reserve(bytes);
    table.sin.reserve(bytes);
  }

  if (observer_) {
    busy_ns_ = std::make_unique<std::atomic<int64_t>[]>(graph.ops.size());
    op_ms_.assign(graph.ops.size(), 0.0);
  }
}

int64_t CpuBackend::items(const Phase& phase) const {
  switch (phase.kind) {
    case Phase::Kind::rows:
      return plan_.rows_at(phase.first_op);
    case Phase::Kind::pieces:
      return plan_.rows_at(phase.first_op) * phase.pieces;
    case Phase::Kind::product: {
      if (plan_.rows_at(phase.first_op) == 0) return 0;
      int64_t tiles = 0;
      for (const op::LinearOut& out : std::get<op::Linear>(op(phase.first_op).args).outs) {
        tiles += divide_up(out.weight->n_out, 16);
      }
      return tiles;
    }
    case Phase::Kind::attention: {
      int64_t all = 0;
      for (const PassPlan::Segment& segment : plan_.segments) {
        all += attention_args(phase.first_op, segment).items();
      }
      return all;
    }
  }
  return 0;
}

void CpuBackend::cut_phases() {
  chunks_.clear();
  chunk_size_.clear();
  items_.clear();
  row_chunks_.clear();
  const int64_t most = team_.size() == 1 ? 1 : kChunksPerWorker * team_.size();
  for (const Phase& phase : phases_) {
    const int64_t n = items(phase);
    int64_t size = std::max<int64_t>(1, divide_up(n, most));
    if (phase.kind == Phase::Kind::pieces) size = std::max(size, kFewestPieces);
    if (phase.kind == Phase::Kind::attention) size = 1;
    if (phase.kind == Phase::Kind::product && team_.size() > 1) {
      const Weight& w = *std::get<op::Linear>(op(phase.first_op).args).outs[0].weight;
      const int64_t rows = plan_.rows_at(phase.first_op);
      size = std::max(size, kFewestBytes / std::max<int64_t>(1, 16 * w.row_bytes * rows));
      // but every worker gets something
      size = std::min(size, std::max<int64_t>(1, n / (2 * team_.size())));
    }
    items_.push_back(n);
    chunk_size_.push_back(size);
    auto chunks = static_cast<int32_t>(divide_up(n, size));
    row_chunks_.push_back(chunks);
    const bool chain = phase.kind == Phase::Kind::rows || phase.kind == Phase::Kind::pieces;
    if (chain && chunks > 0) {
      chunks += std::clamp(team_.size() - chunks, 0, static_cast<int>(kMostFetching));
    }
    chunks_.push_back(chunks);
  }
  // What follows each phase: the product that is next.
  ahead_.assign(phases_.size(), -1);
  int next = -1;
  for (auto i = static_cast<int>(phases_.size()); i-- > 0;) {
    ahead_[static_cast<size_t>(i)] = next;
    if (phases_[static_cast<size_t>(i)].kind == Phase::Kind::product) next = i;
  }
}

void CpuBackend::begin_phase(int phase_index) {
  if (phase_index >= static_cast<int>(phases_.size())) return;
  rows_left_.store(row_chunks_[static_cast<size_t>(phase_index)], std::memory_order_relaxed);
  for (Cursor& cursor : cursors_) cursor.next.store(0, std::memory_order_relaxed);
}

// Every worker has its own contiguous part of a product, so that what it asked for ahead is its
// own, and takes from the others' when it is through. There are as many calls as chunks.
int CpuBackend::take_chunk(int phase_index, int worker) {
  const int32_t chunks = chunks_[static_cast<size_t>(phase_index)];
  for (int i = 0; i < team_.size(); ++i) {
    const int owner = (worker + i) % team_.size();
    const Range own = part_of(chunks, owner, team_.size());
    const int64_t chunk = own.begin + cursors_[static_cast<size_t>(owner)].next.fetch_add(
                                          1, std::memory_order_relaxed);
    if (chunk < own.end) return static_cast<int>(chunk);
  }
  return -1;  // not reached: each call takes one chunk, and each chunk goes to one call
}

void CpuBackend::fetch_ahead(int phase_index, int worker) const {
  const int next = ahead_[static_cast<size_t>(phase_index)];
  if (next < 0) return;
  const auto index = static_cast<size_t>(next);
  const Range own = part_of(chunks_[index], worker, team_.size());
  int64_t tile = own.begin * chunk_size_[index];
  const int64_t end = std::min(items_[index], own.end * chunk_size_[index]);
  const auto& outs = std::get<op::Linear>(op(phases_[index].first_op).args).outs;
  const auto& packed = packed_->outs[static_cast<size_t>(phases_[index].first_op)];
  int64_t left = kMostAhead, first_tile = 0;
  for (size_t i = 0; i < outs.size() && tile < end && left > 0; ++i) {
    const int64_t tiles = divide_up(outs[i].weight->n_out, 16);
    const int64_t last = std::min(end, first_tile + tiles);
    if (tile < last && packed[i]) {
      const int64_t tile_bytes = kernels_.packing->bytes(*outs[i].weight) / tiles;
      const std::byte* from = packed[i] + (tile - first_tile) * tile_bytes;
      const int64_t bytes = std::min(left, (last - tile) * tile_bytes);
      for (int64_t at = 0; at < bytes; at += kAheadStep) {
        if (rows_left_.load(std::memory_order_acquire) == 0) return;
        for (int64_t line = at; line < std::min(bytes, at + kAheadStep); line += 64) {
          __builtin_prefetch(from + line, 0, 2);
        }
      }
      left -= bytes;
    }
    tile = std::max(tile, last);
    first_tile += tiles;
  }
}

void CpuBackend::run(int phase_index, int chunk, int worker) {
  const CanonicalFloatMode mode;
  const auto index = static_cast<size_t>(phase_index);
  const Phase& phase = phases_[index];
  if (phase.kind == Phase::Kind::product) {
    chunk = take_chunk(phase_index, worker);
  } else if (chunk >= row_chunks_[index]) {
    return fetch_ahead(phase_index, worker);
  }
  const int64_t begin = chunk * chunk_size_[index];
  const Range range{begin, std::min(items_[index], begin + chunk_size_[index])};
  const int64_t start = observer_ ? now_ns() : 0;
  switch (phase.kind) {
    case Phase::Kind::rows:
    case Phase::Kind::pieces:
      run_chain(phase, {range, phase.kind == Phase::Kind::pieces});
      rows_left_.fetch_sub(1, std::memory_order_release);
      return;
    case Phase::Kind::product:
      run_product(phase.first_op, range);
      break;
    case Phase::Kind::attention:
      run_attention(phase.first_op, range, worker);
      break;
  }
  if (observer_) observe(phase.first_op, now_ns() - start);
}

void CpuBackend::run_chain(const Phase& phase, Part part) {
  int64_t last = observer_ ? now_ns() : 0;
  const auto done = [&](int op_index) {
    if (!observer_) return;
    const int64_t now = now_ns();
    observe(std::min(op_index, n_ops() - 1), now - last);
    last = now;
  };
  if (phase.rope_tables) {
    rope_rows(part.range);
    done(phase.first_op);
  }
  for (int i = phase.first_op; i < phase.end_op; ++i) {
    std::visit([&](const auto& args) { execute(args, i, part); }, op(i).args);
    done(i);
  }
  if (phase.quantise_for >= 0) {
    quantise(phase.quantise_for, part);
    done(phase.quantise_for);
  }
  if (phase.check_logits) {
    check_logits(part);
    done(n_ops());
  }
}

void CpuBackend::observe(int op_index, int64_t nanoseconds) {
  busy_ns_[static_cast<size_t>(op_index)].fetch_add(nanoseconds, std::memory_order_relaxed);
}

void CpuBackend::after(int phase_index) {
  const Phase& phase = phases_[static_cast<size_t>(phase_index)];
  const Plant* plant = pass_->plant;
  if (plant && plant->op >= phase.first_op && plant->op < phase.end_op) apply_plant();
  begin_phase(phase_index + 1);
  if (!observer_) return;
  // The time of the phase goes to its ops as the workers' time did.
  const int64_t now = now_ns();
  int64_t busy = 0;
  for (int i = 0; i < n_ops(); ++i) busy += busy_ns_[static_cast<size_t>(i)];
  for (int i = 0; i < n_ops() && busy > 0; ++i) {
    auto& own = busy_ns_[static_cast<size_t>(i)];
    op_ms_[static_cast<size_t>(i)] += static_cast<double>(own) / static_cast<double>(busy) *
                                      static_cast<double>(now - phase_start_ns_) * 1e-6;
    own = 0;
  }
  phase_start_ns_ = now;
}

void CpuBackend::report_faults() {
  pass_->faults = faults_of(plan_, flags_.as<uint8_t>(), n_ops());
}

void CpuBackend::apply_plant() {
  const std::optional<PlantPlace> place = place_of(*graph_, plan_, *pass_->plant);
  if (!place) return;
  std::byte* at = place->page ? place->page : reinterpret_cast<std::byte*>(slot(place->slot));
  at[place->byte] ^= std::byte{1} << place->bit;
  pass_->plant->done = true;
}

std::unique_ptr<Backend> make_cpu_backend(const std::string& isa, int threads) {
  return std::make_unique<CpuBackend>(isa, threads, std::make_shared<PackedStore>());
}

}  // namespace lockstep::kernels
