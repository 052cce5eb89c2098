// A device of the CUDA runtime, which is linked in statically: it looks for the driver when it is
// first asked, so a machine without one runs the program as any other.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdlib>

#include "base/error.h"
#include "kernels/backend.h"
#include "kernels/cuda/backend.h"
#include "kernels/cuda/device.h"

namespace lockstep::kernels {
namespace cuda {

extern const DeviceKernels kDeviceKernels;  // kernels.cu

namespace {

[[noreturn]] void fail(const std::string& message) {
  throw Error(ExitCode::resource, "CUDA: " + message);
}

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

struct Launches final : Recording {
  ~Launches() override {
    if (launches) cudaGraphExecDestroy(launches);
  }
  cudaGraphExec_t launches = nullptr;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : index_(index) {
    int driver = 0;
    check(cudaDriverGetVersion(&driver), "asking for the driver");
    if (driver == 0) {
      fail("this machine has no NVIDIA driver (libcuda.so.1 is not found); use --device cpu");
    }
    // Versions of one major number work together.
    if (driver / 1000 < CUDART_VERSION / 1000) {
      fail(
          fmt::format("the driver knows CUDA {} and this program needs {}; update the driver, or "
                      "use --device cpu",
                      version_text(driver), version_text(CUDART_VERSION / 1000 * 1000)));
    }
    driver_ = version_text(driver);
    int count = 0;
    const cudaError_t counted = cudaGetDeviceCount(&count);
    if (counted == cudaErrorNoDevice || (counted == cudaSuccess && count == 0)) {
      fail("the driver shows no device; use --device cpu");
    }
    check(counted, "counting the devices");
    if (index >= count) {
      fail(fmt::format("there is no device {}: this machine has {}", index, count));
    }
    check(cudaSetDevice(index), "choosing the device");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, index), "asking for the device's properties");
    name_ = properties.name;
    architecture_ = fmt::format("sm_{}{}", properties.major, properties.minor);
    processors_ = properties.multiProcessorCount;
    if (properties.major < 8) {
      fail(fmt::format("{} is {}; this program needs sm_80 (Ampere) or later", name_,
                       architecture_));
    }
    check(cudaStreamCreate(&stream_), "making a stream");
  }
  ~CudaDevice() override {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
    cudaStreamDestroy(stream_);
  }

  std::string name() const override { return name_; }
  std::string architecture() const override { return architecture_; }
  std::string driver() const override { return driver_; }
  int processors() const override { return processors_; }
  DeviceMemory memory() const override {
    size_t free = 0, total = 0;
    use();
    check(cudaMemGetInfo(&free, &total), "asking for free memory");
    return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
  }

  void* allocate(int64_t bytes) override {
    use();
    void* memory = nullptr;
    const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // it is not kept for the next call
      return nullptr;
    }
    check(error, "taking memory");
    return memory;
  }
  void release(void* memory) noexcept override { cudaFree(memory); }

