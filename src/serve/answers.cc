// What clients are told of their sequences.
#include <fmt/format.h>

#include "serve/scheduler_impl.h"

namespace lockstep::serve {
namespace {

// Whether the token's text is part of the answer though it is a control token's.
bool is_mark(const Sequence& sequence, int32_t id) {
  const std::vector<int32_t>& marks = sequence.job->prepared.marks;
  return std::find(marks.begin(), marks.end(), id) != marks.end();
}

}  // namespace

const char* stop_kind_name(StopKind kind) {
  switch (kind) {
    case StopKind::eos:
      return "eos";
    case StopKind::limit:
      return "limit";
    case StopKind::word:
      return "word";
  }
  return "";
}

Timings Scheduler::Impl::timings(const Slot& slot) const {
  const decode::Session& s = *slot.session;
  const decode::Timing timing = s.timing();
  Timings t;
  t.cache_n = s.cached_tokens();
  t.prompt_n = timing.first_tokens > 0 ? s.prompt_tokens() - s.cached_tokens()
                                       : std::max<int64_t>(0, s.kv().size() - s.cached_tokens());
  t.prompt_ms = timing.ttft_ms;
  t.predicted_n = slot.generated;
  t.first_n = std::min(timing.first_tokens, slot.generated);
  t.predicted_ms = timing.decode_ms;
  t.draft_n = s.draft_counts().drafted;
  t.draft_n_accepted = s.draft_counts().accepted;
  return t;
}

void Scheduler::Impl::handle(Slot& slot, const decode::BatchStep& batch_step) {
  const Clock::time_point start = Clock::now();
  decode::Session& session = *slot.session;
  const Request& request = slot.sequence->job->request;
  std::vector<int32_t> kept;
  for (const int32_t token : batch_step.step.tokens) {
    kept.push_back(token);
    slot.next.text += slot.stops.push(
        slot.characters.push(tokenizer.piece(token, is_mark(*slot.sequence, token))));
    if (slot.stops.stopped()) break;
  }
  slot.generated += std::ssize(kept);
  if (!kept.empty()) observe(slot, std::ssize(kept));
  slot.next.ids.insert(slot.next.ids.end(), kept.begin(), kept.end());
  if (!kept.empty() && request.token_origins) {
    slot.next.steps.push_back(
        {std::ssize(kept), batch_step.step.drafted, batch_step.step.accepted});
  }
  if (slot.probabilities) slot.probabilities->take(kept, slot.next.probabilities);
  if (slot.stops.stopped()) {
    // A draft may have brought tokens beyond the stop string; without it they would not be there.
    session.truncate(session.prompt_tokens() + slot.generated);
    session.stop();
  }
  session.add_emit_ms(1e3 * seconds(start, Clock::now()));
  if (session.finished()) return finish(slot);
  if (!request.stream) return;
  if (kept.empty() && request.return_progress && session.kv().size() > slot.prompt_sent) {
    slot.prompt_sent = session.kv().size();
    return deliver(*slot.sequence->job, make_event(slot, Event::Kind::progress));
  }
  // Text that a stop string or the rest of a character may still need waits for it.
  const bool tells = !slot.next.text.empty() ||
                     (!slot.next.ids.empty() &&
                      (request.return_tokens || request.logprobs || request.token_origins));
  if (tells) deliver(*slot.sequence->job, make_event(slot, Event::Kind::tokens));
}

// For the histograms: a step has brought tokens.
void Scheduler::Impl::observe(Slot& slot, int64_t tokens) {
  const Clock::time_point now = Clock::now();
  if (slot.last_tokens) {
    counters.between_tokens.add(seconds(*slot.last_tokens, now) / static_cast<double>(tokens),
                                tokens);
  } else {
    counters.first_token.add(seconds(slot.sequence->job->arrived, now));
  }
  slot.last_tokens = now;
}

Event Scheduler::Impl::make_event(Slot& slot, Event::Kind kind) {
  Event event;
  if (kind != Event::Kind::progress) event = std::exchange(slot.next, {});
  event.kind = kind;
  event.sequence = slot.sequence->index;
  event.slot = static_cast<int>(&slot - slots.data());
  event.prompt_tokens = std::ssize(slot.sequence->prompt());
  event.prompt_done = slot.session->kv().size();
  event.prompt_elapsed_ms = 1e3 * seconds(slot.admitted, Clock::now());
  event.timings = timings(slot);
  event.state_tokens = slot.session->kv().size();
  if (kind == Event::Kind::end) {
    event.stopping_word = std::string(slot.stops.stop());
    event.stop = slot.stops.stopped()                                  ? StopKind::word
                 : slot.session->finish() == decode::Finish::end_token ? StopKind::eos
                                                                       : StopKind::limit;
    event.result =
        std::make_shared<const decode::Result>(decode::make_result(*slot.session, options.engine));
  }
  return event;
}

void Scheduler::Impl::deliver(Job& job, Event event) {
  constexpr int64_t kListed = 16;  // probabilities that take about as long as an event without any
  for (const TokenProbability& of : event.probabilities) {
    event.weight += (1 + std::ssize(of.top)) / kListed;
  }
  job.unsent += event.weight;
  job.sink(std::move(event));
}

void Scheduler::Impl::finish(Slot& slot) {
  decode::Session& session = *slot.session;
  if (!slot.stops.stopped()) {
    slot.next.text += slot.stops.push(slot.characters.flush());
    slot.next.text += slot.stops.flush();
  }
  const Timings t = timings(slot);
  counters.prompt_tokens += t.prompt_n;
  counters.cached_tokens += t.cache_n;
  counters.prompt_seconds += t.prompt_ms * 1e-3;
  counters.generated_tokens += t.predicted_n;
  counters.generated_after_first += t.predicted_n - t.first_n;
  counters.generated_seconds += t.predicted_ms * 1e-3;
  counters.longest = std::max(counters.longest, session.kv().size());
  const decode::DraftCounts& drafts = session.draft_counts();
  counters.drafted += drafts.drafted;
  counters.accepted += drafts.accepted;
  for (size_t depth = 1; depth < drafts.depths.size(); ++depth) {
    counters.drafts += drafts.depths[depth];
  }
  if (counters.accepted_at.size() < drafts.accepted_at.size()) {
    counters.accepted_at.resize(drafts.accepted_at.size());
  }
  for (size_t i = 0; i < drafts.accepted_at.size(); ++i) {
    counters.accepted_at[i] += drafts.accepted_at[i];
  }
  for (const decode::DraftCounts::Part& part : drafts.parts) {
    Counters::Source& source = counters.sources[part.source];
    for (const int64_t n : part.proposed_at) source.drafted += n;
    for (const int64_t n : part.accepted_at) source.accepted += n;
  }
  Event last;
  if (session.finish() == decode::Finish::fault) {
    ++counters.failed;
    last.kind = Event::Kind::failed;
    last.sequence = slot.sequence->index;
    last.error = internal_error(fmt::format("the model's arithmetic failed: {}", session.fault()));
    // A state with such a row in it is of no use to anyone.
    session.truncate(0);
  } else {
    ++counters.finished;
    last = make_event(slot, Event::Kind::end);
  }
  // Whoever hears of the end and asks finds the slot free and the answer counted.
  const std::shared_ptr<Job> job = slot.sequence->job;
  release(slot);
  publish();
  deliver(*job, std::move(last));
}

void Scheduler::Impl::release(Slot& slot) {
  slot.session->set_inspector(nullptr);
  slot.probabilities.reset();
  slot.sequence.reset();
  slot.session->release();  // what it remembers is the tree's from here on
  slot.paused_since.reset();
  slot.next = {};
}

void Scheduler::Impl::fail(const Sequence& sequence, const ApiError& error) {
  Event event;
  event.kind = Event::Kind::failed;
  event.sequence = sequence.index;
  event.error = error;
  deliver(*sequence.job, std::move(event));
}

}  // namespace lockstep::serve
