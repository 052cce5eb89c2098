// Who is decoded when. One thread runs pass after pass for all sequences that have a slot; what a
// sequence writes does not depend on the others (decode/batch.h), only when.
//
// A sequence gets a slot when KV pages for its prompt and its token limit are free, so that no
// neighbour can cut its answer short; until then it waits, first come first served. What sequences
// remember stays in a tree of beginnings (state/prefix_tree.h) for those that begin alike.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decode/result.h"
#include "draft/source.h"
#include "kernels/backend.h"
#include "model/model.h"
#include "serve/error.h"
#include "serve/histogram.h"
#include "serve/prepare.h"
#include "serve/request.h"
#include "text/tokenizer.h"

namespace lockstep::serve {

// llama-server's figures of one generation so far.
struct Timings {
  int64_t cache_n = 0;   // prompt tokens taken over from an earlier request
  int64_t prompt_n = 0;  // prompt tokens computed
  double prompt_ms = 0;  // to the first token
  int64_t predicted_n = 0;
  int64_t first_n = 0;      // of these, tokens of the first step
  double predicted_ms = 0;  // from the first step to the last
  int64_t draft_n = 0, draft_n_accepted = 0;
};

// Of a step's tokens the first `accepted` were drafted; of a draft with more than that, the next
// one stands where a drafted token was wrong.
struct StepDraft {
  int64_t tokens = 0;
  int drafted = 0, accepted = 0;
};

struct TokenProbability {
  int32_t id = -1;
  double logprob = 0;
  std::vector<sample::TokenLogprob> top;
};

enum class StopKind : uint8_t { eos, limit, word };
const char* stop_kind_name(StopKind kind);  // "eos", "limit", "word"

// Something that happened to a sequence of a job.
struct Event {
  enum class Kind : uint8_t { progress, tokens, end, failed };
  Kind kind = Kind::tokens;
  int sequence = 0;  // prompt · n + choice
  int slot = -1;
  // tokens, end: since the last event; of a job that does not stream, everything in the end.
  std::string text = {};
  std::vector<int32_t> ids = {};
  std::vector<TokenProbability> probabilities = {};
  std::vector<StepDraft> steps = {};  // that ids came from
  Timings timings = {};
  int64_t prompt_tokens = 0;
  int64_t prompt_done = 0;  // progress: of the prompt's tokens
  double prompt_elapsed_ms = 0;
  // end:
  StopKind stop = StopKind::eos;
  std::string stopping_word = {};
  int64_t state_tokens = 0;  // that are remembered
  std::shared_ptr<const decode::Result> result = {};
  ApiError error = {};  // failed
  int64_t weight = 1;   // what it adds to Job::unsent: more where many probabilities are listed
};

// One request: its sequences, and where their events go.
struct Job {
  // What the sink's owner calls when an event is on its way; true: the scheduler should wake().
  bool sent(int64_t weight);

  uint64_t id = 0;  // as in the log
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();
  Request request;
  Prepared prepared;
  // Called by the scheduler's thread; must not block.
  std::function<void(Event)> sink;
  std::atomic<bool> cancelled{false};
  // Weight of the events handed to the sink and not yet on their way to the client. Beyond
  // kMostUnsent the job pauses: who reads slowly slows only itself.
  std::atomic<int64_t> unsent{0};

  int64_t sequences() const { return std::ssize(prepared.prompts) * request.n; }
};

inline constexpr int64_t kMostUnsent = 512;

inline bool Job::sent(int64_t weight) {
  const int64_t before = unsent.fetch_sub(weight);
  return before > kMostUnsent / 2 && before - weight <= kMostUnsent / 2;
}

struct SchedulerOptions {
  int parallel = 4;
  int64_t pool_positions = 0;  // of the KV pool, a multiple of 64: each of target and draft model
  int64_t context = 0;         // of one request, at most the pool
  int64_t chunk = 64;          // prompt rows of a pass
  int64_t queue = 64;          // requests that may wait beyond the slots
  double stall_seconds = 30;   // a client that has not read for so long is gone
  state::KvType k_type = state::KvType::f16, v_type = state::KvType::f16;
  // One source for each slot; null, or gives null: plain. A draft model's KV pages come from the
  // pool, where there is one already.
  std::function<std::shared_ptr<draft::Source>(std::shared_ptr<state::PagePool>)> make_source;
  decode::DepthPolicy depth;
  decode::Program engine;  // for results
};

struct SlotStatus {
  int id = 0;
  bool processing = false;
  uint64_t job = 0;
  int64_t prompt_tokens = 0, generated = 0, remaining = -1, state_tokens = 0;
  bool paused = false;
};

// Of finished sequences, but for what says otherwise.
struct Counters {
  struct Source {
    int64_t drafted = 0, accepted = 0;
  };
  int64_t prompt_tokens = 0, cached_tokens = 0;
  double prompt_seconds = 0;
  int64_t generated_tokens = 0;
  int64_t generated_after_first = 0;  // those that generated_seconds is the time of
  double generated_seconds = 0;
  int64_t passes = 0, busy_slot_passes = 0;  // of all, finished or not
  int64_t longest = 0;                       // tokens that a slot remembered at most
  int64_t drafted = 0, accepted = 0, drafts = 0;
  std::vector<int64_t> accepted_at;
  std::map<std::string, Source> sources;  // who drafted
  // Of all sequences: from a request's arrival to a sequence's first tokens, and from there from
  // token to token; a step that brings several shares its time among them.
  Histogram first_token, between_tokens;
  int64_t finished = 0, cancelled = 0, failed = 0;
};

struct Status {
  std::vector<SlotStatus> slots;
  int64_t waiting = 0;  // sequences
  int64_t pool_positions = 0, reserved_positions = 0, kept_positions = 0;
  int64_t kv_bytes = 0;  // in use
  Counters counters;
};

class Scheduler {
 public:
  // Throws as Session does. The thread starts at once.
  Scheduler(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
            text::Tokenizer tokenizer, SchedulerOptions options);
  ~Scheduler();  // as stop(0)
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // A place in the queue for a request that is about to be read, kept until the request has been
  // answered and the result is dropped; null: full. Any thread.
  std::shared_ptr<void> enter();

  // Takes every sequence of the job. Throws RequestError for a prompt that does not fit the context
  // or a slot that is not there. Every sequence ends with one event of kind end or failed, unless
  // the job is cancelled. Any thread.
  void submit(std::shared_ptr<Job> job);
  // Ends the job's sequences before the next pass. Any thread.
  void cancel(Job& job);
  // The client has read: unsent is lower. Any thread.
  void wake();

  // No further job starts: those that wait fail with 503, those that run may go on for so long.
  // Returns when none is left.
  void stop(double grace_seconds);

  Status status() const;
  const SchedulerOptions& options() const;
  const decode::SessionOptions& session_options() const;  // of a slot

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::serve
