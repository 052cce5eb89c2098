// Memory of a backend that is kept from pass to pass and only grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/error.h"

namespace lockstep::kernels {

class Buffer {
 public:
  // At least `bytes` bytes on a cache line; what was in it is lost when it must grow.
  // Throws Error(resource).
  void reserve(int64_t bytes) {
    if (bytes <= bytes_) return;
    memory_.reset();
    bytes_ = 0;
    const size_t rounded = (static_cast<size_t>(bytes) + 63) / 64 * 64;
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(64, rounded)));
    if (!memory_) {
      throw Error(ExitCode::resource, "no memory for " + std::to_string(rounded) +
                                          " bytes of activations; use a smaller batch (-b)");
    }
    bytes_ = static_cast<int64_t>(rounded);
  }

  std::byte* data() const { return memory_.get(); }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(memory_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  int64_t bytes_ = 0;
};

}  // namespace lockstep::kernels
