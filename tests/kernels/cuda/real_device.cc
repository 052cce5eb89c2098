#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "test_device.h"

namespace lockstep::kernels::cuda::test {

std::shared_ptr<Device> test_device() {
  static const std::shared_ptr<Device> device = []() -> std::shared_ptr<Device> {
    try {
      auto opened = open_device(0);
      std::printf("[ device   ] %s, %s, driver for CUDA %s\n", opened->name().c_str(),
                  opened->architecture().c_str(), opened->driver().c_str());
      return opened;
    } catch (const Error& error) {
      std::printf("[ skipped  ] %s\n", error.what());
      return nullptr;
    }
  }();
  return device;
}

void limit_shared(int) {}

bool few_trials() {
  return std::getenv("LOCKSTEP_FEW_TRIALS") != nullptr;
}

}  // namespace lockstep::kernels::cuda::test
