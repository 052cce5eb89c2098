#include "model/binder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/thread_team.h"
#include "kernels/rope_table.h"
#include "quant/dequantize.h"

namespace lockstep::model {
namespace {

std::string shape_text(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::string supported_types() {
  std::vector<std::string_view> names;
  for (uint32_t raw = 0; raw < 64; ++raw) {
    const gguf::TypeInfo* info = gguf::type_info(raw);
    if (info != nullptr && quant::is_supported(info->type)) names.push_back(info->name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_shape(const gguf::File& file, const gguf::Tensor& tensor, std::vector<int64_t> wanted) {
  const bool same =
      std::equal(wanted.begin(), wanted.end(), tensor.ne) &&
      std::all_of(tensor.ne + wanted.size(), tensor.ne + 4, [](int64_t n) { return n == 1; });
  if (same) return;
  file.fail(fmt::format("tensor \"{}\" has shape {}; accepted: {}, by the metadata", tensor.name,
                        shape_text(std::span(tensor.ne, static_cast<size_t>(tensor.n_dims))),
                        shape_text(wanted)));
}

// What old converters wrote beside the weights; no forward pass reads it.
bool is_ignored(std::string_view name) {
  return name.ends_with(".attn_rot_embd.weight");
}

}  // namespace

Binder::Binder(gguf::File file) : file_(std::move(file)) {}

const gguf::Tensor* Binder::find(const std::string& name) {
  const gguf::Tensor* tensor = file_.find_tensor(name);
  if (tensor != nullptr) used_.insert(name);
  return tensor;
}

void Binder::missing(const std::string& name) const {
  file_.fail(fmt::format("tensor \"{}\" is missing; convert the model again", name));
}

const kernels::Weight* Binder::matrix(const std::string& name, int64_t n_in, int64_t n_out) {
  const kernels::Weight* weight = matrix_if(name, n_in, n_out);
  if (weight == nullptr) missing(name);
  return weight;
}

const kernels::Weight* Binder::matrix_if(const std::string& name, int64_t n_in, int64_t n_out) {
  const gguf::Tensor* tensor = find(name);
  if (tensor == nullptr) return nullptr;
  check_shape(file_, *tensor, {n_in, n_out});
  const gguf::TypeInfo& info = gguf::type_info(tensor->type);
  if (!quant::is_supported(tensor->type)) {
    file_.fail(
        fmt::format("tensor \"{}\" is of type {}; accepted: {}; quantise the model to one of these",
                    name, info.name, supported_types()));
  }
  kernels::Weight weight;
  weight.name = tensor->name.c_str();
  weight.type = tensor->type;
  weight.n_in = n_in;
  weight.n_out = n_out;
  weight.data = tensor->data.data();
  weight.row_bytes = n_in / info.block_elements * info.block_bytes;
  weight.mapped = file_.mapped();
  matrices_.push_back(tensor);
  return &weights_.emplace_back(weight);
}

const kernels::Weight* Binder::rows_of(const kernels::Weight& whole, int64_t first, int64_t n_out) {
  kernels::Weight part = whole;
  part.data = whole.data + first * whole.row_bytes;
  part.n_out = n_out;
  return &weights_.emplace_back(part);
}

const float* Binder::vector(const std::string& name, int64_t n) {
  const float* values = vector_if(name, n);
  if (values == nullptr) missing(name);
  return values;
}

const float* Binder::vector_if(const std::string& name, int64_t n) {
  const gguf::Tensor* tensor = find(name);
  if (tensor == nullptr) return nullptr;
  check_shape(file_, *tensor, {n});
  using gguf::TensorType;
  if (tensor->type != TensorType::f32 && tensor->type != TensorType::f16 &&
      tensor->type != TensorType::bf16) {
    file_.fail(fmt::format("tensor \"{}\" is of type {}; accepted here: f32, f16, bf16", name,
                           gguf::type_info(tensor->type).name));
  }
  std::vector<float>& values = vectors_.emplace_back(static_cast<size_t>(n));
  quant::dequantize_row(tensor->type, tensor->data.data(), values.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    const float value = values[static_cast<size_t>(i)];
    if (!std::isfinite(value)) {
      file_.fail(fmt::format("tensor \"{}\" has {} at element {}; accepted: finite numbers", name,
                             value, i));
    }
  }
  return values.data();
}

const kernels::RopeSpec* Binder::rope(kernels::RopeSpec spec, const std::string& factors_name) {
  if (!factors_name.empty()) {
    const int64_t pairs = spec.n_rot / 2;
    if (const float* factors = vector_if(factors_name, pairs))
      spec.factors.assign(factors, factors + pairs);
  }
  try {
    kernels::rope_frequencies(spec);
  } catch (const Error& error) {
    file_.fail(error.what());
  }
  return &ropes_.emplace_back(std::move(spec));
}

void Binder::refuse_unused() const {
  for (const gguf::Tensor& tensor : file_.tensors()) {
    if (used_.contains(tensor.name) || is_ignored(tensor.name)) continue;
    file_.fail(
        fmt::format("tensor \"{}\" has no place in the forward pass of this architecture as this "
                    "program knows it; leaving it out would change the result",
                    tensor.name));
  }
}

void Binder::refuse_non_finite() const {
  struct Part {
    const gguf::Tensor* tensor;
    int64_t first_row, end_row;
  };
  constexpr int64_t kPartBytes = 4 << 20;
  std::vector<Part> parts;
  for (const gguf::Tensor* tensor : matrices_) {
    const int64_t row_bytes = static_cast<int64_t>(tensor->data.size()) / tensor->rows();
    const int64_t step = std::max<int64_t>(1, kPartBytes / row_bytes);
    for (int64_t row = 0; row < tensor->rows(); row += step) {
      parts.push_back({tensor, row, std::min(tensor->rows(), row + step)});
    }
  }
  std::vector<int64_t> bad_row(parts.size(), -1);
  const auto most = static_cast<int>(std::min<size_t>(8, parts.size()));
  ThreadTeam team(
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, std::max(1, most)));
  team.run(static_cast<int32_t>(parts.size()), [&](int chunk) {
    const auto i = static_cast<size_t>(chunk);
    const Part& part = parts[i];
    const int64_t row_bytes = static_cast<int64_t>(part.tensor->data.size()) / part.tensor->rows();
    for (int64_t row = part.first_row; row < part.end_row && bad_row[i] < 0; ++row) {
      if (!quant::row_is_finite(part.tensor->type, part.tensor->data.data() + row * row_bytes,
                                part.tensor->ne[0])) {
        bad_row[i] = row;
      }
    }
    // Memory should hold the weights once, and that is where the kernels want them.
    if (file_.mapped()) {
      release_mapped(part.tensor->data.subspan(
          static_cast<size_t>(part.first_row * row_bytes),
          static_cast<size_t>((part.end_row - part.first_row) * row_bytes)));
    }
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    if (bad_row[i] < 0) continue;
    file_.fail(fmt::format(
        "tensor \"{}\" has a scale or element that is not finite in row {}; the file is "
        "damaged or was converted badly",
        parts[i].tensor->name, bad_row[i]));
  }
}

}  // namespace lockstep::model
