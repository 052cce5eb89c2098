// Writes a Graph op by op.
#pragma once

#include <string>
#include <utility>

#include "kernels/graph.h"

namespace lockstep::model {

class GraphBuilder {
 public:
  explicit GraphBuilder(kernels::Graph& graph) : graph_(graph) {}

  kernels::Slot slot(std::string name, int64_t width) {
    graph_.slots.push_back({std::move(name), width});
    return static_cast<kernels::Slot>(graph_.slots.size()) - 1;
  }
  // The layer of the ops that follow; -1: none.
  void layer(int64_t index) { layer_ = static_cast<int>(index); }
  void add(const char* name, kernels::OpArgs args) {
    graph_.ops.push_back({std::move(args), layer_, name});
  }

 private:
  kernels::Graph& graph_;
  int layer_ = -1;
};

}  // namespace lockstep::model
