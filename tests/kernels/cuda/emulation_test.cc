// What the emulation shows of kernels that forget a barrier: the equality tests on it are worth so
// much.
#include "emulation.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::emulation {
namespace {

constexpr unsigned kThreads = 128, kBlocks = 4;

struct Args {
  int* out;
  unsigned from;  // threads further on that a thread reads from
  bool barrier;
};

// Each thread leaves its number and reads another's.
__global__ void pass_on(Args args) {
  LOCKSTEP_SHARED(shared);
  auto* values = reinterpret_cast<int*>(shared);
  values[threadIdx.x] = -1;
  __syncthreads();
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (args.barrier) {
    __syncthreads();
  } else {
    __syncwarp();
  }
  args.out[blockIdx.x * kThreads + threadIdx.x] = values[(threadIdx.x + args.from) % kThreads];
}

int wrong(unsigned from, bool barrier) {
  std::vector<int> out(kBlocks * kThreads, -2);
  LOCKSTEP_LAUNCH(pass_on, kBlocks, kThreads, kThreads * 4, nullptr,
                  (Args{out.data(), from, barrier}));
  int found = 0;
  for (unsigned i = 0; i < out.size(); ++i) {
    found += out[i] != static_cast<int>((i % kThreads + from) % kThreads);
  }
  return found;
}

TEST(Emulation, AMissingBarrierOfTheBlockIsSeenWhicheverWarpIsLate) {
  EXPECT_EQ(wrong(32, true), 0);
  EXPECT_EQ(wrong(96, true), 0);
  EXPECT_GT(wrong(32, false), 0);  // the warp after this one
  EXPECT_GT(wrong(96, false), 0);  // the warp before it
}

}  // namespace
}  // namespace lockstep::emulation
