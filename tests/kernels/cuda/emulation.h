// Blocks, warps and barriers on the CPU, enough for src/kernels/cuda/kernels.cuh: every thread of a
// block is a fiber, they run one after the other from barrier to barrier, block by block. Slow and
// exact: the arithmetic is the host's own IEEE arithmetic, compiled without contraction.
//
// What it cannot see: races between barriers, memory that only a device has, the device's compiler.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <vector>

namespace lockstep::emulation {

struct Index {
  unsigned x = 0;
};

// A barrier of some fibers: those that have arrived, and how often all had.
struct Barrier {
  int arrived = 0;
  uint64_t turn = 0;
};

class Block {
 public:
  static Block& running() {
    static Block block;
    return block;
  }

  void run(unsigned index, unsigned blocks, unsigned threads, const std::function<void()>& kernel) {
    block_index.x = index;
    grid_dim.x = blocks;
    block_dim.x = threads;
    kernel_ = &kernel;
    alive_ = static_cast<int>(threads);
    block_barrier_ = {};
    const unsigned warps = (threads + 31) / 32;
    warp_barriers_.assign(warps, {});
    warp_alive_.assign(warps, 0);
    exchange_.assign(threads, 0);
    while (fibers_.size() < threads) fibers_.push_back(std::make_unique<Fiber>());
    done_.assign(threads, 0);
    for (unsigned t = 0; t < threads; ++t) ++warp_alive_[t / 32];
    int idle = 0;
    while (alive_ > 0) {
      const int before = alive_;
      const uint64_t steps = steps_;
      for (unsigned t = 0; t < threads; ++t) {
        if (done_[t]) continue;
        thread_index.x = t;
        go_to(*fibers_[t]);
      }
      idle = alive_ == before && steps_ == steps ? idle + 1 : 0;
      if (idle > 4)
        throw std::logic_error("emulation: threads wait for a barrier that none reaches");
    }
  }

  void sync() { wait(block_barrier_, alive_); }
  void sync_warp() { wait(warp_barriers_[thread_index.x / 32], warp_alive_[thread_index.x / 32]); }

  uint32_t exchange(uint32_t value, int lane_xor) {
    exchange_[thread_index.x] = value;
    sync_warp();
    const uint32_t other = exchange_[thread_index.x ^ static_cast<unsigned>(lane_xor)];
    sync_warp();
    return other;
  }

  Index thread_index, block_index, block_dim, grid_dim;

 private:
  static constexpr size_t kStackBytes = 64 << 10;

  // Jumps between stacks: swapcontext would ask the system for the signal mask each time.
  struct Fiber {
    std::unique_ptr<char[]> stack = std::make_unique<char[]>(kStackBytes);
    bool started = false;
    jmp_buf at;
  };

  [[gnu::noinline]] void go_to(Fiber& fiber) {
    if (_setjmp(scheduler_) != 0) return;
    if (fiber.started) _longjmp(fiber.at, 1);
    fiber.started = true;
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fiber.stack.get();
    context.uc_stack.ss_size = kStackBytes;
    context.uc_link = nullptr;
    makecontext(&context, &Block::enter, 0);
    setcontext(&context);
  }
  [[gnu::noinline]] void leave(Fiber& fiber) {
    if (_setjmp(fiber.at) == 0) _longjmp(scheduler_, 1);
  }

  // A fiber serves the thread of its index in one block after another.
  static void enter() {
    Block& self = running();
    for (;;) {
      (*self.kernel_)();
      const unsigned t = self.thread_index.x;
      self.done_[t] = 1;
      --self.alive_;
      --self.warp_alive_[t / 32];
      self.leave(*self.fibers_[t]);
    }
  }

  // alive by reference: threads may leave while others wait.
  void wait(Barrier& barrier, const int& alive) {
    const uint64_t turn = barrier.turn;
    ++barrier.arrived;
    while (barrier.turn == turn) {
      if (barrier.arrived >= alive) {
        barrier.arrived = 0;
        ++barrier.turn;
        ++steps_;
        break;
      }
      leave(*fibers_[thread_index.x]);
    }
  }

  const std::function<void()>* kernel_ = nullptr;
  int alive_ = 0;
  uint64_t steps_ = 0;
  Barrier block_barrier_;
  std::vector<Barrier> warp_barriers_;
  std::vector<int> warp_alive_;
  std::vector<uint32_t> exchange_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<char> done_;
  jmp_buf scheduler_;
};

template <typename Kernel, typename Args>
void launch(Kernel kernel, unsigned blocks, unsigned threads, const Args& args) {
  const std::function<void()> thread = [&] { kernel(args); };
  for (unsigned block = 0; block < blocks; ++block) {
    Block::running().run(block, blocks, threads, thread);
  }
}

}  // namespace lockstep::emulation

#define __global__
#define __device__
#define __shared__ static
#define threadIdx (::lockstep::emulation::Block::running().thread_index)
#define blockIdx (::lockstep::emulation::Block::running().block_index)
#define blockDim (::lockstep::emulation::Block::running().block_dim)
#define gridDim (::lockstep::emulation::Block::running().grid_dim)

inline void __syncthreads() {
  ::lockstep::emulation::Block::running().sync();
}

template <typename T>
T __shfl_xor_sync(unsigned, T value, int lane_xor) {
  static_assert(sizeof(T) == 4);
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = ::lockstep::emulation::Block::running().exchange(bits, lane_xor);
  std::memcpy(&value, &bits, 4);
  return value;
}

inline int32_t __dp4a(int32_t a, int32_t b, int32_t sum) {
  for (int i = 0; i < 4; ++i) {
    sum += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  }
  return sum;
}

#define LOCKSTEP_LAUNCH(kernel, blocks, threads, stream, argument)                                \
  (static_cast<void>(stream),                                                                     \
   ::lockstep::emulation::launch([](const auto& launched) { kernel(launched); }, (blocks), (threads), \
                                 (argument)))
#define LOCKSTEP_UNROLL
