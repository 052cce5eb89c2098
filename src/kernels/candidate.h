// An id with its logit: what is left of a row for choices that look at its greatest elements alone.
#pragma once

#include <cstdint>

namespace lockstep::kernels {

struct Candidate {
  float x;
  int32_t id;
};

}  // namespace lockstep::kernels
