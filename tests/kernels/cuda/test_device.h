// The device that the conformance tests run on: a real one, or the emulation (emulated_device.cc).
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "kernels/cuda/device.h"

namespace lockstep::kernels::cuda::test {

// Null, after a line that says why, where there is none.
std::shared_ptr<Device> test_device();
// Fewer and smaller ones: on the emulation, and under a tool that makes the device slow
// (LOCKSTEP_FEW_TRIALS).
bool few_trials();
// Blocks get no more shared memory than this, in bytes; 0: the device's. A real device stays as it
// is.
void limit_shared(int bytes);

// A vector on the device, with words after its end that nobody may write.
template <typename T>
class OnDevice {
 public:
  // Contents.
  OnDevice(const std::shared_ptr<Device>& device, const std::vector<T>& values)
      : OnDevice(device, static_cast<int64_t>(values.size())) {
    if (n_ > 0) device_->upload(get(), values.data(), n_ * static_cast<int64_t>(sizeof(T)));
  }
  // n elements that no kernel has written yet: all bits set.
  OnDevice(const std::shared_ptr<Device>& device, int64_t n)
      : device_(device), n_(n), memory_(device, bytes() + kGuard, "a test's vector") {
    device_->fill(memory_.as<std::byte>(), 0xFF, bytes() + kGuard, bytes() + kGuard, 1);
  }
  T* get() const { return memory_.template as<T>(); }
  std::vector<T> values() const {
    std::vector<T> out(static_cast<size_t>(n_));
    if (n_ > 0) device_->download(out.data(), get(), n_ * static_cast<int64_t>(sizeof(T)));
    return out;
  }
  bool guard_holds() const {
    unsigned char guard[kGuard];
    device_->download(guard, memory_.template as<std::byte>() + bytes(), kGuard);
    for (const unsigned char byte : guard) {
      if (byte != 0xFF) return false;
    }
    return true;
  }

 private:
  static constexpr int64_t kGuard = 256;
  int64_t bytes() const { return n_ * static_cast<int64_t>(sizeof(T)); }

  std::shared_ptr<Device> device_;
  int64_t n_;
  DeviceBuffer memory_;
};

}  // namespace lockstep::kernels::cuda::test
