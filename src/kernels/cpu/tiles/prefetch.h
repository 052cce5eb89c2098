// How far ahead of their use the tile kernels ask for weights.
#pragma once

#include <cstdint>

namespace lockstep::kernels::tiles {

// Bytes: into the first-level cache, and into the second.
struct Ahead {
  int64_t near, far;
};
// What was measured best with CPUs of this kind (docs/performance.md).
extern const Ahead kAhead;

}  // namespace lockstep::kernels::tiles
