// One CUDA device as the backend uses it: memory, copies, a stream of launches. The program has one
// made of the CUDA runtime (open_device); tests have one that emulates kernels on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/kernels.h"

namespace lockstep::kernels::cuda {

struct DeviceMemory {
  int64_t free = 0, total = 0;  // bytes
};

// Launches that were recorded, to be made again at once.
class Recording {
 public:
  virtual ~Recording() = default;
};

// Copies and launches happen in the order of their calls. Every call throws Error(resource) when
// the device refuses it, or reports that an earlier one failed: a device that was lost stays lost.
class Device {
 public:
  virtual ~Device() = default;
  virtual std::string name() const = 0;          // "NVIDIA H200"
  virtual std::string architecture() const = 0;  // "sm_90"
  virtual std::string driver() const = 0;        // highest CUDA version it knows: "13.0"
  virtual DeviceMemory memory() const = 0;
  virtual int processors() const = 0;  // multiprocessors

  // 256-byte aligned; null when there is no more.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* memory) noexcept = 0;
  // From memory that may be written again when upload returns.
  virtual void upload(void* to, const void* from, int64_t bytes) = 0;
  // Waits for everything before it.
  virtual void download(void* to, const void* from, int64_t bytes) = 0;
  virtual void fill(void* at, int value, int64_t bytes, int64_t pitch, int64_t rows) = 0;
  virtual void copy(void* to, const void* from, int64_t bytes, int64_t pitch, int64_t rows) = 0;
  virtual void wait() = 0;

  // Main memory that the device reads and writes by itself; null when there is no more.
  virtual void* allocate_host(int64_t bytes) = 0;
  virtual void release_host(void* memory) noexcept = 0;
  // Whether that is such memory.
  virtual bool is_host_memory(const void* memory) const = 0;
  // Copies of such memory that go on when the call returns: it may be touched again after wait().
  virtual void start_upload(void* to, const void* from, int64_t bytes) = 0;
  virtual void start_download(void* to, const void* from, int64_t bytes) = 0;

  // Launches between the two are kept and not made.
  virtual void begin_recording() = 0;
  virtual std::shared_ptr<Recording> end_recording() = 0;
  virtual void replay(const Recording& recording) = 0;

  // A point in the stream; times() waits and gives the milliseconds between successive marks since
  // the last times().
  virtual void mark() = 0;
  virtual std::vector<double> times() = 0;

  virtual const DeviceKernels& kernels() const = 0;
  virtual Stream stream() const = 0;
};

// Device number `index`. Throws Error(resource) naming what is missing: no driver, one that is too
// old (both versions), no such device, one this build has no code for.
std::shared_ptr<Device> open_device(int index);

// Memory of a device, only ever grown.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // `what` is for the message: "activations".
  DeviceBuffer(std::shared_ptr<Device> device, int64_t bytes, const char* what) {
    reserve(std::move(device), bytes, what);
  }
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceBuffer() {
    if (memory_) device_->release(memory_);
  }

  // At least `bytes`; returns whether it had fewer: it lies elsewhere now, and what was in it is
  // gone. Throws Error(resource) saying how much is needed and how much is free.
  bool reserve(std::shared_ptr<Device> device, int64_t bytes, const char* what);
  template <typename T>
  T* as() const {
    return static_cast<T*>(memory_);
  }

 private:
  std::shared_ptr<Device> device_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

// Main memory for copies that go on by themselves, only ever grown.
class HostBuffer {
 public:
  HostBuffer() = default;
  HostBuffer(const HostBuffer&) = delete;
  HostBuffer& operator=(const HostBuffer&) = delete;
  ~HostBuffer() {
    if (memory_) device_->release_host(memory_);
  }
  // At least `bytes`; what was in it is gone when it had fewer. Throws Error(resource).
  std::byte* reserve(const std::shared_ptr<Device>& device, int64_t bytes);

 private:
  std::shared_ptr<Device> device_;
  void* memory_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace lockstep::kernels::cuda
