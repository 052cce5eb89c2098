#include "draft/suffix_automaton.h"

#include <cstddef>

using std::size_t;

namespace lockstep::draft {
namespace {

// Suffixes whose latest position is brought up to date by an append. Their chain is seldom longer
// than ten in text, but as long as the text in "aaaa…"; the ones further up keep an older position,
// which is an occurrence all the same.
constexpr int kLatestSteps = 64;
// Links that repeat_after() follows for a token. An append may follow as many as the text is long,
// for the next one then has few; what is only supposed pays that again each time.
constexpr int kLinkSteps = 64;

}  // namespace

SuffixAutomaton::SuffixAutomaton() {
  clear();
}

void SuffixAutomaton::clear() {
  states_.assign(1, State{});
  edges_.clear();
  table_.assign(64, Slot{});
  last_ = 0;
  size_ = 0;
  repeat_ = {};
}

uint64_t SuffixAutomaton::slot_hash(int32_t state, int32_t token) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(state)} << 32 | static_cast<uint32_t>(token);
  const uint64_t h = key * 0x9E3779B97F4A7C15u;
  return h ^ h >> 32;
}

int32_t SuffixAutomaton::find_edge(int32_t state, int32_t token) const {
  const size_t mask = table_.size() - 1;
  ++operations_;
  for (size_t i = slot_hash(state, token) & mask;; i = (i + 1) & mask) {
    const Slot& slot = table_[i];
    if (slot.state < 0) return -1;
    if (slot.state == state && edges_[static_cast<size_t>(slot.edge)].token == token) {
      return slot.edge;
    }
  }
}

void SuffixAutomaton::grow_table() {
  std::vector<Slot> old(2 * table_.size());
  old.swap(table_);
  const size_t mask = table_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.state < 0) continue;
    size_t i = slot_hash(slot.state, edges_[static_cast<size_t>(slot.edge)].token) & mask;
    while (table_[i].state >= 0) i = (i + 1) & mask;
    table_[i] = slot;
  }
}

void SuffixAutomaton::add_edge(int32_t state, int32_t token, int32_t target) {
  if (2 * (edges_.size() + 1) > table_.size()) grow_table();
  ++operations_;
  const auto edge = static_cast<int32_t>(edges_.size());
  State& s = states_[static_cast<size_t>(state)];
  edges_.push_back({token, target, s.first_edge});
  s.first_edge = edge;
  const size_t mask = table_.size() - 1;
  size_t i = slot_hash(state, token) & mask;
  while (table_[i].state >= 0) i = (i + 1) & mask;
  table_[i] = {state, edge};
}

int32_t SuffixAutomaton::add_state(int32_t length, int32_t latest) {
  states_.push_back({.length = length, .latest = latest});
  return static_cast<int32_t>(states_.size() - 1);
}

void SuffixAutomaton::append(int32_t token) {
  const auto state = [&](int32_t index) -> State& { return states_[static_cast<size_t>(index)]; };
  const auto position = static_cast<int32_t>(size_++);
  const int32_t current = add_state(position + 1, position);
  int32_t p = last_;
  int32_t edge = -1;
  while (p >= 0 && (edge = find_edge(p, token)) < 0) {
    add_edge(p, token, current);
    p = state(p).link;
  }
  if (p < 0) {
    state(current).link = 0;
  } else {
    const int32_t q = edges_[static_cast<size_t>(edge)].target;
    if (state(q).length == state(p).length + 1) {
      state(current).link = q;
    } else {
      // q's longest string does not end here, its suffix of this length does: that one gets a state
      // of its own.
      const int32_t copy = add_state(state(p).length + 1, state(q).latest);
      for (int32_t e = state(q).first_edge; e >= 0; e = edges_[static_cast<size_t>(e)].next) {
        const Edge copied = edges_[static_cast<size_t>(e)];
        add_edge(copy, copied.token, copied.target);
      }
      state(copy).link = state(q).link;
      state(q).link = copy;
      state(current).link = copy;
      while (p >= 0 && (edge = find_edge(p, token)) >= 0 &&
             edges_[static_cast<size_t>(edge)].target == q) {
        edges_[static_cast<size_t>(edge)].target = copy;
        p = state(p).link;
      }
    }
  }
  last_ = current;
  const State& repeated = state(state(current).link);
  repeat_ = {repeated.length, repeated.length > 0 ? repeated.latest : -1};
  int32_t s = state(current).link;
  for (int step = 0; s > 0 && step < kLatestSteps; ++step, s = state(s).link) {
    state(s).latest = position;
    ++operations_;
  }
}

SuffixAutomaton::Repeat SuffixAutomaton::repeat_after(std::span<const int32_t> more) const {
  const auto state = [&](int32_t index) -> const State& {
    return states_[static_cast<size_t>(index)];
  };
  if (more.empty()) return repeat_;
  int32_t s = last_;
  int64_t length = size_;
  for (const int32_t token : more) {
    int32_t edge = -1;
    for (int step = 0; (edge = find_edge(s, token)) < 0 && s > 0; ++step) {
      if (step == kLinkSteps) return {};
      s = state(s).link;
      length = state(s).length;
    }
    if (edge < 0) continue;  // at the root, and still there: a token that the sequence has not
    s = edges_[static_cast<size_t>(edge)].target;
    ++length;
  }
  return {length, length > 0 ? state(s).latest : -1};
}

}  // namespace lockstep::draft
