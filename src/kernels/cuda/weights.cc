#include "kernels/cuda/weights.h"

#include <algorithm>
#include <thread>

#include "base/mapped_file.h"
#include "base/thread_team.h"
#include "kernels/cuda/packing.h"
#include "kernels/ops/quantize_activations.h"

namespace lockstep::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;
// What is packed and on its way, and how many pack.
constexpr int64_t kStagingBytes = 64 << 20;
constexpr int kMostWorkers = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool is_float(const Weight& weight) {
  return activation_form(weight.type) == ActivationForm::f32;
}

// What a graph needs, each once, with its place.
struct Plan {
  struct Matrix {
    const Weight* weight;
    int64_t offset;
  };
  struct Vector {
    const float* data;
    int64_t n, offset;
  };
  std::vector<Matrix> matrices;
  std::vector<Vector> vectors;
  int64_t bytes = 0;

  explicit Plan(const Graph& graph) {
    for (const Op& op : graph.ops) {
      if (const auto* norm = std::get_if<op::RmsNorm>(&op.args)) add(norm->weight, norm->group);
      const auto* linear = std::get_if<op::Linear>(&op.args);
      if (!linear) continue;
      for (const op::LinearOut& out : linear->outs) {
        add(*out.weight);
        if (out.bias) add(out.bias, out.weight->n_out);
      }
    }
  }

 private:
  void add(const Weight& weight) {
    for (const Matrix& known : matrices) {
      if (known.weight == &weight) return;
    }
    matrices.push_back({&weight, bytes});
    bytes += aligned(is_float(weight) ? weight.n_out * weight.row_bytes
                                      : tiles_of(weight.n_out) *
                                            tile_bytes(format_of(weight.type), weight.n_in));
  }
  void add(const float* data, int64_t n) {
    for (const Vector& known : vectors) {
      if (known.data == data && known.n >= n) return;
    }
    vectors.push_back({data, n, bytes});
    bytes += aligned(4 * n);
  }
};

// Packs the matrix piece by piece and copies each to its place while the next are packed: two
// halves of the staging memory, one filled while the other is on its way.
DeviceMatrix copy_matrix(Device& device, ThreadTeam& team, std::byte* staging,
                         int64_t staging_bytes, const Weight& weight, std::byte* to) {
  const Format format = format_of(weight.type);
  const int64_t bytes = tile_bytes(format, weight.n_in), tiles = tiles_of(weight.n_out);
  const int64_t half = staging_bytes / 2;
  const int64_t piece = std::clamp<int64_t>(half / bytes, 1, tiles);
  int turn = 0;
  for (int64_t first = 0; first < tiles; first += piece, turn ^= 1) {
    std::byte* packed = staging + turn * half;
    const int64_t here = std::min(piece, tiles - first);
    const int64_t own = (here + team.size() - 1) / team.size();
    team.run(team.size(), [&](int worker) {
      const int64_t begin = std::min(worker * own, here), end = std::min(begin + own, here);
      if (begin < end) pack_tiles(weight, first + begin, end - begin, packed + begin * bytes);
    });
    device.wait();  // for the copy of the other half
    device.start_upload(to + first * bytes, packed, here * bytes);
  }
  device.wait();
  return {to, format, code_table(weight.type), has_wide_d(weight.type)};
}

}  // namespace

std::shared_ptr<const DeviceWeights> DeviceWeightStore::make(const Graph& graph) const {
  const Plan plan(graph);
  auto made = std::make_shared<DeviceWeights>();
  made->graph = graph.identity;
  made->bytes = plan.bytes;
  made->memory.reserve(device_, std::max<int64_t>(plan.bytes, kAlignment), "the model's weights");
  auto* memory = made->memory.as<std::byte>();
  ThreadTeam team(
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMostWorkers));
  // Room for two tiles of the widest matrix at least.
  int64_t staging_bytes = std::clamp<int64_t>(plan.bytes, 1, kStagingBytes);
  for (const Plan::Matrix& matrix : plan.matrices) {
    const Weight& w = *matrix.weight;
    if (is_float(w)) continue;
    staging_bytes = std::max(staging_bytes, 2 * tile_bytes(format_of(w.type), w.n_in));
  }
  HostBuffer staging_memory;
  std::byte* staging = staging_memory.reserve(device_, staging_bytes);
  for (const Plan::Matrix& matrix : plan.matrices) {
    const Weight& w = *matrix.weight;
    std::byte* to = memory + matrix.offset;
    if (is_float(w)) {
      device_->upload(to, w.data, w.n_out * w.row_bytes);
      made->floats.emplace(&w, to);
    } else {
      made->matrices.emplace(&w, copy_matrix(*device_, team, staging, staging_bytes, w, to));
    }
    if (w.mapped) release_mapped({w.data, static_cast<size_t>(w.n_out * w.row_bytes)});
  }
  for (const Plan::Vector& vector : plan.vectors) {
    auto* to = reinterpret_cast<float*>(memory + vector.offset);
    device_->upload(to, vector.data, 4 * vector.n);
    made->vectors[vector.data] = to;
  }
  device_->wait();
  return made;
}

std::shared_ptr<const DeviceWeights> DeviceWeightStore::of(const Graph& graph) {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [](const auto& entry) { return entry->graph.expired(); });
  for (const auto& entry : entries_) {
    if (entry->graph.lock() == graph.identity) return entry;
  }
  entries_.push_back(make(graph));
  return entries_.back();
}

}  // namespace lockstep::kernels::cuda
