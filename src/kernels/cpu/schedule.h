// How the ops of a graph become phases of a thread team. A phase begins when all chunks of the last
// are done, and that hand-over costs as much as a small op: so ops that work row by row, one after
// the other, are one phase (a chain), and the quantisation of a product's input is the end of the
// chain that makes it.
#pragma once

#include <vector>

#include "kernels/graph.h"

namespace lockstep::kernels {

struct Phase {
  enum class Kind : uint8_t {
    rows,       // a chain, cut between rows
    pieces,     // a chain whose ops all work on 256 elements at a time: cut inside rows, too
    product,    // a Linear's matrices, cut between tiles of 16 columns
    attention,  // cut between its items
  };
  Kind kind = Kind::rows;
  // Ops of the chain [first_op, end_op); of the other kinds the one op.
  int first_op = 0, end_op = 0;
  bool rope_tables = false;   // the chain begins with its rows' rotary angles
  int quantise_for = -1;      // the chain ends with the input of this Linear
  bool check_logits = false;  // the chain ends with a look at the logits
  int64_t pieces = 0;         // of a row, in kind pieces
};

// fuse false: every op in phases of its own.
std::vector<Phase> make_schedule(const Graph& graph, bool fuse);

}  // namespace lockstep::kernels
