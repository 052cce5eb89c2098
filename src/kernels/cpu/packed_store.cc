#include "kernels/cpu/packed_store.h"

#include <algorithm>
#include <unordered_map>

#include "base/mapped_file.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kTilesAtOnce = 16;

int64_t tiles_of(const Weight& weight) {
  return (weight.n_out + 15) / 16;
}

std::shared_ptr<const PackedGraph> make(const Graph& graph, const Packing* packing,
                                        ThreadTeam& team) {
  struct Matrix {
    const Weight* weight;
    int64_t offset;
  };
  std::vector<Matrix> matrices;
  std::unordered_map<const Weight*, int64_t> offset_of;
  int64_t bytes = 0;
  for (const Op& op : graph.ops) {
    const auto* linear = std::get_if<op::Linear>(&op.args);
    if (!linear) continue;
    for (const op::LinearOut& out : linear->outs) {
      const int64_t own = packing ? packing->bytes(*out.weight) : 0;
      if (own == 0 || !offset_of.emplace(out.weight, bytes).second) continue;
      matrices.push_back({out.weight, bytes});
      bytes += (own + kAlignment - 1) / kAlignment * kAlignment;
    }
  }

  auto packed = std::make_shared<PackedGraph>();
  packed->graph = graph.identity;
  packed->bytes = bytes;
  packed->memory = HugeMemory(bytes, "the weights, packed for this CPU");
  for (const Matrix& matrix : matrices) {
    const int64_t tiles = tiles_of(*matrix.weight);
    team.run(static_cast<int32_t>((tiles + kTilesAtOnce - 1) / kTilesAtOnce), [&](int chunk) {
      const int64_t begin = chunk * kTilesAtOnce;
      packing->pack(*matrix.weight, {begin, std::min(tiles, begin + kTilesAtOnce)},
                    packed->memory.data() + matrix.offset);
    });
    // Both forms at once would be twice the model.
    const Weight& w = *matrix.weight;
    if (w.mapped) release_mapped({w.data, static_cast<size_t>(w.n_out * w.row_bytes)});
  }
  for (const Op& op : graph.ops) {
    auto& outs = packed->outs.emplace_back();
    const auto* linear = std::get_if<op::Linear>(&op.args);
    if (!linear) continue;
    for (const op::LinearOut& out : linear->outs) {
      const auto found = offset_of.find(out.weight);
      outs.push_back(found == offset_of.end() ? nullptr : packed->memory.data() + found->second);
    }
  }
  return packed;
}

}  // namespace

std::shared_ptr<const PackedGraph> PackedStore::of(const Graph& graph, const Packing* packing,
                                                   ThreadTeam& team) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const Entry& entry) { return entry.packed->graph.expired(); });
  for (const Entry& entry : entries_) {
    if (entry.packing == packing && entry.packed->graph.lock() == graph.identity) {
      return entry.packed;
    }
  }
  entries_.push_back({packing, make(graph, packing, team)});
  return entries_.back().packed;
}

}  // namespace lockstep::kernels
