// What nvcc compiles the kernels with (kernels.cmake has the flags): launches, shared memory,
// loops.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace lockstep::kernels::cuda {
namespace {

// Whether the device runs code that waits for the launch before it by itself (device_code.cuh).
template <typename Kernel>
bool waits_by_itself(Kernel kernel) {
  static const bool waits = [kernel] {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes, kernel) == cudaSuccess && attributes.ptxVersion >= 90;
  }();
  return waits;
}

// What a block may ask for, in bytes: from 99 KiB (sm_86, sm_89, sm_120) to 227 (sm_90).
inline int most_shared() {
  int device = 0, bytes = 48 << 10;
  if (cudaGetDevice(&device) == cudaSuccess) {
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  return bytes;
}

// Errors are found by the next call that asks for them (device_cuda.cc).
template <typename Args>
void launch(void (*kernel)(Args), unsigned blocks, unsigned threads, int shared, void* stream,
            const Args& args) {
  if (shared > 48 << 10) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  }
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &early;
  config.numAttrs = waits_by_itself(kernel) ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace
}  // namespace lockstep::kernels::cuda

#define LOCKSTEP_LAUNCH(kernel, blocks, threads, shared, stream, argument) \
  ::lockstep::kernels::cuda::launch(kernel, (blocks), (threads), (shared), (stream), (argument))
#define LOCKSTEP_MOST_SHARED (::lockstep::kernels::cuda::most_shared())
#define LOCKSTEP_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#define LOCKSTEP_APART
#define LOCKSTEP_PRAGMA(text) _Pragma(#text)
#define LOCKSTEP_UNROLL _Pragma("unroll")
#define LOCKSTEP_UNROLL_BY(n) LOCKSTEP_PRAGMA(unroll n)
