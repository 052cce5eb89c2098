// What a session is made of: for session.cc, and for passes that sessions share (batch.cc).
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "decode/session.h"
#include "draft/auto_depth.h"
#include "draft/lane.h"

namespace lockstep::decode {

struct Session::Impl {
  Impl(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
       SessionOptions given);

  // What a session brings to a pass: tokens at positions kv.size() and on.
  struct Work {
    std::vector<int32_t> rows;
    int64_t first_logits_row = 0;
    int64_t waiting = 0;  // rows of the history; those after them are drafted
    draft::Proposal proposal;
    bool samples = false;  // the rows reach the history's end, so that tokens are chosen
  };
  // The work of the next pass, no draft in it yet; none, where the session is finished, or has more
  // than one row waiting and may run none. prompt_rows: the most rows of a history that has more
  // than one waiting.
  std::optional<Work> plan(int64_t prompt_rows);
  Work chunk_of(int64_t n) const;
  // What follows from the pass. cost_ms: what it cost by the session's clock; none where others
  // were in it.
  Step settle(const Work& work, const draft::Lane::Outcome& outcome, double pass_ms,
              std::optional<double> cost_ms);
  Step run_alone(const Work& work);  // in a pass of its own

  int64_t size() const { return static_cast<int64_t>(history.size()); }
  int64_t pending() const { return size() - lane.kv().size(); }
  int64_t generated() const { return size() - prompt_tokens; }

  void adopt_source(std::shared_ptr<draft::Source> source, DepthPolicy depth);
  void check_history(std::span<const int32_t> given) const;
  int64_t replace_history(std::span<const int32_t> given, int64_t keep_at_most);
  // From the tree of beginnings, to the tree (session_memory.cc).
  int64_t take_over(std::span<const int32_t> given, int64_t kept, Reuse how);
  void take_over_late();
  void keep_prefix();
  int64_t last_position(int64_t prompt, int64_t max) const;
  int64_t most_rows() const { return options.chunk + options.depth.n_max; }  // of a pass

  void start(int64_t cached, std::chrono::steady_clock::time_point now);
  draft::Lane::Outcome run(std::span<const int32_t> tokens, int64_t first_logits_row,
                           int64_t greatest_wanted);
  bool looks_at_rows() const { return inspector != nullptr && inspector->wants_rows(); }
  // What choices need of a row (Lane::run).
  int64_t greatest_wanted() const {
    return looks_at_rows() ? 0 : sampler.candidates_needed().value_or(0);
  }
  void keep_one_pending();
  double now_ms() const;
  int draft_room() const;  // tokens that may be drafted in this step
  void draft_alone(Work& work);
  // The source's draft of up to n tokens, cut where it can't be verified.
  draft::Proposal ask_source(int n);
  void add_draft(Work& work, draft::Proposal proposal) const;
  void read_along();  // the source reads what of a prompt is done
  // Of a row of the last pass, whatever it left of it.
  sample::Choice choose(int64_t row, std::span<const int32_t> before, int64_t position);
  void accept(std::span<const int32_t> drafted, const draft::Lane::Outcome& outcome, Step& step);
  void count(const Step& step, std::span<const uint8_t> parts);
  Finish limit_reached() const;
  void set_fault(std::string where);

  SessionOptions options;
  draft::Lane lane;
  sample::Sampler sampler;
  std::optional<draft::AutoDepth> control;  // where the depth is automatic

  // State holds the rows of history[0, kv.size()); kv.size() < history.size() between calls.
  std::vector<int32_t> history;
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  Reuse reuse = Reuse::tokens;
  int64_t pages_kept = 0;           // whole pages that the tree has been told of
  Finish finish = Finish::stopped;  // nothing begun
  std::string fault;
  DraftCounts counts;
  Phases phases;
  std::chrono::steady_clock::time_point begun, first_token, last_token;
  int64_t first_tokens = 0;
  Inspector* inspector = nullptr;
  kernels::Plant* plant = nullptr;
};

}  // namespace lockstep::decode
