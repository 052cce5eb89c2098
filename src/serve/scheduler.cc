#include "serve/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include "base/error.h"
#include "decode/batch.h"
#include "text/stop_strings.h"
#include "text/utf8_stream.h"

namespace lockstep::serve {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kPage = kernels::kPagePositions;
// A shared beginning shorter than this part of the prompt is no reason to overwrite a slot that
// remembers something else (llama-server's rule for slots).
constexpr double kLeastShared = 0.1;

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

int64_t whole_pages(int64_t positions) {
  return (positions + kPage - 1) / kPage * kPage;
}

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first -
         a.begin();
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

struct Scheduler::Impl {
  struct Slot {
    std::unique_ptr<decode::Session> session;
    std::optional<Sequence> sequence;  // none: idle
    int64_t reserved = 0;              // positions
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

    // Positions whose pages an idle slot keeps, for a request that begins alike.
    int64_t kept() const { return sequence ? 0 : whole_pages(session->kv().size()); }
  };

  Impl(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
       text::Tokenizer given_tokenizer, SchedulerOptions given)
      : options(std::move(given)), tokenizer(std::move(given_tokenizer)), batch(options.chunk) {
    session_options.context = options.context;
    session_options.k_type = options.k_type;
    session_options.v_type = options.v_type;
    session_options.chunk = options.chunk;
    session_options.depth = options.depth;
    session_options.is_end = [t = tokenizer](int32_t id) { return t.is_eog(id); };
    const state::KvSpec spec = model->kv_spec(options.k_type, options.v_type, options.context);
    pool = state::make_page_pool(options.pool_positions * state::bytes_per_position(spec),
                                 backend->page_memory());
    session_options.kv_pool = pool;
    slots.resize(static_cast<size_t>(options.parallel));
    for (Slot& slot : slots) {
      decode::SessionOptions of_slot = session_options;
      if (options.make_source) of_slot.source = options.make_source();
      if (!of_slot.source) of_slot.depth = {};
      slot.session = std::make_unique<decode::Session>(model, backend, of_slot);
    }
    session_options = slots[0].session->options();
    publish();
  }

  void run();
  void collect();
  void drop_cancelled();
  void admit();
  bool place(Sequence& sequence);
  Slot* choose(const Sequence& sequence);
  bool make_room(int64_t need, const Slot* except);
  void start(Slot& slot, Sequence sequence, int64_t need);
  void pass();
  void handle(Slot& slot, const decode::BatchStep& step);
  void observe(Slot& slot, int64_t tokens);
  Event make_event(Slot& slot, Event::Kind kind);
  static void deliver(Job& job, Event event);
  void finish(Slot& slot);
  void release(Slot& slot);
  void fail(const Sequence& sequence, const ApiError& error);
  void publish();
  int64_t reserved() const;
  Timings timings(const Slot& slot) const;

