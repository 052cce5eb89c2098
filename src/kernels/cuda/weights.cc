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
// What a worker packs at a time, and how many do.
constexpr int64_t kPieceBytes = 8 << 20;
constexpr int kMostWorkers = 8;

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
    bytes +=
        aligned(is_float(weight) ? weight.n_out * weight.row_bytes
                                 : packed_layout(weight.type, weight.n_in, weight.n_out).bytes);
  }
  void add(const float* data, int64_t n) {
    for (const Vector& known : vectors) {
      if (known.data == data && known.n >= n) return;
    }
    vectors.push_back({data, n, bytes});
    bytes += aligned(4 * n);
  }
};

// Packs the matrix piece by piece and copies each array's part to its place.
DeviceMatrix copy_matrix(Device& device, ThreadTeam& team, const Weight& weight, std::byte* to) {
  const PackedLayout whole = packed_layout(weight.type, weight.n_in, weight.n_out);
  const int64_t row_bytes = std::max<int64_t>(1, whole.bytes / std::max<int64_t>(1, weight.n_out));
  const int64_t piece = std::clamp<int64_t>(kPieceBytes / row_bytes, 1, weight.n_out);
  const int64_t piece_bytes = packed_layout(weight.type, weight.n_in, piece).bytes;
  std::vector<std::byte> staging(static_cast<size_t>(piece_bytes * team.size()));
  const int64_t blocks = weight.n_in / (whole.superblocks ? 256 : 32);
  for (int64_t first = 0; first < weight.n_out; first += piece * team.size()) {
    const auto rows_of = [&](int worker) {
      return std::clamp<int64_t>(weight.n_out - first - worker * piece, 0, piece);
    };
    team.run(team.size(), [&](int worker) {
      if (rows_of(worker) == 0) return;
      pack_rows(weight, first + worker * piece, rows_of(worker),
                staging.data() + worker * piece_bytes);
    });
    for (int worker = 0; worker < team.size() && rows_of(worker) > 0; ++worker) {
      const int64_t begin = first + worker * piece, rows = rows_of(worker);
      const PackedLayout part = packed_layout(weight.type, weight.n_in, rows);
      const std::byte* from = staging.data() + worker * piece_bytes;
      const auto send = [&](int64_t whole_at, int64_t part_at, int64_t bytes_a_row) {
        if (whole_at < 0) return;
        device.upload(to + whole_at + begin * bytes_a_row, from + part_at, rows * bytes_a_row);
      };
      send(whole.codes, part.codes, weight.n_in);
      send(whole.d, part.d, 4 * blocks);
      send(whole.m, part.m, 4 * blocks);
      send(whole.scales, part.scales, weight.n_in / 16);
      send(whole.mins, part.mins, weight.n_in / 16);
    }
  }
  const auto at = [&](int64_t offset) { return offset < 0 ? nullptr : to + offset; };
  return {reinterpret_cast<const int8_t*>(at(whole.codes)),
          reinterpret_cast<const float*>(at(whole.d)), reinterpret_cast<const float*>(at(whole.m)),
          reinterpret_cast<const int8_t*>(at(whole.scales)),
          reinterpret_cast<const uint8_t*>(at(whole.mins))};
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
  for (const Plan::Matrix& matrix : plan.matrices) {
    const Weight& w = *matrix.weight;
    std::byte* to = memory + matrix.offset;
    if (is_float(w)) {
      device_->upload(to, w.data, w.n_out * w.row_bytes);
      made->floats.emplace(&w, to);
    } else {
      made->matrices.emplace(&w, copy_matrix(*device_, team, w, to));
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
