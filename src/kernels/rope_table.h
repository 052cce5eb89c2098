// Frequencies, and rows of cosines and sines for ops/rope.h, made on demand in canonical binary64.
// Every backend takes its frequencies from here; CUDA devices make their rows by the same functions
// (math/elementary64.h, cuda/rotary.cuh).
//
// Formula    docs/numerics/rotary.md.
// Shapes     frequencies [n_rot ÷ 2]; cos, sin [n_rot ÷ 2] for one position.
// Order      one rounding per operator, as written there.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/graph.h"

namespace lockstep::kernels {

struct RopeFrequencies {
  std::vector<double> f;  // radians per position, by pair
  bool scaled = false;    // multiply cos and sin by mscale (yarn)
  float mscale = 1.0f;
};

// Throws Error(bad_file) where the spec can't give angles (n_rot odd, a factor or base that is not
// positive and finite, fewer factors than pairs).
RopeFrequencies rope_frequencies(const RopeSpec& spec);

// cos and sin of position·f, rounded to binary32. position >= 0.
void rope_row(const RopeFrequencies& frequencies, int64_t position, float* cos, float* sin);

}  // namespace lockstep::kernels
