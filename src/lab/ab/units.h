// From rows to units of inference.
#pragma once

#include <string>
#include <vector>

#include "lab/ab/ab.h"
#include "lab/runs/runs.h"

namespace lockstep::lab::ab {

struct Paired {
  std::vector<Unit> units;      // in the order in which A's file has the blocks
  int64_t unpaired_blocks = 0;  // of one arm alone
  int64_t merged_blocks = 0;    // blocks that share a server with an earlier one
  std::string unequal_prompts;  // the first block whose arms have other prompts, or ""
};

// Per prompt and block: the median over a block's starts of log rate, B less A; per block the
// median over classes of medians over prompts; per unit (blocks joined by a common server) their
// mean.
Paired pair_blocks(const runs::Runs& a, const runs::Runs& b);

}  // namespace lockstep::lab::ab
