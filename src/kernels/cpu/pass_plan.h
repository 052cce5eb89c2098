// A pass, checked and laid out for one graph: which row is which position, which rows go on after
// SelectRows, how many rows each slot needs. Made on the calling thread before any worker starts.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/backend.h"

namespace lockstep::kernels {

struct PassPlan {
  struct Segment {
    const PassSegment* pass = nullptr;
    int64_t first_row = 0, rows = 0;
  };
  std::vector<Segment> segments;
  int64_t rows = 0;
  std::vector<int32_t> tokens;              // [rows]
  std::vector<int64_t> positions;           // [rows]
  std::vector<int64_t> selected;            // rows that want logits, ascending
  int select_op = 0;                        // index of the graph's SelectRows; ops.size(): none
  std::vector<int64_t> slot_rows;           // [slots]
  std::vector<const RopeSpec*> rope_specs;  // distinct, in order of first use

  bool after_select(int op_index) const { return op_index > select_op; }
  // Rows that op op_index works on; for SelectRows itself those it keeps.
  int64_t rows_at(int op_index) const {
    return op_index >= select_op ? static_cast<int64_t>(selected.size()) : rows;
  }
  // Row of the pass that row r of op op_index's output is.
  int64_t pass_row(int op_index, int64_t r) const {
    return op_index >= select_op ? selected[static_cast<size_t>(r)] : r;
  }
  // Row of op op_index's output that is `position` of segment 0; -1: none.
  int64_t row_of_position(int op_index, int64_t position) const;
};

// Throws Error(bad_use) naming the op where graph and pass don't fit: a token outside the
// vocabulary, pages that don't cover the rows, a logits span of the wrong size.
PassPlan plan_pass(const Graph& graph, const Pass& pass);

// Slots that op writes, in the order a Plant counts their elements; empty for KvWrite.
std::vector<Slot> output_slots(const OpArgs& args);

}  // namespace lockstep::kernels
