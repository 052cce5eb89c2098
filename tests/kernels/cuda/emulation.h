// Blocks, warps and barriers on the CPU, enough for src/kernels/cuda/kernels.cuh: every thread of a
// block is a fiber, they run one after the other from barrier to barrier, warp by warp, block by
// block. Slow and exact: the arithmetic is the host's own IEEE arithmetic, compiled without
// contraction.
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
#include <utility>
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
      // A warp goes on alone as far as it can, in odd blocks the last one first: what one warp
      // needs of another without a barrier of the block is missing then.
      for (unsigned turn = 0; turn < warps; ++turn) {
        const unsigned warp = index % 2 != 0 ? warps - 1 - turn : turn;
        uint64_t warp_steps;
        do {
          warp_steps = steps_;
          for (unsigned t = 32 * warp; t < 32 * (warp + 1) && t < threads; ++t) {
            if (done_[t]) continue;
            thread_index.x = t;
            go_to(*fibers_[t]);
          }
        } while (steps_ != warp_steps);
      }
      idle = alive_ == before && steps_ == steps ? idle + 1 : 0;
      if (idle > 4)
        throw std::logic_error("emulation: threads wait for a barrier that none reaches");
    }
  }

  void sync() { wait(block_barrier_, alive_); }
  void sync_warp() { wait(warp_barriers_[thread_index.x / 32], warp_alive_[thread_index.x / 32]); }

  // The value of another lane of the thread's warp.
  uint32_t exchange(uint32_t value, unsigned lane) {
    exchange_[thread_index.x] = value;
    sync_warp();
    const uint32_t other = exchange_[thread_index.x / 32 * 32 + lane];
    sync_warp();
    return other;
  }

  // Words of all lanes of the thread's warp: each gives its own and may read the others' until the
  // next barrier of the warp.
  void give(const uint32_t* words, int n) {
    for (int i = 0; i < n; ++i) given_[thread_index.x][i] = words[i];
    sync_warp();
  }
  const uint32_t* given(int lane) const {
    return given_[thread_index.x / 32 * 32 + static_cast<unsigned>(lane)];
  }

  // What a launch asks for beside the kernel's own shared arrays. Never cleared: what a block
  // leaves there is junk to the next.
  unsigned char* shared() { return shared_; }

  Index thread_index, block_index, block_dim, grid_dim;
  static constexpr int kSharedBytes = 227 << 10;  // sm_90's

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
  uint32_t given_[1024][6];
  alignas(128) unsigned char shared_[kSharedBytes];
};

// c += A·B from the fragments of mma.m16n8k32 (registers 4) or m16n8k16 (2) of int8; A may be of
// uint8.
inline void mma(int32_t (&c)[4], const uint32_t (&a)[4], int registers, uint32_t b0, uint32_t b1,
                bool unsigned_a) {
  Block& block = Block::running();
  const uint32_t own[6] = {a[0], a[1], a[2], a[3], b0, b1};
  block.give(own, 6);
  const int lane = static_cast<int>(block.thread_index.x % 32), g = lane / 4, t = lane % 4;
  for (int i = 0; i < 4; ++i) {
    const int row = g + 8 * (i / 2), column = 2 * t + i % 2;
    for (int k = 0; k < 8 * registers; ++k) {
      // Elements 16h + 4t … of a row are with lane 4g + t, in the registers of half h.
      const int half = k / 16, owner = k % 16 / 4, byte = 8 * (k % 4);
      const uint32_t* row_words = block.given(4 * (row % 8) + owner);
      const uint32_t* column_words = block.given(4 * column + owner);
      const uint32_t a_bits = row_words[2 * half + row / 8] >> byte & 255;
      c[i] += (unsigned_a ? static_cast<int32_t>(a_bits) : static_cast<int8_t>(a_bits)) *
              static_cast<int8_t>(column_words[4 + half] >> byte);
    }
  }
  block.sync_warp();
}

// What a launch may ask for: a test can make it a smaller device's.
inline int& most_shared() {
  static int bytes = Block::kSharedBytes;
  return bytes;
}

// While a list of launches is being recorded, launches go there and do not run.
inline std::vector<std::function<void()>>*& recording() {
  static std::vector<std::function<void()>>* list = nullptr;
  return list;
}

template <typename Kernel, typename Args>
void launch(Kernel kernel, unsigned blocks, unsigned threads, int shared, const Args& args) {
  if (shared > most_shared()) throw std::logic_error("emulation: too much shared memory");
  if (recording() != nullptr) {
    recording()->push_back([=] {
      auto* list = std::exchange(recording(), nullptr);
      launch(kernel, blocks, threads, shared, args);
      recording() = list;
    });
    return;
  }
  const std::function<void()> thread = [&] { kernel(args); };
  for (unsigned block = 0; block < blocks; ++block) {
    Block::running().run(block, blocks, threads, thread);
  }
}

}  // namespace lockstep::emulation

#define LOCKSTEP_EMULATED
#define __global__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __host__
#define __device__
#define __shared__ static
#define threadIdx (::lockstep::emulation::Block::running().thread_index)
#define blockIdx (::lockstep::emulation::Block::running().block_index)
#define blockDim (::lockstep::emulation::Block::running().block_dim)
#define gridDim (::lockstep::emulation::Block::running().grid_dim)

inline void __syncthreads() {
  ::lockstep::emulation::Block::running().sync();
}

inline void __syncwarp() {
  ::lockstep::emulation::Block::running().sync_warp();
}

// Threads run one after the other.
inline int atomicAdd(int* at, int value) {
  return std::exchange(*at, *at + value);
}

namespace lockstep::emulation {
template <typename T>
T exchange(T value, unsigned lane) {
  static_assert(sizeof(T) == 4);
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits = Block::running().exchange(bits, lane);
  std::memcpy(&value, &bits, 4);
  return value;
}
}  // namespace lockstep::emulation

template <typename T>
T __shfl_xor_sync(unsigned, T value, int lane_xor) {
  return ::lockstep::emulation::exchange(value, threadIdx.x % 32 ^ static_cast<unsigned>(lane_xor));
}
// The lowest lanes get their own.
template <typename T>
T __shfl_up_sync(unsigned, T value, unsigned delta) {
  const unsigned lane = threadIdx.x % 32;
  return ::lockstep::emulation::exchange(value, lane < delta ? lane : lane - delta);
}

#define LOCKSTEP_LAUNCH(kernel, blocks, threads, shared, stream, argument)                  \
  (static_cast<void>(stream),                                                               \
   ::lockstep::emulation::launch([=](const auto& launched) { kernel(launched); }, (blocks), \
                                 (threads), (shared), (argument)))
#define LOCKSTEP_MOST_SHARED (::lockstep::emulation::most_shared())
#define LOCKSTEP_SHARED(name) \
  unsigned char* const name = ::lockstep::emulation::Block::running().shared()
#define LOCKSTEP_APART static
#define LOCKSTEP_UNROLL
#define LOCKSTEP_UNROLL_BY(n)
