// Activations and matrices as a table's product wants them, for tests that call kernels directly.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "kernels/cpu/kernels.h"

namespace lockstep::kernels::test {

// Rows quantised in one form, with room for what every table writes.
struct Quantized {
  Quantized(const CpuKernels& kernels, ActivationForm form, int64_t n_rows, int64_t n)
      : together(kernels.rows_together(form, n_rows)),
        block(form == ActivationForm::q32 ? 32 : 256),
        rows(n_rows),
        width(n),
        q(static_cast<size_t>(n_rows * n)),
        d(static_cast<size_t>(n_rows * (n / block))),
        sums(static_cast<size_t>(n_rows * (n / 32) * 2)),
        starts(static_cast<size_t>(n_rows * (n / 32))),
        d_sums(d.size()),
        fault(static_cast<size_t>(n_rows)) {}

  QuantizedActivations view() {
    return {q.data(), d.data(), sums.data(), starts.data(), d_sums.data(), together};
  }
  float d_of(int64_t row, int64_t b) const { return d[static_cast<size_t>(b * rows + row)]; }
  int8_t q_of(int64_t row, int64_t k) const {
    const QuantizedActivations layout{.together = together};
    return q[static_cast<size_t>(layout.q_index(rows, width, row, k / 4 * 4) + k % 4)];
  }
  // Σ q of 32 elements
  int32_t sum_of(int64_t row, int64_t b32) const {
    const auto at = static_cast<size_t>(2 * (b32 * rows + row));
    if (block == 32) return -starts[at / 2] / 128;
    return -(sums[at] + sums[at + 1]);
  }

  int64_t together, block, rows, width;
  std::vector<int8_t> q;
  std::vector<float> d;
  std::vector<int16_t> sums;
  std::vector<int32_t> starts;
  std::vector<float> d_sums;
  std::vector<uint8_t> fault;
};

// A matrix packed for one table; data() is null where the table reads it as it is.
class PackedWeight {
 public:
  PackedWeight(const CpuKernels& kernels, const Weight& weight) {
    const int64_t bytes = kernels.packing ? kernels.packing->bytes(weight) : 0;
    if (bytes == 0) return;
    memory_.reset(static_cast<std::byte*>(
        std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64))));
    kernels.packing->pack(weight, {0, (weight.n_out + 15) / 16}, memory_.get());
  }
  const std::byte* data() const { return memory_.get(); }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

}  // namespace lockstep::kernels::test
