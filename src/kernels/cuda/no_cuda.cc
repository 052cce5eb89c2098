// What a build without nvcc says when it is asked for a CUDA device.
#include "base/error.h"
#include "kernels/backend.h"

namespace lockstep::kernels {

bool has_cuda() {
  return false;
}

std::unique_ptr<Backend> make_cuda_backend(int, CudaCode) {
  throw Error(ExitCode::bad_use,
              "--device cuda: this build has no CUDA kernels; build it where nvcc is "
              "(cmake -DLOCKSTEP_CUDA=ON), or use --device cpu");
}

}  // namespace lockstep::kernels
