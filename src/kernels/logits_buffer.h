// Where passes leave their logits: memory of the backend's choice, only ever grown.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"

namespace lockstep::kernels {

class LogitsBuffer {
 public:
  // The first n floats; the same until more are asked for. What was in them may be gone then.
  std::span<float> first(Backend& backend, size_t n) {
    if (n > size_) {
      size_ = n;
      own_.clear();
      theirs_ = backend.logits_memory(static_cast<int64_t>(n));
      if (!theirs_) own_.resize(n);
    }
    return {theirs_ ? theirs_.get() : own_.data(), n};
  }

 private:
  size_t size_ = 0;
  std::vector<float> own_;
  std::shared_ptr<float[]> theirs_;
};

}  // namespace lockstep::kernels
