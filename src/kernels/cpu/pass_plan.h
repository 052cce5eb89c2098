// A pass, checked and laid out for one graph: which row is which position, which rows go on after
// SelectRows, how many rows each slot needs. Made on the calling thread before any worker starts;
// what depends on the graph alone is found out once (a small model's pass takes two milliseconds,
// and has three hundred ops).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/backend.h"

namespace lockstep::kernels {

// What a graph says of every pass.
struct GraphFacts {
  int select_op = 0;                        // index of the graph's SelectRows; ops.size(): none
  std::vector<const RopeSpec*> rope_specs;  // distinct, in order of first use
  std::vector<uint8_t> slot_is_late;        // [slots] written after the rows were selected only
  std::vector<int> embeds, kv_ops;          // indices of Embed; of KvWrite and Attention
  // The widest input of the products that read form q32, and q256: on all rows, on selected ones.
  struct Widest {
    int64_t all = 0, selected = 0;
  };
  Widest q32, q256;
};

// Throws Error(bad_use) naming the op whose shapes don't fit, or that comes too late.
GraphFacts facts_of(const Graph& graph);

struct PassPlan {
  struct Segment {
    const PassSegment* pass = nullptr;
    int64_t first_row = 0, rows = 0;
  };
  std::vector<Segment> segments;
  int64_t rows = 0;
  std::vector<int32_t> tokens;     // [rows]
  std::vector<int64_t> positions;  // [rows]
  std::vector<int64_t> selected;   // rows that want logits, ascending
  int select_op = 0;               // GraphFacts

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
PassPlan plan_pass(const Graph& graph, const GraphFacts& facts, const Pass& pass);

// What a pass reports of its fault flags, [n_ops + 1][rows of the pass]: one byte for each row of
// each op; those at n_ops are of the last look at the logits. At most one fault a row, the first.
std::vector<PassFault> faults_of(const PassPlan& plan, const uint8_t* flags, int n_ops);

// The byte that a plant flips a bit of, in a page or in a slot's rows; none where the pass has no
// such element.
struct PlantPlace {
  std::byte* page = nullptr;  // KvWrite; else the slot
  Slot slot = -1;
  int64_t byte = 0;
  int bit = 0;  // 0..7
};
std::optional<PlantPlace> place_of(const Graph& graph, const PassPlan& plan, const Plant& plant);

// Slots that op writes, in the order a Plant counts their elements; empty for KvWrite.
std::vector<Slot> output_slots(const OpArgs& args);

}  // namespace lockstep::kernels
