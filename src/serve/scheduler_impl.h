// What a scheduler is made of: for the loop (scheduler.cc), who is let in (admission.cc), and what
// is told to clients (answers.cc).
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "decode/batch.h"
#include "serve/scheduler.h"
#include "state/prefix_tree.h"
#include "text/stop_strings.h"
#include "text/utf8_stream.h"

namespace lockstep::serve {

using Clock = std::chrono::steady_clock;

inline double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Keeps what the client asked to know of each committed row.
class Probabilities final : public decode::Inspector {
 public:
  explicit Probabilities(int top) : top_(top) {}
  void on_logits(int64_t, std::span<const float> row) override {
    rows_.emplace_back(row.begin(), row.end());
  }
  void on_pass(int64_t, const state::KvCache&) override {}

  // Of the rows since the last call, which chose these tokens.
  void take(std::span<const int32_t> tokens, std::vector<TokenProbability>& into) {
    for (size_t i = 0; i < tokens.size() && i < rows_.size(); ++i) {
      into.push_back({tokens[i], sample::logprob_of(rows_[i], tokens[i]),
                      sample::top_logprobs(rows_[i], top_)});
    }
    rows_.clear();
  }

 private:
  int top_;
  std::vector<std::vector<float>> rows_;
};

// One prompt, one choice.
struct Sequence {
  std::shared_ptr<Job> job;
  int index = 0;

  const std::vector<int32_t>& prompt() const {
    return job->prepared.prompts[static_cast<size_t>(index / job->request.n)];
  }
};

struct Scheduler::Impl {
  struct Slot {
    std::unique_ptr<decode::Session> session;
    std::optional<Sequence> sequence;  // none: idle
    uint64_t used = 0;                 // order of admission
    Clock::time_point admitted;
    std::optional<Clock::time_point> paused_since;
    std::optional<Clock::time_point> last_tokens;
    // Of the running sequence:
    text::Utf8Stream characters;
    text::StopStrings stops;
    std::unique_ptr<Probabilities> probabilities;
    Event next;               // what has not been sent yet
    int64_t generated = 0;    // ids, those that a stop string cut off not counted
    int64_t prompt_sent = 0;  // progress
  };

  Impl(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
       text::Tokenizer given_tokenizer, SchedulerOptions given);

  void run();
  void collect();
  void drop_cancelled();
  void admit();
  bool place(Sequence& sequence);
  Slot* choose(const Sequence& sequence);
  std::optional<decode::Reuse> room_for(const Slot& slot, const Sequence& sequence) const;
  void start(Slot& slot, Sequence sequence, decode::Reuse reuse);
  void pass();
  void handle(Slot& slot, const decode::BatchStep& step);
  void observe(Slot& slot, int64_t tokens);
  Event make_event(Slot& slot, Event::Kind kind);
  static void deliver(Job& job, Event event);
  void finish(Slot& slot);
  void release(Slot& slot);
  void fail(const Sequence& sequence, const ApiError& error);
  void publish();
  int64_t reserved_bytes() const;
  Timings timings(const Slot& slot) const;

  SchedulerOptions options;
  text::Tokenizer tokenizer;
  decode::SessionOptions session_options;
  std::shared_ptr<state::PagePool> pool;
  int64_t bytes_per_position = 0;  // of the target's KV and the draft models'
  decode::Batch batch;
  std::vector<Slot> slots;
  std::deque<Sequence> waiting;
  uint64_t admissions = 0;
  Counters counters;
  bool stopping_seen = false;

  mutable std::mutex mutex;  // of what follows
  std::condition_variable changed;
  std::vector<std::shared_ptr<Job>> inbox;
  bool woken = false;
  bool stopping = false;
  Clock::time_point deadline;
  Status published;
  // Requests that have entered.
  std::shared_ptr<std::atomic<int64_t>> places = std::make_shared<std::atomic<int64_t>>(0);

  std::thread thread;
};

}  // namespace lockstep::serve
