// The kernels, compiled for devices (src/kernels/cuda/CMakeLists.txt has the flags).
#define LOCKSTEP_LAUNCH(kernel, blocks, threads, stream, argument) \
  kernel<<<(blocks), (threads), 0, static_cast<cudaStream_t>(stream)>>>(argument)

#define LOCKSTEP_UNROLL _Pragma("unroll")

#include "kernels/cuda/kernels.cuh"

namespace lockstep::kernels::cuda {

extern const DeviceKernels kDeviceKernels;
const DeviceKernels kDeviceKernels = kTable;

}  // namespace lockstep::kernels::cuda
