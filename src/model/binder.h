// Finds and checks tensors, and owns what ops point to (weights, norm vectors, rotary specs): the
// addresses stay fixed as long as the Binder lives.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "gguf/file.h"
#include "kernels/graph.h"

namespace lockstep::model {

class Binder {
 public:
  explicit Binder(gguf::File file);
  Binder(const Binder&) = delete;
  Binder& operator=(const Binder&) = delete;

  // A matrix of n_out rows of n_in elements. Throws Error(bad_file) when it is missing, of a type
  // this program doesn't compute with, or of another shape.
  const kernels::Weight* matrix(const std::string& name, int64_t n_in, int64_t n_out);
  // The same; null when missing.
  const kernels::Weight* matrix_if(const std::string& name, int64_t n_in, int64_t n_out);
  // Rows [first, first + n_out) of a bound matrix (a fused tensor holds several).
  const kernels::Weight* rows_of(const kernels::Weight& whole, int64_t first, int64_t n_out);
  // n finite elements (norm weights, biases), kept as binary32; F32, F16 or BF16 in the file.
  const float* vector(const std::string& name, int64_t n);
  const float* vector_if(const std::string& name, int64_t n);
  // Keeps the spec, with the factors of tensor factors_name where the file has it ("": no such
  // tensor). Throws where no angles come of it.
  const kernels::RopeSpec* rope(kernels::RopeSpec spec, const std::string& factors_name);

  // Refuses the file when it has tensors that were not asked for: ignoring one that changes the
  // result would be worse. Tables that old converters wrote, and that no forward pass reads, are
  // ignored (docs/models.md).
  void refuse_unused() const;
  // Refuses the file when a scale or float element of a matrix is not finite. Reads every block, on
  // several threads.
  void refuse_non_finite() const;

  const std::deque<kernels::Weight>& weights() const { return weights_; }
  const gguf::File& file() const { return file_; }

 private:
  const gguf::Tensor* find(const std::string& name);
  [[noreturn]] void missing(const std::string& name) const;

  gguf::File file_;
  std::unordered_set<std::string> used_;
  std::deque<kernels::Weight> weights_;
  std::deque<const gguf::Tensor*> matrices_;
  std::deque<std::vector<float>> vectors_;
  std::deque<kernels::RopeSpec> ropes_;
};

}  // namespace lockstep::model
