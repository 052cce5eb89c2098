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

}  // namespace

Batch::Batch(int64_t prompt_rows) : prompt_rows_(prompt_rows) {
  if (prompt_rows < 1) {
    throw Error(ExitCode::bad_use,
                fmt::format("passes of {} prompt rows; there must be at least 1", prompt_rows));
  }
}

// What a session brings to the pass.
struct Batch::Turn {
  size_t index;  // of the session
  Session::Impl* session;
  Session::Impl::Work work;
};

// Drafts for those that come to the end of their histories; those with automatic depth share the
// rows of the pass. Returns the milliseconds that their sources took.
double Batch::propose(std::span<Turn> turns) {
  std::vector<Turn*> shares;
  std::vector<draft::AutoDepth::Prospect> prospects;
  int plain_rows = 0;
  for (Turn& turn : turns) {
    Session::Impl& s = *turn.session;
    if (!turn.work.samples) {
      s.read_along();
    } else if (s.control) {
      shares.push_back(&turn);
      prospects.push_back(s.control->begin_shared(s.draft_room()));
      ++plain_rows;
    } else {
      s.draft_alone(turn.work);
      plain_rows += static_cast<int>(1 + turn.work.proposal.tokens.size());
    }
  }
  if (shares.empty()) return 0;
  const std::vector<int> asked = depth_.ask(prospects, plain_rows);
  std::vector<draft::Proposal> proposals(shares.size());
  std::vector<std::vector<double>> right(shares.size());
  const double start = shares[0]->session->now_ms();
  for (size_t i = 0; i < shares.size(); ++i) {
    Session::Impl& s = *shares[i]->session;
    if (asked[i] < 1 || asked[i] < s.options.depth.n_min) continue;
    proposals[i] = s.ask_source(asked[i]);
    if (!proposals[i].behind || !proposals[i].tokens.empty()) {
      right[i] = s.control->follow_shared(proposals[i], asked[i]);
    }
  }
  const double ms = shares[0]->session->now_ms() - start;
  const std::vector<int> depths = depth_.choose(right, plain_rows);
  for (size_t i = 0; i < shares.size(); ++i) {
    proposals[i].cut(static_cast<size_t>(depths[i]));
    shares[i]->session->add_draft(shares[i]->work, std::move(proposals[i]));
  }
  return ms;
}

std::vector<BatchStep> Batch::step(std::span<Session* const> sessions) {
  std::vector<BatchStep> results(sessions.size());
  for (Session* const session : sessions) {
    if (std::count(sessions.begin(), sessions.end(), session) != 1) {
      throw std::logic_error("Batch::step: a session is there twice");
    }
    if (session->impl_->plant != nullptr) {
      throw std::logic_error("Batch::step: a plant is for a session alone");
    }
  }

  std::vector<Turn> turns;
  int64_t prompt_rows = prompt_rows_;
  bool prompts = false;
  for (size_t i = 0; i < sessions.size(); ++i) {
    Session::Impl& s = *sessions[i]->impl_;
    auto work = s.plan(std::min(s.options.chunk, prompt_rows));
    if (!work) continue;
    if (work->waiting > 1 || !work->samples) {
      prompt_rows -= work->waiting;
      prompts = true;
    }
    turns.push_back({i, &s, std::move(*work)});
  }

  if (turns.size() == 1 && turns[0].work.samples) {
    // Alone, it knows best itself.
    Turn& turn = turns[0];
    turn.session->draft_alone(turn.work);
    results[turn.index] = {turn.session->run_alone(turn.work), std::ssize(turn.work.rows)};
  } else if (!turns.empty()) {
    const double draft_ms = propose(turns);
    std::vector<draft::Lane::Part> parts;
    for (const Turn& turn : turns) {
      parts.push_back({&turn.session->lane, turn.work.rows, turn.work.first_logits_row,
                       turn.session->greatest_wanted()});
    }
    const double start_ms = turns[0].session->now_ms();
    const Clock::time_point start = Clock::now();
    const std::vector<draft::Lane::Outcome> outcomes = draft::Lane::run_together(parts, logits_);
    const double pass_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
    const double cost_ms = turns[0].session->now_ms() - start_ms;
    int rows = 0, drafted = 0;
    int64_t tokens = 0;
    for (size_t k = 0; k < turns.size(); ++k) {
      Turn& turn = turns[k];
      Step step = turn.session->settle(turn.work, outcomes[k], pass_ms, std::nullopt);
      rows += static_cast<int>(turn.work.rows.size());
      if (turn.session->control) drafted += static_cast<int>(turn.work.proposal.tokens.size());
      tokens += std::ssize(step.tokens);
      results[turn.index] = {std::move(step), std::ssize(turn.work.rows)};
    }
    // Rows of prompts cost otherwise: their logits are not wanted.
    if (!prompts) depth_.observe(rows - drafted, rows, cost_ms, draft_ms, tokens);
  }
  for (size_t i = 0; i < sessions.size(); ++i) results[i].step.finish = sessions[i]->finish();
  return results;
}

}  // namespace lockstep::decode
