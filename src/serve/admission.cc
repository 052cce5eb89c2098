// Who is let in: a slot and memory for a sequence, to its end.
#include "base/error.h"
#include "serve/scheduler_impl.h"

namespace lockstep::serve {

// What running sequences hold and may yet need. Pages that several hold count once; what only the
// tree of beginnings holds is free for whoever needs it.
int64_t Scheduler::Impl::reserved_bytes() const {
  int64_t bytes = pool->bytes_pinned(state::PageUse::whole);
  for (const Slot& slot : slots) {
    if (!slot.sequence) continue;
    const state::Claim claim = slot.session->claim();
    bytes += claim.to_come + claim.windows;
  }
  return bytes;
}

void Scheduler::Impl::admit() {
  for (auto at = waiting.begin(); at != waiting.end();) {
    if (place(*at)) {
      at = waiting.erase(at);
      continue;
    }
    // One that waits for a certain slot does not hold up those that would take any.
    if (at->job->request.id_slot < 0) return;
    ++at;
  }
}

bool Scheduler::Impl::place(Sequence& sequence) {
  Slot* slot = choose(sequence);
  if (slot == nullptr) return false;
  const auto reuse = room_for(*slot, sequence);
  if (!reuse) return false;
  start(*slot, std::move(sequence), *reuse);
  return true;
}

// An idle slot: the one asked for; else the one that was not used for longest.
Scheduler::Impl::Slot* Scheduler::Impl::choose(const Sequence& sequence) {
  const int64_t wanted = sequence.job->request.id_slot;
  if (wanted >= 0) {
    Slot& slot = slots[static_cast<size_t>(wanted)];
    return slot.sequence ? nullptr : &slot;
  }
  Slot* oldest = nullptr;
  for (Slot& slot : slots) {
    if (slot.sequence) continue;
    if (oldest == nullptr || slot.used < oldest->used) oldest = &slot;
  }
  return oldest;
}

// How it may begin so that its pages are free to its end; none: not now. To go on in the middle of
// a page takes a copy, which there may be no room for.
std::optional<decode::Reuse> Scheduler::Impl::room_for(const Slot& slot,
                                                       const Sequence& sequence) const {
  using decode::Reuse;
  const int64_t free = pool->max_bytes() - reserved_bytes();
  const auto fits = [&](Reuse reuse) {
    return slot.session->bytes_to_open(sequence.prompt(), sequence.job->request.max_tokens,
                                       reuse) <= free;
  };
  if (!sequence.job->request.cache_prompt) {
    return fits(Reuse::none) ? std::optional(Reuse::none) : std::nullopt;
  }
  for (const Reuse reuse : {Reuse::tokens, Reuse::whole_pages}) {
    if (fits(reuse)) return reuse;
  }
  return std::nullopt;
}

void Scheduler::Impl::start(Slot& slot, Sequence sequence, decode::Reuse reuse) {
  const Request& request = sequence.job->request;
  decode::Session& session = *slot.session;
  try {
    sample::Parameters sampling = sequence.job->prepared.sampling;
    sampling.choice_index = static_cast<uint32_t>(sequence.index % request.n);
    session.set_sampling(sampling);
    session.set_max_tokens(request.max_tokens);
    slot.stops = text::StopStrings(request.stops);
    slot.characters = {};
    slot.probabilities = request.logprobs ? std::make_unique<Probabilities>(request.top) : nullptr;
    session.set_inspector(slot.probabilities.get());
    session.set_reuse(reuse);
    session.open(sequence.prompt());
  } catch (const Error& error) {
    ++counters.failed;
    fail(sequence, {.message = error.what()});
    session.set_inspector(nullptr);
    session.release();
    return;
  }
  slot.used = ++admissions;
  slot.admitted = Clock::now();
  slot.paused_since.reset();
  slot.last_tokens.reset();
  slot.generated = 0;
  slot.prompt_sent = -1;
  slot.next = {};
  slot.sequence = std::move(sequence);
  // A limit of no tokens: there is nothing to run.
  if (session.finished()) finish(slot);
}

}  // namespace lockstep::serve
