#include "kernels/cpu/packed_store.h"

#include <algorithm>
#include <unordered_map>

#include "base/mapped_file.h"

namespace lockstep::kernels {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kTilesAtOnce = 16;
constexpr int64_t kBytesHeldTwice = 4 << 20;

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
    const Weight& w = *matrix.weight;
    // Both forms of a large matrix at once would be twice its bytes: the file's pages are let go as
    // soon as they are packed.
    const int64_t wave =
        std::max<int64_t>(kTilesAtOnce * team.size(), kBytesHeldTwice / (16 * w.row_bytes));
    const int64_t tiles = tiles_of(w);
    for (int64_t from = 0; from < tiles; from += wave) {
      const int64_t to = std::min(tiles, from + wave);
      team.run(static_cast<int32_t>((to - from + kTilesAtOnce - 1) / kTilesAtOnce), [&](int chunk) {
        const int64_t begin = from + chunk * kTilesAtOnce;
        packing->pack(w, {begin, std::min(to, begin + kTilesAtOnce)},
                      packed->memory.data() + matrix.offset);
      });
      if (!w.mapped) continue;
      const int64_t first = from * 16, last = std::min(to * 16, w.n_out);
      release_mapped(
          {w.data + first * w.row_bytes, static_cast<size_t>((last - first) * w.row_bytes)});
    }
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
