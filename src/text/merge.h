// Greedy pair merging, shared by BPE and SentencePiece: over and over the adjacent pair with the
// lowest priority number is merged, the leftmost of equals first, until no pair can be.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace lockstep::text {

struct PairMerge {
  static constexpr uint32_t kNever = 0xFFFFFFFF;
  uint32_t priority = kNever;  // lower merges first
  int32_t id = -1;             // what the pair becomes
};

// A run of bytes of the text that is being merged; id < 0: nothing known.
struct Symbol {
  uint32_t begin = 0, end = 0;
  int32_t id = -1;
  int32_t prev = -1, next = -1;  // indices; a merged-away symbol is no longer linked
  PairMerge with_next{};
};

// symbols: in order and unlinked on entry; on return the survivors are linked from symbols[0].
// look_up(left, right) says what the two become. heap is scratch space. O(n log n).
template <typename LookUp>
void merge_pairs(std::vector<Symbol>& symbols, std::vector<uint64_t>& heap, LookUp look_up) {
  if (symbols.empty()) return;
  heap.clear();
  const auto n = static_cast<int32_t>(symbols.size());
  // Priority above, index below: the order in which pairs merge is the order of these numbers.
  const auto key = [&](int32_t left) {
    return uint64_t{symbols[static_cast<size_t>(left)].with_next.priority} << 32 |
           static_cast<uint32_t>(left);
  };
  for (int32_t i = 0; i < n; ++i) {
    Symbol& symbol = symbols[static_cast<size_t>(i)];
    symbol.prev = i - 1;
    symbol.next = i + 1 < n ? i + 1 : -1;
    symbol.with_next = {};
    if (symbol.next < 0) continue;
    symbol.with_next = look_up(symbol, symbols[static_cast<size_t>(symbol.next)]);
    if (symbol.with_next.priority != PairMerge::kNever) heap.push_back(key(i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());

  const auto refresh = [&](int32_t left) {
    Symbol& symbol = symbols[static_cast<size_t>(left)];
    symbol.with_next = {};
    if (symbol.next < 0) return;
    symbol.with_next = look_up(symbol, symbols[static_cast<size_t>(symbol.next)]);
    if (symbol.with_next.priority == PairMerge::kNever) return;
    heap.push_back(key(left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    const uint64_t top = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    heap.pop_back();
    const auto left = static_cast<int32_t>(top & 0xFFFFFFFF);
    Symbol& symbol = symbols[static_cast<size_t>(left)];
    // An entry whose pair has changed since is out of date; what replaced it has its own entry.
    if (symbol.with_next.priority == PairMerge::kNever || key(left) != top) continue;
    Symbol& gone = symbols[static_cast<size_t>(symbol.next)];
    symbol.end = gone.end;
    symbol.id = symbol.with_next.id;
    symbol.next = gone.next;
    gone.with_next = {};
    if (symbol.next >= 0) symbols[static_cast<size_t>(symbol.next)].prev = left;
    refresh(left);
    if (symbol.prev >= 0) refresh(symbol.prev);
  }
}

}  // namespace lockstep::text
