// What the comparisons with the scalar reference share: the device, and how much of everything.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "../harness.h"
#include "kernels/cuda/device.h"
#include "test_device.h"

namespace lockstep::kernels::cuda::test {
using namespace kernels::test;  // NOLINT: the helpers of tests/kernels

inline const CpuKernels& reference() {
  return *all_cpu_kernels()[0];
}

inline std::vector<int64_t> widths() {
  if (few_trials()) return {1, 2, 8, 9};
  return {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 33, 64, 256};
}
inline int64_t trials(int64_t on_a_device, int64_t emulated) {
  return few_trials() ? emulated : on_a_device;
}

class Cuda : public testing::Test {
 protected:
  void SetUp() override {
    device_ = test_device();
    if (!device_) GTEST_SKIP() << "no CUDA device";
  }
  const DeviceKernels& kernels() const { return device_->kernels(); }
  template <typename T>
  OnDevice<T> put(const std::vector<T>& values) const {
    return {device_, values};
  }
  template <typename T>
  OnDevice<T> empty(int64_t n) const {
    return {device_, n};
  }
  OnDevice<uint8_t> no_faults(int64_t rows) const {
    return put(std::vector<uint8_t>(static_cast<size_t>(rows)));
  }

  std::shared_ptr<Device> device_;
};

}  // namespace lockstep::kernels::cuda::test
