// The first launch of a pass: what its rows bring along, made ready.
#pragma once

#include "kernels/cuda/embed.cuh"
#include "kernels/cuda/rotary.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kInputThreads = 128;

// Blocks make rotary rows, the others embedding rows. The next launch may not start before this one
// has ended: attention reads rotary rows before it waits, and may itself have started by then.
__global__ void inputs_kernel(InputsArgs args) {
  wait_for_earlier_launches();
  const int64_t at = thread_of_grid() - static_cast<int64_t>(args.embed_from) * kInputThreads;
  if (at < 0) {
    rotary_pair(args.rotary, thread_of_grid());
  } else {
    embed_element(args.embed, at);
  }
}

void inputs(const InputsArgs& args, Stream stream) {
  InputsArgs own = args;
  own.embed_from = blocks_for(args.rotary.rows * args.rotary.n_pairs, kInputThreads);
  const unsigned blocks =
      own.embed_from + blocks_for(args.embed.rows * args.embed.width, kInputThreads);
  if (blocks > 0) LOCKSTEP_LAUNCH(inputs_kernel, blocks, kInputThreads, 0, stream, own);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
