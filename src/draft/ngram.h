// Prompt lookup over this request: the last n tokens, found where they stood before, are followed
// by what followed them there. Source: llama.cpp's ngram-simple; Saxena, "Prompt Lookup Decoding"
// (2023). The n-grams are kept in a hash index that grows with the history, so that a proposal
// costs one look-up for each length tried, whatever the history's length.
#pragma once

#include <unordered_map>

#include "draft/source.h"

namespace lockstep::draft {

struct NgramOptions {
  int longest = 3;   // n tried first
  int shortest = 2;  // and last, where no longer one is found
};

inline constexpr int kMatchCounted = 32;

class NgramSource final : public Source {
 public:
  // Throws Error(bad_use) unless 1 <= shortest <= longest <= 64.
  explicit NgramSource(NgramOptions options = {});

  std::string name() const override { return "ngram"; }
  // The tokens after the latest earlier occurrence of the history's last n tokens, for the longest
  // n that has one. Where that occurrence reaches the history's end, the draft goes on with its own
  // first tokens: a repetition is continued. match: how far back the two agree, up to
  // kMatchCounted.
  Proposal extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                  int n_max) override;
  void observe(std::span<const int32_t>, int) override {}
  void truncate(int64_t common) override;

  // Tokens hashed or compared since the start: what its steps cost, whatever the machine.
  int64_t operations() const { return operations_; }

 private:
  // Of one length n: the latest end (index of its last token) of each n-gram that ends before
  // `indexed`, and for every end the one that it displaced, so that a cut can be undone step by
  // step.
  struct Index {
    int n;
    std::unordered_map<uint64_t, int32_t> latest;
    std::vector<int32_t> displaced;
  };
  uint64_t hash(int64_t end, int n);
  int32_t match_length(int64_t end, int64_t last);
  void extend_index(Index& index, int64_t ends);
  void shrink(Index& index, int64_t ends);

  std::vector<int32_t> tokens_;
  std::vector<Index> indexes_;  // longest first
  int64_t operations_ = 0;
};

}  // namespace lockstep::draft
