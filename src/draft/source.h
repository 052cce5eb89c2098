// Where draft tokens come from. Whatever a source proposes, the output is the same (contract E1);
// a source only decides how fast it comes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sample/sampler.h"
#include "state/kv_cache.h"

namespace lockstep::draft {

// Of the lists beside the tokens each has one entry a token, or none at all.
struct Proposal {
  std::vector<int32_t> tokens = {};    // follow the history, and the draft before them, directly
  std::vector<float> confidence = {};  // where the source has one; not a number: not for this token
  std::vector<int32_t> match = {};     // tokens of the repeat that a lookup drafts from
  std::vector<uint8_t> part = {};      // index in Source::parts(); none: all from the first
  bool behind = false;  // a source still reads the history: this says nothing of what it can do

  // Keeps the first n tokens, and what is said of them.
  void cut(size_t n) {
    const auto shorten = [n](auto& list) {
      if (list.size() > n) list.resize(n);
    };
    shorten(tokens);
    shorten(confidence);
    shorten(match);
    shorten(part);
  }
};

class Source {
 public:
  virtual ~Source() = default;
  virtual std::string name() const = 0;  // "ngram", "suffix", "replay", "model"
  // The sources inside this one that draft, for statistics.
  virtual std::vector<std::string> parts() const { return {name()}; }
  // Up to n_max tokens that may follow `history` (prompt and accepted tokens; it grows between
  // calls, or is cut after truncate()) and then `draft`, tokens that another source expects there
  // and that may all turn out wrong: nothing of them is remembered. May return fewer, or none.
  virtual Proposal extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                          int n_max) = 0;
  Proposal propose(std::span<const int32_t> history, int n_max) {
    return extend(history, {}, n_max);
  }
  // The step's outcome: how many of the last proposal were accepted; history is the new one.
  virtual void observe(std::span<const int32_t> history, int accepted) = 0;
  // The history was replaced or cut; its first `common` tokens are as before.
  virtual void truncate(int64_t common) = 0;
  // The target's sampling parameters, before the first proposal and whenever they change.
  virtual void set_sampling(const sample::Parameters& parameters) { (void)parameters; }
  virtual bool synthetic() const { return false; }  // replay
  // Reads on in the history, up to its end, as far as it may at once: what a source does that has
  // to compute something of each token. False: it does not have to.
  virtual bool read(std::span<const int32_t> history) {
    (void)history;
    return false;
  }
  // Gives back the memory of what it remembers.
  virtual void release() {}
  // KV pages that it may yet need, for a history of so many tokens and the drafts after it; and
  // what it needs of a pool for each position of it, and beyond that for each history.
  virtual state::Claim claim(int64_t tokens) const {
    (void)tokens;
    return {};
  }
  virtual int64_t kv_bytes_per_position() const { return 0; }
  virtual int64_t kv_bytes_beyond() const { return 0; }
  // What went wrong in the arithmetic of a draft model, told once; "" where nothing did. Drafts end
  // there, the output does not change.
  virtual std::string take_fault() { return {}; }
  // Hash of the file the source reads (a draft model, a recording), for results; "" where none.
  virtual std::string file_sha256() const { return {}; }
};

}  // namespace lockstep::draft
