// The weights of the graphs that a device runs, in its memory: made once for a graph, shared by
// backends on the device, dropped when the graph is gone.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/cuda/packing.h"
#include "kernels/graph.h"

namespace lockstep::kernels::cuda {

// A quantised matrix in the device's memory.
struct DeviceMatrix {
  const std::byte* packed = nullptr;  // packing.h
  Format format = Format::q8_0;
  CodeTable table;
  bool wide_d = false;
};

struct DeviceWeights {
  std::weak_ptr<const void> graph;  // Graph::identity
  DeviceBuffer memory;
  int64_t bytes = 0;
  std::unordered_map<const Weight*, DeviceMatrix> matrices;  // of quantised types
  std::unordered_map<const Weight*, const void*> floats;     // of float types, as in the file
  std::unordered_map<const float*, const float*> vectors;    // norms and biases
};

class DeviceWeightStore {
 public:
  explicit DeviceWeightStore(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  // Copies on the first call for a graph, some rows at a time: the CPU never holds the packed
  // matrix. Throws Error(resource) before anything is copied when the device hasn't the memory.
  std::shared_ptr<const DeviceWeights> of(const Graph& graph);

 private:
  std::shared_ptr<const DeviceWeights> make(const Graph& graph) const;

  const std::shared_ptr<Device> device_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const DeviceWeights>> entries_;
};

}  // namespace lockstep::kernels::cuda