  SchedulerOptions options;
  text::Tokenizer tokenizer;
  decode::SessionOptions session_options;
  std::shared_ptr<state::PagePool> pool;
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

int64_t Scheduler::Impl::reserved() const {
  int64_t positions = 0;
  for (const Slot& slot : slots) positions += slot.reserved;
  return positions;
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

// Jobs that have come since.
void Scheduler::Impl::collect() {
  std::vector<std::shared_ptr<Job>> jobs;
  {
    std::unique_lock lock(mutex);
    const auto idle = [&] {
      return std::none_of(slots.begin(), slots.end(),
                          [](const Slot& slot) { return slot.sequence.has_value(); });
    };
    const auto all_paused = [&] {
      return std::all_of(slots.begin(), slots.end(), [](const Slot& slot) {
        return !slot.sequence || slot.paused_since.has_value();
      });
    };
    const auto something = [&] { return woken || !inbox.empty() || stopping; };
    if (idle() && waiting.empty()) {
      changed.wait(lock, something);
    } else if (all_paused()) {
      // Nobody to decode for; time-outs are looked at now and then.
      changed.wait_for(lock, std::chrono::milliseconds(50), something);
    }
    woken = false;
    jobs.swap(inbox);
    stopping_seen = stopping;
  }
  for (const std::shared_ptr<Job>& job : jobs) {
    for (int64_t i = 0; i < job->sequences(); ++i) waiting.push_back({job, static_cast<int>(i)});
  }
}

void Scheduler::Impl::drop_cancelled() {
  const Clock::time_point now = Clock::now();
  const bool over = stopping_seen && [&] {
    const std::lock_guard lock(mutex);
    return now >= deadline;
  }();
  std::erase_if(waiting, [&](const Sequence& sequence) {
    if (sequence.job->cancelled) {
      ++counters.cancelled;
      return true;
    }
    if (!stopping_seen) return false;
    fail(sequence, unavailable("the server is shutting down"));
    return true;
  });
  for (Slot& slot : slots) {
    if (!slot.sequence) continue;
    Job& job = *slot.sequence->job;
    if (job.cancelled) {
      ++counters.cancelled;
      slot.session->stop();
      release(slot);
      continue;
    }
    if (over) {
      fail(*slot.sequence, unavailable("the server is shutting down; the answer ends here"));
      slot.session->stop();
      release(slot);
      continue;
    }
    const int64_t unsent = job.unsent;
    if (!slot.paused_since && unsent > kMostUnsent) {
      slot.paused_since = now;
    } else if (slot.paused_since && unsent <= kMostUnsent / 2) {
      slot.paused_since.reset();
    } else if (slot.paused_since && seconds(*slot.paused_since, now) > options.stall_seconds) {
      fail(*slot.sequence, {.status = 408,
                            .type = "timeout_error",
                            .message = "the client does not read the answer"});
      slot.session->stop();
      release(slot);
    }
  }
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
  const int64_t prompt = std::ssize(sequence.prompt());
  const int64_t limit = sequence.job->request.max_tokens;
  const int64_t room = options.context - prompt;
  const int64_t need = whole_pages(prompt + (limit < 0 ? room : std::min(limit, room)));
  if (!make_room(need, slot)) return false;
  start(*slot, std::move(sequence), need);
  return true;
}

// An idle slot: the one asked for; else the one that remembers most of this prompt; else the one
// that was not used for longest.
Scheduler::Impl::Slot* Scheduler::Impl::choose(const Sequence& sequence) {
  const int64_t wanted = sequence.job->request.id_slot;
  if (wanted >= 0) {
    Slot& slot = slots[static_cast<size_t>(wanted)];
    return slot.sequence ? nullptr : &slot;
  }
  Slot* oldest = nullptr;
  Slot* alike = nullptr;
  int64_t most = 0;
  const std::vector<int32_t>& prompt = sequence.prompt();
  for (Slot& slot : slots) {
    if (slot.sequence) continue;
    if (oldest == nullptr || slot.used < oldest->used) oldest = &slot;
    const int64_t shared =
        std::min(common_prefix(slot.session->history(), prompt), slot.session->kv().size());
    if (shared > most) {
      most = shared;
      alike = &slot;
    }
  }
  const bool enough = static_cast<double>(most) > kLeastShared * static_cast<double>(prompt.size());
  return alike != nullptr && enough && sequence.job->request.cache_prompt ? alike : oldest;
}

// Lets idle slots forget, those not used for longest first, until so many positions are free.
bool Scheduler::Impl::make_room(int64_t need, const Slot* except) {
  if (reserved() + need > options.pool_positions) return false;
  while (true) {
    int64_t kept = 0;
    Slot* oldest = nullptr;
    for (Slot& slot : slots) {
      if (slot.sequence || &slot == except || slot.kept() == 0) continue;
      kept += slot.kept();
      if (oldest == nullptr || slot.used < oldest->used) oldest = &slot;
    }
    if (oldest == nullptr || reserved() + kept + need <= options.pool_positions) return true;
    oldest->session->truncate(0);
  }
}

void Scheduler::Impl::start(Slot& slot, Sequence sequence, int64_t need) {
  const Request& request = sequence.job->request;
  decode::Session& session = *slot.session;
  try {
    if (!request.cache_prompt) session.truncate(0);
    sample::Parameters sampling = sequence.job->prepared.sampling;
    sampling.choice_index = static_cast<uint32_t>(sequence.index % request.n);
    session.set_sampling(sampling);
    session.set_max_tokens(request.max_tokens);
    slot.stops = text::StopStrings(request.stops);
    slot.characters = {};
    slot.probabilities = request.logprobs ? std::make_unique<Probabilities>(request.top) : nullptr;
    session.set_inspector(slot.probabilities.get());
    session.open(sequence.prompt());
  } catch (const Error& error) {
    ++counters.failed;
    fail(sequence, {.message = error.what()});
    session.set_inspector(nullptr);
    return;
  }
  slot.used = ++admissions;
  slot.reserved = need;
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

void Scheduler::Impl::pass() {
  std::vector<Slot*> running;
  for (Slot& slot : slots) {
    if (slot.sequence && !slot.paused_since) running.push_back(&slot);
  }
  if (running.empty()) return;
  // Prompt rows go to who came first.
  std::sort(running.begin(), running.end(),
            [](const Slot* a, const Slot* b) { return a->used < b->used; });
  std::vector<decode::Session*> sessions;
  for (const Slot* slot : running) sessions.push_back(slot->session.get());
  std::vector<decode::BatchStep> steps;
  try {
    steps = batch.step(sessions);
  } catch (const std::exception& error) {
    // Memory that the machine no longer has. What the sessions remember is given back with it.
    for (Slot* slot : running) {
      ++counters.failed;
      fail(*slot->sequence, internal_error(error.what()));
      slot->session->stop();
      slot->session->truncate(0);
      release(*slot);
    }
    return;
  }
  ++counters.passes;
  for (size_t i = 0; i < running.size(); ++i) {
    if (steps[i].rows > 0) ++counters.busy_slot_passes;
    handle(*running[i], steps[i]);
  }
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
  slot.reserved = 0;
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

void Scheduler::Impl::publish() {
  Status status;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& slot = slots[i];
    SlotStatus s;
    s.id = static_cast<int>(i);
    s.processing = slot.sequence.has_value();
    s.state_tokens = slot.session->kv().size();
    if (slot.sequence) {
      s.job = slot.sequence->job->id;
      s.prompt_tokens = std::ssize(slot.sequence->prompt());
      s.generated = slot.generated;
      const int64_t limit = slot.sequence->job->request.max_tokens;
      s.remaining = limit < 0 ? -1 : limit - slot.generated;
      s.paused = slot.paused_since.has_value();
    } else {
      status.kept_positions += slot.kept();
    }
    status.slots.push_back(s);
  }
  status.waiting = std::ssize(waiting);
  status.pool_positions = options.pool_positions;
  status.reserved_positions = reserved();
  status.kv_bytes = pool->bytes_in_use();
  status.counters = counters;
  const std::lock_guard lock(mutex);
  published = std::move(status);
}

void Scheduler::Impl::run() {
  while (true) {
    collect();
    drop_cancelled();
    admit();
    publish();
    pass();
    publish();
    const bool busy = std::any_of(slots.begin(), slots.end(),
                                  [](const Slot& slot) { return slot.sequence.has_value(); });
    if (stopping_seen && !busy && waiting.empty()) {
      const std::lock_guard lock(mutex);
      if (inbox.empty()) return;
    }
  }
}

Scheduler::Scheduler(std::shared_ptr<const model::Model> model,
                     std::shared_ptr<kernels::Backend> backend, text::Tokenizer tokenizer,
                     SchedulerOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(backend), std::move(tokenizer),
                                   std::move(options))) {
  impl_->thread = std::thread([this] { impl_->run(); });
}

Scheduler::~Scheduler() {
  stop(0);
}

std::shared_ptr<void> Scheduler::enter() {
  const auto places = impl_->places;
  if (++*places > impl_->options.parallel + impl_->options.queue) {
    --*places;
    return nullptr;
  }
  // It may outlive the scheduler.
  return {places.get(), [places](void*) { --*places; }};
}

void Scheduler::submit(std::shared_ptr<Job> job) {
  const SchedulerOptions& options = impl_->options;
  for (const std::vector<int32_t>& prompt : job->prepared.prompts) {
    const auto tokens = static_cast<int64_t>(prompt.size());
    if (tokens < options.context) continue;
    throw RequestError(
        {.type = "exceed_context_size_error",
         .message = fmt::format("the prompt has {} tokens and the context {}, which must hold an "
                                "answer too; shorten it or start the server with a larger -c",
                                tokens, options.context),
         .param = job->request.surface == Surface::oai_chat ? "messages" : "prompt",
         .extra = {{"n_prompt_tokens", tokens}, {"n_ctx", options.context}}});
  }
  if (job->request.id_slot >= options.parallel) {
    refuse_field("id_slot", fmt::format("{} is not a slot; there are 0 to {}", job->request.id_slot,
                                        options.parallel - 1));
  }
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->stopping) throw RequestError(unavailable("the server is shutting down"));
    impl_->inbox.push_back(std::move(job));
  }
  impl_->changed.notify_one();
}

void Scheduler::cancel(Job& job) {
  job.cancelled = true;
  wake();
}

void Scheduler::wake() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->woken = true;
  }
  impl_->changed.notify_one();
}

void Scheduler::stop(double grace_seconds) {
  {
    const std::lock_guard lock(impl_->mutex);
    const auto grace = std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(std::max(0.0, grace_seconds)));
    if (!impl_->stopping || Clock::now() + grace < impl_->deadline) {
      impl_->deadline = Clock::now() + grace;
    }
    impl_->stopping = true;
  }
  impl_->changed.notify_one();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Status Scheduler::status() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->published;
}

const SchedulerOptions& Scheduler::options() const {
  return impl_->options;
}

const decode::SessionOptions& Scheduler::session_options() const {
  return impl_->session_options;
}

}  // namespace lockstep::serve
