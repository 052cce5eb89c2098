// Several sessions in one pass: each one's tokens and logits are those it would have alone,
// whatever the others are and whenever they come and go (contract E1).
//
//   session.open(prompt);  …  Batch batch;
//   while (…) { const std::vector<BatchStep> steps = batch.step(sessions); … }
#pragma once

#include <span>
#include <vector>

#include "decode/session.h"
#include "draft/shared_depth.h"
#include "kernels/logits_buffer.h"

namespace lockstep::decode {

struct BatchStep {
  Step step;         // tokens only where the session's rows reached the end of its history
  int64_t rows = 0;  // of this session in the pass; 0: it was finished, or its prompt waits
};

class Batch {
 public:
  // prompt_rows: prompt rows of a pass at most, those of all sessions together; so much can a long
  // prompt delay the others. A session's own chunk bounds its part. Throws Error(bad_use) below 1.
  explicit Batch(int64_t prompt_rows = 64);

  // One pass for the sessions. Where the depth of drafts is automatic, it is what is best for all
  // of them together. The sessions join and leave between calls as the caller likes. Rows of
  // prompts are given to the first sessions first; every session whose prompt is done takes part.
  // The result has an entry for each session, in order. Throws std::logic_error where a session is
  // there twice or belongs to another model or backend, Error(resource) when KV pages are short:
  // then no session has changed, but for what its draft source may have read.
  std::vector<BatchStep> step(std::span<Session* const> sessions);

 private:
  struct Turn;
  double propose(std::span<Turn> turns);

  int64_t prompt_rows_;
  kernels::LogitsBuffer logits_;
  draft::SharedDepth depth_;
};

}  // namespace lockstep::decode
