// Keeps what the parser finishes, and at the end settles what only the whole log can say: draft
// lengths, the steps that follow from them, and which identities fail.
#pragma once

#include <string>
#include <vector>

#include "lab/log/accounting.h"
#include "lab/log/analysis.h"

namespace lockstep::lab::log {

class Collector {
 public:
  int64_t add_life(Life life);  // its index
  Life& life(int64_t index) { return analysis_.lives[static_cast<size_t>(index)]; }
  void add(Request request);
  void add(Interval interval);
  void contradiction(std::string id, int64_t line, int64_t request, std::string text);
  // Said once a server; again it is only counted.
  void notice(std::string_view id, int64_t line, std::string_view text);
  void add_file(FileFacts facts) { analysis_.files.push_back(std::move(facts)); }
  void count_without_timing() { ++analysis_.without_timing; }
  int64_t next_request() const { return analysis_.request_count; }

  Analysis finish();

 private:
  void settle_life(size_t index);
  void settle_so_far(size_t index);
  void settle(Request& request, int64_t index);
  void settle(Interval& interval);
  std::optional<int64_t> longest_draft(const Life& life) const;

  Analysis analysis_;
  std::vector<DraftLengths> lengths_;  // by life
  std::vector<int64_t> settled_at_;    // requests of a life when it was settled last
  std::vector<std::pair<int64_t, std::string>> noticed_;  // (life, id), so that each is said once
};

}  // namespace lockstep::lab::log
