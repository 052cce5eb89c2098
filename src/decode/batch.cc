#include "decode/batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "base/error.h"
#include "decode/session_impl.h"

namespace lockstep::decode {
namespace {

using Clock = std::chrono::steady_clock;

// Where the depth is automatic and sessions share a pass, their rows together stay as few as a
// single session's would: what a row more costs was learned for those.
int most_drafted(int64_t sessions) {
  if (sessions <= 1) return draft::AutoDepth::kMaxDepth;
  const int64_t rows = (1 + draft::AutoDepth::kMaxDepth) / sessions;
  return static_cast<int>(std::max<int64_t>(0, rows - 1));
}

}  // namespace

Batch::Batch(int64_t prompt_rows) : prompt_rows_(prompt_rows) {
  if (prompt_rows < 1) {
    throw Error(ExitCode::bad_use,
                fmt::format("passes of {} prompt rows; there must be at least 1", prompt_rows));
  }
}

std::vector<BatchStep> Batch::step(std::span<Session* const> sessions) {
  std::vector<BatchStep> results(sessions.size());
  int64_t unfinished = 0;
  for (size_t i = 0; i < sessions.size(); ++i) {
    if (std::count(sessions.begin(), sessions.end(), sessions[i]) != 1) {
      throw std::logic_error("Batch::step: a session is there twice");
    }
    if (sessions[i]->impl_->plant != nullptr) {
      throw std::logic_error("Batch::step: a plant is for a session alone");
    }
    if (!sessions[i]->finished()) ++unfinished;
  }

  std::vector<size_t> takes_part;  // indices of sessions
  std::vector<Session::Impl::Work> works;
  int64_t prompt_rows = prompt_rows_;
  for (size_t i = 0; i < sessions.size(); ++i) {
    Session::Impl& s = *sessions[i]->impl_;
    auto work = s.plan(std::min(s.options.chunk, prompt_rows), most_drafted(unfinished));
    if (!work) continue;
    if (work->waiting > 1 || !work->samples) prompt_rows -= work->waiting;
    takes_part.push_back(i);
    works.push_back(std::move(*work));
  }

  std::vector<draft::Lane::Part> parts;
  std::vector<Step> steps;
  for (size_t k = 0; k < works.size(); ++k) {
    parts.push_back(
        {&sessions[takes_part[k]]->impl_->lane, works[k].rows, works[k].first_logits_row});
  }
  if (works.size() == 1) {
    steps.push_back(sessions[takes_part[0]]->impl_->run_alone(works[0]));
  } else {
    const Clock::time_point start = Clock::now();
    const std::vector<draft::Lane::Outcome> outcomes = draft::Lane::run_together(parts, logits_);
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    for (size_t k = 0; k < works.size(); ++k) {
      Session::Impl& s = *sessions[takes_part[k]]->impl_;
      steps.push_back(s.settle(works[k], outcomes[k], ms, std::nullopt));
    }
  }
  for (size_t k = 0; k < works.size(); ++k) {
    results[takes_part[k]] = {std::move(steps[k]), std::ssize(works[k].rows)};
  }
  for (size_t i = 0; i < sessions.size(); ++i) results[i].step.finish = sessions[i]->finish();
  return results;
}

}  // namespace lockstep::decode
