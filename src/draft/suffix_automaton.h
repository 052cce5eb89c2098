// The suffix automaton of a growing token sequence: every repeated piece of it, in linear space.
// Source: Blumer et al., "The smallest automaton recognizing the subwords of a text" (1985), online
// construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::draft {

class SuffixAutomaton {
 public:
  SuffixAutomaton();

  // Amortised constant time.
  void append(int32_t token);
  int64_t size() const { return size_; }
  void clear();

  // The longest suffix of the sequence that also stands earlier (the two may overlap).
  struct Repeat {
    int64_t length = 0;  // 0: none
    int64_t end = -1;    // index of the last token of an earlier occurrence, a late one as a rule
  };
  Repeat longest_repeat() const { return repeat_; }
  // The longest suffix of the sequence with `more` after it that stands in the sequence, or, with
  // `more` empty, longest_repeat(). None where finding it takes more than a bounded number of steps
  // for a token.
  Repeat repeat_after(std::span<const int32_t> more) const;

  // Edges looked for, added or copied, and suffix links followed, since the start.
  int64_t operations() const { return operations_; }

  int64_t states() const { return static_cast<int64_t>(states_.size()); }

 private:
  // A state stands for the substrings with one set of end positions; `length` is the longest's.
  struct State {
    int32_t length = 0;
    int32_t link = -1;    // the state of the longest suffix with more end positions
    int32_t latest = -1;  // an end position, the latest known
    int32_t first_edge = -1;
  };
  struct Edge {
    int32_t token;
    int32_t target;
    int32_t next;  // of the same state
  };

  int32_t add_state(int32_t length, int32_t latest);
  int32_t find_edge(int32_t state, int32_t token) const;  // index in edges_, or -1
  void add_edge(int32_t state, int32_t token, int32_t target);
  void grow_table();
  static uint64_t slot_hash(int32_t state, int32_t token);

  std::vector<State> states_;
  std::vector<Edge> edges_;
  // Open addressing over (state, token): a state near the root may have thousands of edges. `state`
  // -1 marks a free slot; entries are never removed.
  struct Slot {
    int32_t state = -1;
    int32_t edge = -1;
  };
  std::vector<Slot> table_;
  int32_t last_ = 0;
  int64_t size_ = 0;
  mutable int64_t operations_ = 0;  // of find_edge() too
  Repeat repeat_;
};

}  // namespace lockstep::draft
