// A device whose memory is the CPU's and whose kernels run in the emulation.
#include <chrono>
#include <cstdlib>
#include <set>

#include "emulation.h"
// The kernels' source, as nvcc gets it.
#include "kernels/cuda/kernels.cuh"
#include "kernels/cuda/products_q256.cuh"
#include "kernels/cuda/products_q32.cuh"
#include "test_device.h"

namespace lockstep::kernels::cuda::test {
namespace {

struct Launches final : Recording {
  std::vector<std::function<void()>> all;
};

class EmulatedDevice final : public Device {
 public:
  std::string name() const override { return "an emulated device"; }
  std::string architecture() const override { return "emulated"; }
  std::string driver() const override { return "0.0"; }
  DeviceMemory memory() const override { return {1LL << 30, 1LL << 30}; }
  int processors() const override { return 3; }
  void* allocate(int64_t bytes) override {
    return std::aligned_alloc(256, static_cast<size_t>((bytes + 255) / 256 * 256));
  }
  void release(void* memory) noexcept override { std::free(memory); }
  void upload(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void download(void* to, const void* from, int64_t bytes) override { upload(to, from, bytes); }
  void fill(void* at, int value, int64_t bytes, int64_t pitch, int64_t rows) override {
    for (int64_t i = 0; i < rows; ++i) {
      std::memset(static_cast<std::byte*>(at) + i * pitch, value, static_cast<size_t>(bytes));
    }
  }
  void copy(void* to, const void* from, int64_t bytes, int64_t pitch, int64_t rows) override {
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(static_cast<std::byte*>(to) + i * pitch,
                  static_cast<const std::byte*>(from) + i * pitch, static_cast<size_t>(bytes));
    }
  }
  void wait() override {}
  void* allocate_host(int64_t bytes) override {
    void* memory = allocate(bytes);
    host_.insert(memory);
    return memory;
  }
  void release_host(void* memory) noexcept override {
    host_.erase(memory);
    release(memory);
  }
  bool is_host_memory(const void* memory) const override { return host_.contains(memory); }
  void start_upload(void* to, const void* from, int64_t bytes) override { upload(to, from, bytes); }
  void start_download(void* to, const void* from, int64_t bytes) override {
    upload(to, from, bytes);
  }
  void begin_recording() override {
    recording_ = std::make_shared<Launches>();
    emulation::recording() = &recording_->all;
  }
  std::shared_ptr<Recording> end_recording() override {
    emulation::recording() = nullptr;
    return std::move(recording_);
  }
  void replay(const Recording& recording) override {
    for (const auto& launch : static_cast<const Launches&>(recording).all) launch();
  }
  void mark() override { marks_.push_back(std::chrono::steady_clock::now()); }
  std::vector<double> times() override {
    std::vector<double> ms;
    for (size_t i = 1; i < marks_.size(); ++i) {
      ms.push_back(std::chrono::duration<double, std::milli>(marks_[i] - marks_[i - 1]).count());
    }
    marks_.clear();
    return ms;
  }
  const DeviceKernels& kernels() const override { return kTable; }
  Stream stream() const override { return nullptr; }

 private:
  std::shared_ptr<Launches> recording_;
  std::set<const void*> host_;
  std::vector<std::chrono::steady_clock::time_point> marks_;
};

}  // namespace

std::shared_ptr<Device> test_device() {
  static const auto device = std::make_shared<EmulatedDevice>();
  return device;
}

void limit_shared(int bytes) {
  emulation::most_shared() = bytes > 0 ? bytes : emulation::Block::kSharedBytes;
}

bool few_trials() {
  return true;
}

}  // namespace lockstep::kernels::cuda::test
