#include "kernels/cuda/launch.cuh"
//
#include "kernels/cuda/kernels.cuh"

namespace lockstep::kernels::cuda {

extern const DeviceKernels kDeviceKernels;
const DeviceKernels kDeviceKernels = kTable;

}  // namespace lockstep::kernels::cuda
