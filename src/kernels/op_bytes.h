// How many bytes an op of a pass has to move: the "Bytes" line of its contract (ops/<op>.h), worked
// out for a graph.
#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/graph.h"
#include "kernels/types.h"

namespace lockstep::kernels {

// A pass of one sequence.
struct PassShape {
  int64_t rows = 0;
  int64_t depth = 0;        // positions remembered before it: row i is position depth + i
  int64_t logits_rows = 0;  // rows that go on after SelectRows
  KvType k_type = KvType::f16, v_type = KvType::f16;
};

struct OpBytes {
  int64_t weights = 0;  // matrices, norms and biases, once a pass; of an embedding its rows
  int64_t kv = 0;       // remembered keys and values read: once a tile of rows (ops/attention.h)
  int64_t activations = 0;  // everything else: rows in and out, and keys and values written

  int64_t total() const { return weights + kv + activations; }
  OpBytes& operator+=(const OpBytes& other);
};

// Of graph.ops[op_index], by its contract; a bias counts as weights, and a Linear includes the
// quantising of its input, once for each form that its matrices read. Weights and kv are what has
// to come from memory; activations mostly stay in caches.
OpBytes op_bytes(const Graph& graph, int op_index, const PassShape& shape);

// Sum over the graph's ops.
OpBytes pass_bytes(const Graph& graph, const PassShape& shape);

// "embed", "rms_norm", "linear", "rope", "kv_write", "attention", "add", "gated_act",
// "select_rows", "softcap".
std::string_view op_kind_name(const OpArgs& args);

}  // namespace lockstep::kernels
