// Where the workers of a pass wait for each other between ops. Spins first: the gap between two ops
// is microseconds when every worker has a core; sleeps when one has not.
#pragma once

#include <atomic>
#include <cstdint>

namespace lockstep::kernels {

class Barrier {
 public:
  explicit Barrier(int size) : size_(size) {}

  void arrive_and_wait() {
    if (size_ == 1) return;
    const uint32_t generation = generation_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      generation_.store(generation + 1, std::memory_order_release);
      generation_.notify_all();
      return;
    }
    for (int spin = 0; spin < 2000; ++spin) {
      if (generation_.load(std::memory_order_acquire) != generation) return;
      __builtin_ia32_pause();
    }
    while (generation_.load(std::memory_order_acquire) == generation) {
      generation_.wait(generation, std::memory_order_acquire);
    }
  }

 private:
  const int size_;
  std::atomic<int> arrived_{0};
  std::atomic<uint32_t> generation_{0};
};

}  // namespace lockstep::kernels
