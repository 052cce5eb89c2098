// The packed matrices of the graphs that a backend runs (cpu/tiles): made once for a graph, shared
// by backends whose kernels read the same form, dropped when the graph is gone.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/huge_memory.h"
#include "base/thread_team.h"
#include "kernels/cpu/kernels.h"
#include "kernels/graph.h"

namespace lockstep::kernels {

struct PackedGraph {
  std::weak_ptr<const void> graph;  // Graph::identity
  HugeMemory memory;
  int64_t bytes = 0;  // of all matrices
  // [op][output of the op's Linear]; null: the kernels read the weight as the file has it
  std::vector<std::vector<const std::byte*>> outs;
};

class PackedStore {
 public:
  // Packs on the first call for a graph and packing (null: nothing is packed). Throws
  // Error(resource).
  std::shared_ptr<const PackedGraph> of(const Graph& graph, const Packing* packing,
                                        ThreadTeam& team);

 private:
  struct Entry {
    const Packing* packing;
    std::shared_ptr<const PackedGraph> packed;
  };
  std::mutex mutex_;
  std::vector<Entry> entries_;
};

}  // namespace lockstep::kernels
