// The loops of sampling that pass over a whole vocabulary. One source (row_ops.cc), compiled for
// plain x86-64 and for AVX2 with FMA; the bits are the same, chosen at start by what the CPU has.
#pragma once

#include <cstdint>

namespace lockstep::sample {

// Ids of one block share a maximum, so that most of a vocabulary is never looked at again after the
// first pass over it.
inline constexpr int64_t kBlock = 64;
constexpr int64_t block_count(int64_t n) {
  return (n + kBlock - 1) / kBlock;
}

struct RowOps {
  // block_max[b] = greatest element of block b of x[n]. False where an element has all exponent
  // bits set; block_max then means nothing.
  bool (*scan)(const float* x, int64_t n, float* block_max);
  // weights[i] = the law's integer weight of d = x[i] - x_max (<= 0, maybe -inf) at temperature t.
  void (*weights)(const float* x, int64_t n, float x_max, double t, uint64_t* weights);
  // The 64 words of Philox4x32-10 for counters (position, group … group + 15, choice, 0): those of
  // ids 4·group and on. Returns the greatest.
  uint32_t (*noise_words)(uint32_t key0, uint32_t key1, uint32_t position, uint32_t group,
                          uint32_t choice, uint32_t* words);
};

extern const RowOps kRowOpsPortable;
const RowOps& row_ops();  // the best this CPU has

}  // namespace lockstep::sample
