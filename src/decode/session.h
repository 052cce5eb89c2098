// One conversation with a model: plain or speculative decoding, same bits (contract E1).
//
//   Session session(model, backend, options);
//   session.begin(prompt_ids);
//   while (!session.finished()) for (int32_t id : session.step().tokens) …
//
// The state always lacks the rows of the history's end: at least the last token's, which is run
// when the next one is wanted. The last chunk of a prompt waits likewise, so that it shares a pass
// with the first draft.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "draft/source.h"
#include "kernels/backend.h"
#include "model/model.h"
#include "sample/sampler.h"
#include "state/kv_cache.h"
#include "state/prefix_tree.h"

namespace lockstep::decode {

struct DepthPolicy {       // as llama.cpp's --spec-draft-* are known
  int n_max = 0;           // tokens asked of the source; 0: plain decoding
  int n_min = 0;           // fewer than this: nothing is drafted in that step
  float p_min = 0.0f;      // a draft ends before the first token with less confidence
  bool automatic = false;  // up to n_max, as many as draft::AutoDepth finds best
};

struct SessionOptions {
  int64_t context = 0;  // 0: the model's training context
  state::KvType k_type = state::KvType::f16;
  state::KvType v_type = state::KvType::f16;
  int64_t chunk = 64;  // prompt rows in a pass
  sample::Parameters sampling;
  std::shared_ptr<draft::Source> source;  // null: plain
  DepthPolicy depth;
  std::function<double()> clock_ms;     // what automatic depth goes by; null: a steady clock
  int64_t max_tokens = -1;              // -1: to the context's end
  std::function<bool(int32_t)> is_end;  // end-of-generation ids; null: none
  int64_t kv_max_bytes = 0;             // 0: no limit
  // Where the KV pages come from, shared with other sessions; null: a pool of its own, within
  // kv_max_bytes.
  std::shared_ptr<state::PagePool> kv_pool;
  // Beginnings that sessions over this model and pool share; null: each has its own state alone.
  std::shared_ptr<state::PrefixTree> prefixes;
};

// What a session may take over from the tree of beginnings. Whole pages are shared as they are; to
// go on in the middle of one takes a copy of it.
enum class Reuse : uint8_t { none, whole_pages, tokens };

enum class Finish : uint8_t { none, end_token, max_tokens, context_full, fault, stopped };
const char* finish_name(
    Finish finish);  // "stop", "length", "context_full", "fault", "cancelled", ""

// Milliseconds. prompt: passes of more than the one pending row, drafts riding in them included;
// verify: all other passes; emit: what the caller reports. A pass shared with other sessions counts
// whole for each of them.
struct Phases {
  double prompt = 0, draft = 0, verify = 0, sample = 0, commit = 0, emit = 0;
};

struct DraftCounts {
  struct Part {
    std::string source;
    std::vector<int64_t> proposed_at, accepted_at;  // per position of a draft
  };
  std::string source;                             // "" for plain
  int64_t steps = 0, drafted = 0, accepted = 0;   // steps: with or without a draft
  std::vector<int64_t> proposed_at, accepted_at;  // per position of a draft
  std::vector<int64_t> depths;                    // steps with so many tokens drafted
  std::vector<Part> parts;                        // the same by who drafted, as Source::parts()
};

// Milliseconds from begin() on, of the tokens committed since.
struct Timing {
  double ttft_ms = 0;        // to the first token
  double decode_ms = 0;      // from there to the last
  double wall_ms = 0;        // to the last
  int64_t first_tokens = 0;  // tokens of the first step: with a draft there may be several at once
};

struct Step {
  std::vector<int32_t> tokens;  // committed by this step: accepted drafts, then one more
  int drafted = 0, accepted = 0;
  Finish finish = Finish::none;
};

// Looks at every committed logits row and at the state after each pass; for `prove` and `eval`.
class Inspector {
 public:
  virtual ~Inspector() = default;
  // position = index of the token that this row chooses.
  virtual void on_logits(int64_t position, std::span<const float> row) = 0;
  virtual void on_pass(int64_t rows, const state::KvCache& kv) = 0;  // after commit
  // False: on_logits is not called, and the rows may stay where they were computed.
  virtual bool wants_rows() const { return true; }
};

class Session {
 public:
  // Throws Error(bad_use) for options out of range (sampling, context, chunk).
  Session(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
          SessionOptions options);
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  // Sets the whole token history; state that still holds is kept (longest common prefix that every
  // state kind can return to), the rest is computed in chunks, but for a last chunk that waits for
  // step(). Throws Error(bad_use) when the history is empty, holds an id outside the vocabulary, or
  // does not fit the context: nothing has changed then. Error(resource) when the KV limit would be
  // passed: what was computed stays.
  // progress(done, total) of the history's tokens may be null; false cancels (Finish::stopped).
  void begin(std::span<const int32_t> history,
             const std::function<bool(int64_t done, int64_t total)>& progress = {});