  void upload(void* to, const void* from, int64_t bytes) override {
    use();
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_),
          "copying to the device");
    // Of pageable memory all is read when the call returns; of pinned memory it need not be.
    wait();
  }
  void download(void* to, const void* from, int64_t bytes) override {
    use();
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_),
          "copying from the device");
    wait();
  }
  void* allocate_host(int64_t bytes) override {
    use();
    void* memory = nullptr;
    const cudaError_t error = cudaMallocHost(&memory, static_cast<size_t>(bytes));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    check(error, "taking main memory");
    return memory;
  }
  void release_host(void* memory) noexcept override { cudaFreeHost(memory); }
  bool is_host_memory(const void* memory) const override {
    if (memory == nullptr) return false;
    cudaPointerAttributes attributes{};
    use();
    check(cudaPointerGetAttributes(&attributes, memory), "asking about memory");
    return attributes.type == cudaMemoryTypeHost;
  }
  void start_upload(void* to, const void* from, int64_t bytes) override {
    use();
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_),
          "copying to the device");
  }
  void start_download(void* to, const void* from, int64_t bytes) override {
    use();
    check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_),
          "copying from the device");
  }

  void begin_recording() override {
    use();
    check(cudaGetLastError(), "a launch");
    check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "recording launches");
  }
  std::shared_ptr<Recording> end_recording() override {
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream_, &graph), "recording launches");
    auto made = std::make_shared<Launches>();
    const cudaError_t error = cudaGraphInstantiate(&made->launches, graph, 0);
    cudaGraphDestroy(graph);
    check(error, "preparing recorded launches");
    return made;
  }
  void replay(const Recording& recording) override {
    use();
    check(cudaGraphLaunch(static_cast<const Launches&>(recording).launches, stream_),
          "repeating recorded launches");
  }

  void fill(void* at, int value, int64_t bytes, int64_t pitch, int64_t rows) override {
    use();
    if (rows == 1) {
      check(cudaMemsetAsync(at, value, static_cast<size_t>(bytes), stream_), "filling");
      return;
    }
    check(cudaMemset2DAsync(at, static_cast<size_t>(pitch), value, static_cast<size_t>(bytes),
                            static_cast<size_t>(rows), stream_),
          "filling");
  }
  void copy(void* to, const void* from, int64_t bytes, int64_t pitch, int64_t rows) override {
    use();
    if (rows == 1) {
      check(
          cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_),
          "copying");
      return;
    }
    check(cudaMemcpy2DAsync(to, static_cast<size_t>(pitch), from, static_cast<size_t>(pitch),
                            static_cast<size_t>(bytes), static_cast<size_t>(rows),
                            cudaMemcpyDeviceToDevice, stream_),
          "copying");
  }
  void wait() override {
    check(cudaGetLastError(), "a launch");
    check(cudaStreamSynchronize(stream_), "running");
  }

  void mark() override {
    use();
    if (marks_ == events_.size()) {
      events_.emplace_back();
      check(cudaEventCreate(&events_.back()), "making an event");
    }
    check(cudaEventRecord(events_[marks_++], stream_), "recording an event");
  }
  std::vector<double> times() override {
    wait();
    std::vector<double> ms;
    for (size_t i = 1; i < marks_; ++i) {
      float between = 0;
      check(cudaEventElapsedTime(&between, events_[i - 1], events_[i]), "reading an event");
      ms.push_back(between);
    }
    marks_ = 0;
    return ms;
  }

  const DeviceKernels& kernels() const override {
    use();
    return kDeviceKernels;
  }
  Stream stream() const override { return stream_; }

 private:
  // Each host thread chooses its device.
  void use() const { check(cudaSetDevice(index_), "choosing the device"); }

  void check(cudaError_t error, const char* doing) const {
    if (error == cudaSuccess) return;
    const char* where = name_.empty() ? "the device" : name_.c_str();
    switch (error) {
      case cudaErrorNoKernelImageForDevice:
      case cudaErrorInvalidDeviceFunction:
      case cudaErrorUnsupportedPtxVersion:
        fail(
            fmt::format("{} is {}, for which this program has no code; build it with "
                        "-DLOCKSTEP_CUDA_ARCHITECTURES",
                        where, architecture_));
      case cudaErrorInsufficientDriver:
        fail(
            fmt::format("the driver knows CUDA {}, older than this program's {}; update the "
                        "driver, or use --device cpu",
                        driver_, version_text(CUDART_VERSION)));
      default:
        fail(fmt::format("{}: {} failed: {} ({})", where, doing, cudaGetErrorString(error),
                         cudaGetErrorName(error)));
    }
  }

  int index_, processors_ = 1;
  std::string name_, architecture_, driver_;
  cudaStream_t stream_ = nullptr;
  std::vector<cudaEvent_t> events_;
  size_t marks_ = 0;
};

}  // namespace

std::shared_ptr<Device> open_device(int index) {
  return std::make_shared<CudaDevice>(index);
}

}  // namespace cuda

bool has_cuda() {
  return true;
}

std::unique_ptr<Backend> make_cuda_backend(int index, CudaCode code) {
  // The driver reads it when it starts, which is when a device is first opened.
  if (code == CudaCode::portable) ::setenv("CUDA_FORCE_PTX_JIT", "1", 1);
  return std::make_unique<cuda::CudaBackend>(cuda::open_device(index));
}

}  // namespace lockstep::kernels
