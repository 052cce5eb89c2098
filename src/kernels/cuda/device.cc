#include "kernels/cuda/device.h"

#include <fmt/format.h>

#include "base/error.h"

namespace lockstep::kernels::cuda {

bool DeviceBuffer::reserve(std::shared_ptr<Device> device, int64_t bytes, const char* what) {
  if (bytes <= bytes_) return false;
  if (memory_) device_->release(memory_);
  memory_ = nullptr;
  bytes_ = 0;
  device_ = std::move(device);
  memory_ = device_->allocate(bytes);
  if (!memory_) {
    const DeviceMemory left = device_->memory();
    throw Error(
        ExitCode::resource,
        fmt::format("{}: {} need {:.2f} GB of device memory and {:.2f} of {:.2f} GB are "
                    "free; use a smaller model, fewer rows a pass (-ub) or --device cpu",
                    device_->name(), what, static_cast<double>(bytes) * 1e-9,
                    static_cast<double>(left.free) * 1e-9, static_cast<double>(left.total) * 1e-9));
  }
  bytes_ = bytes;
  return true;
}

std::byte* HostBuffer::reserve(const std::shared_ptr<Device>& device, int64_t bytes) {
  if (bytes > bytes_) {
    if (memory_) device_->release_host(memory_);
    memory_ = nullptr;
    bytes_ = 0;
    device_ = device;
    memory_ = device_->allocate_host(bytes);
    if (!memory_) {
      throw Error(ExitCode::resource,
                  fmt::format("{}: no {:.2f} GB of main memory for its copies; free some, or use "
                              "fewer rows a pass (-ub)",
                              device_->name(), static_cast<double>(bytes) * 1e-9));
    }
    bytes_ = bytes;
  }
  return static_cast<std::byte*>(memory_);
}

}  // namespace lockstep::kernels::cuda