  // begin() without its passes: the history is computed by the steps that follow, or by passes
  // shared with other sessions (batch.h).
  void open(std::span<const int32_t> history);

  // Nothing, once finished().
  Step step();
  bool finished() const;
  Finish finish() const;
  std::string fault() const;  // which op, layer and position, when finish() is fault
  void stop();                // ends the generation (a stop string was found)

  std::span<const int32_t> history() const;  // prompt and committed tokens
  std::span<const int32_t> generated() const;
  int64_t prompt_tokens() const;
  int64_t cached_tokens() const;  // of the prompt, taken over from before
  int64_t generated_tokens() const;
  const DraftCounts& draft_counts() const;
  const Phases& phases() const;
  Timing timing() const;
  void add_emit_ms(double milliseconds);
  const state::KvCache& kv() const;
  const model::Model& model() const;
  const kernels::Backend& backend() const;
  const SessionOptions& options() const;  // as they are in force

  // Between generations: other sampling, source, depth, limits; state is kept.
  void set_sampling(const sample::Parameters& parameters);
  void set_source(std::shared_ptr<draft::Source> source, DepthPolicy depth);
  void set_clock(std::function<double()> clock_ms);  // as SessionOptions::clock_ms
  void set_max_tokens(int64_t max_tokens);
  void set_inspector(Inspector* inspector);
  void set_chunk(int64_t rows);
  // Negative control: the plant is given to every pass until it is applied.
  void set_plant(kernels::Plant* plant);

  // Cuts the history to its first `position` tokens (0 <= position <= its length) and goes on from
  // there, by step() or begin().
  void truncate(int64_t position);
  // Of the tree: what the next begin() or open() may take over. With none nothing is shared while
  // the session runs, either. (tokens, until it is set)
  void set_reuse(Reuse reuse);
  // Forgets the history and gives back its memory; the tree keeps the state for those who begin
  // alike.
  void release();
  // KV pages that it may yet need, its source's included, to the end of what was begun.
  state::Claim claim() const;
  // Bytes that an open() of a released session may need, beyond what other sessions hold already.
  int64_t bytes_to_open(std::span<const int32_t> history, int64_t max_tokens, Reuse reuse) const;

  // The state between two steps. restore() takes the history that the state belongs to; it may be
  // longer than when the snapshot was taken. Throws Error(bad_use) where it is shorter than the
  // state, or as begin().
  std::shared_ptr<const state::KvCache::Snapshot> snapshot() const;
  void restore(const std::shared_ptr<const state::KvCache::Snapshot>& snapshot,
               std::span<const int32_t> history);

  // Runs a history in chunks and shows the logits rows that choose positions first_position (at
  // least 1) to history.size(), without sampling; afterwards the session is finished (stopped, or
  // fault, where the rows end). Throws as begin().
  void evaluate(std::span<const int32_t> history,
                const std::function<void(int64_t position, std::span<const float> row)>& on_row,
                int64_t first_position = 1);

 private:
  friend class Batch;
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::decode
