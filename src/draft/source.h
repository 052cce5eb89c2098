// Where draft tokens come from. Whatever a source proposes, the output is the same (contract E1);
// a source only decides how fast it comes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "sample/sampler.h"

namespace lockstep::draft {

struct Proposal {
  std::vector<int32_t> tokens;    // follow the history directly
  std::vector<float> confidence;  // one per token where the source has one, else empty
};

class Source {
 public:
  virtual ~Source() = default;
  virtual std::string name() const = 0;  // "ngram", "suffix", "replay", "model"
  // Up to n_max tokens that may follow `history` (prompt and accepted tokens; it grows between
  // calls, or is cut after truncate()). May return fewer, or none.
  virtual Proposal propose(std::span<const int32_t> history, int n_max) = 0;
  // The step's outcome: how many of the last proposal were accepted; history is the new one.
  virtual void observe(std::span<const int32_t> history, int accepted) = 0;
  // The history was replaced or cut; its first `common` tokens are as before.
  virtual void truncate(int64_t common) = 0;
  // The target's sampling parameters, before the first proposal and whenever they change.
  virtual void set_sampling(const sample::Parameters& parameters) { (void)parameters; }
  virtual bool synthetic() const { return false; }  // replay
  // What went wrong in the arithmetic of a draft model, told once; "" where nothing did. Drafts end
  // there, the output does not change.
  virtual std::string take_fault() { return {}; }
  // Hash of the file the source reads (a draft model, a recording), for results; "" where none.
  virtual std::string file_sha256() const { return {}; }
};

}  // namespace lockstep::draft
