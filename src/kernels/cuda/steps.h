// A graph's ops as the device runs them: neighbours that fit into one launch together. Made once a
// graph. The law's order holds inside a step, and what a step doesn't store nobody reads later.
#pragma once

#include <optional>
#include <variant>
#include <vector>

#include "kernels/graph.h"

namespace lockstep::kernels::cuda {

// Indices of ops; -1: none.
namespace step {
struct Single {
  int op;
};
// [Embed | [RmsNorm] Add | SelectRows] [RmsNorm, and the quantising of the Linear after it]
struct RowChain {
  int embed = -1, branch_norm = -1, add = -1, select = -1, norm = -1, linear = -1;
  bool keep_x = true;  // the norm's output itself is read, not only its codes
  int first() const;   // the first op of the step
};
struct Linear {
  int op;
  bool quantised = false;  // an earlier step did
};
// [RmsNorm of q] [RmsNorm of k] Rope, Rope, KvWrite
struct Heads {
  int q_norm = -1, k_norm = -1, rope_q, rope_k, kv_write;
};
struct Attention {
  int op;
  int linear = -1;                  // it reads the result: quantised with it
  std::optional<Heads> heads = {};  // of the q, k and v that it reads, and nobody else does
  bool keep_out = true;
};
struct GatedAct {
  int op, linear;
  bool keep_out = true;
};
}  // namespace step

using Step = std::variant<step::Single, step::RowChain, step::Linear, step::Heads, step::Attention,
                          step::GatedAct>;

std::vector<Step> steps_of(const Graph& graph);

// Forms of activations that a Linear's matrices read.
struct LinearForms {
  bool q[2] = {};  // q32, q256
  bool floats = false;
};
LinearForms forms_of(const op::Linear& linear);

}  // namespace lockstep::kernels::cuda
