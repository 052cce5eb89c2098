#include "serve/scheduler.h"

#include <fmt/format.h>

#include "base/error.h"
#include "serve/scheduler_impl.h"

namespace lockstep::serve {

Scheduler::Impl::Impl(std::shared_ptr<const model::Model> model,
                      std::shared_ptr<kernels::Backend> backend, text::Tokenizer given_tokenizer,
                      SchedulerOptions given)
    : options(std::move(given)), tokenizer(std::move(given_tokenizer)), batch(options.chunk) {
  session_options.context = options.context;
  session_options.k_type = options.k_type;
  session_options.v_type = options.v_type;
  session_options.chunk = options.chunk;
  session_options.depth = options.depth;
  session_options.is_end = [t = tokenizer](int32_t id) { return t.is_eog(id); };
  const state::KvSpec spec = model->kv_spec(options.k_type, options.v_type, options.context);
  bytes_per_position = state::bytes_per_position(spec);
  int64_t beyond = 0;
  if (const auto source = options.make_source ? options.make_source(nullptr) : nullptr) {
    bytes_per_position += source->kv_bytes_per_position();
    beyond = source->kv_bytes_beyond() * options.parallel;
  }
  pool = state::make_page_pool(options.pool_positions * bytes_per_position + beyond,
                               backend->page_memory());
  session_options.kv_pool = pool;
  session_options.prefixes = std::make_shared<state::PrefixTree>(pool, spec);
  slots.resize(static_cast<size_t>(options.parallel));
  for (Slot& slot : slots) {
    decode::SessionOptions of_slot = session_options;
    if (options.make_source) of_slot.source = options.make_source(pool);
    if (!of_slot.source) of_slot.depth = {};
    slot.session = std::make_unique<decode::Session>(model, backend, of_slot);
  }
  session_options = slots[0].session->options();
  publish();
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
    }
    status.slots.push_back(s);
  }
  status.waiting = std::ssize(waiting);
  status.pool_positions = options.pool_positions;
  const auto positions = [&](int64_t bytes) {
    return (bytes + bytes_per_position - 1) / bytes_per_position;
  };
  status.reserved_positions = positions(reserved_bytes());
  status.kept_positions = pool->bytes_idle() / bytes_per_position;
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
