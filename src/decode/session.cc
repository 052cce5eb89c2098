#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/error.h"
#include "decode/session_impl.h"

namespace lockstep::decode {
namespace {

using Clock = std::chrono::steady_clock;
using draft::Lane;

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

// Adds the time of a scope to a phase.
class Stopwatch {
 public:
  explicit Stopwatch(double& phase) : phase_(phase) {}
  ~Stopwatch() { phase_ += milliseconds(start_, Clock::now()); }
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  double& phase_;
  Clock::time_point start_ = Clock::now();
};

int64_t common_prefix(std::span<const int32_t> a, std::span<const int32_t> b) {
  const size_t n = std::min(a.size(), b.size());
  return std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(n), b.begin()).first -
         a.begin();
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ExitCode::bad_use, message);
}

void check_chunk(int64_t rows) {
  if (rows < 1) refuse(fmt::format("prompt passes of {} rows; there must be at least 1", rows));
}

void check_depth(const DepthPolicy& depth) {
  if (depth.n_max < 0 || depth.n_min < 0) {
    refuse(
        fmt::format("draft of {} to {} tokens; neither may be negative", depth.n_min, depth.n_max));
  }
}

}  // namespace

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::none:
      return "";
    case Finish::end_token:
      return "stop";
    case Finish::max_tokens:
      return "length";
    case Finish::context_full:
      return "context_full";
    case Finish::fault:
      return "fault";
    case Finish::stopped:
      return "cancelled";
  }
  return "";
}

Session::Impl::Impl(std::shared_ptr<const model::Model> model,
                    std::shared_ptr<kernels::Backend> backend, SessionOptions given)
    : options(std::move(given)),
      lane(model, backend,
           model->kv_spec(
               options.k_type, options.v_type,
               options.context > 0 ? options.context : model->hyperparameters().n_ctx_train),
           options.kv_pool ? options.kv_pool
                           : state::make_page_pool(options.kv_max_bytes, backend->page_memory())),
      sampler(options.sampling, lane.n_vocab()) {
  options.context = lane.kv().spec().context;
  check_chunk(options.chunk);
  adopt_source(options.source, options.depth);
}

void Session::Impl::adopt_source(std::shared_ptr<draft::Source> source, DepthPolicy depth) {
  check_depth(depth);
  options.source = std::move(source);
  options.depth = depth;
  control.reset();
  if (!options.source) return;
  if (depth.automatic) control.emplace();
  options.source->truncate(0);  // whatever it has seen belongs to another history
  options.source->set_sampling(options.sampling);
}

void Session::Impl::check_history(std::span<const int32_t> given) const {
  if (given.empty()) refuse("the prompt has no tokens; give at least one");
  if (static_cast<int64_t>(given.size()) > options.context) {
    refuse(fmt::format("the prompt has {} tokens, the context {}; shorten it or raise -c",
                       given.size(), options.context));
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] < 0 || given[i] >= lane.n_vocab()) {
      refuse(fmt::format("token {} at position {} is not in the vocabulary (ids 0 to {})", given[i],
                         i, lane.n_vocab() - 1));
    }
  }
}

// Returns how much of the state holds for the new history: at most keep_at_most positions.
int64_t Session::Impl::replace_history(std::span<const int32_t> given, int64_t keep_at_most) {
  const int64_t common = common_prefix(history, given);
  const int64_t kept = lane.kv().reusable(std::min(common, keep_at_most));
  if (kept < lane.kv().size()) lane.kv().truncate(kept);
  if (options.source && common < size()) options.source->truncate(common);
  history.assign(given.begin(), given.end());
  const auto most = static_cast<size_t>(std::clamp<int64_t>(keep_at_most, 0, size()));
  return take_over(std::span(std::as_const(history)).first(most), kept, reuse);
}

void Session::Impl::start(int64_t cached, Clock::time_point now) {
  prompt_tokens = size();
  cached_tokens = cached;
  pages_kept = 0;
  finish = limit_reached();
  fault.clear();
  counts = {};
  if (options.source) {
    counts.source = options.source->name();
    for (std::string& part : options.source->parts()) {
      counts.parts.push_back({.source = std::move(part), .proposed_at = {}, .accepted_at = {}});
    }
  }
  if (control) control->forget_text();
  phases = {};
  first_tokens = 0;
  begun = now;
}

Finish Session::Impl::limit_reached() const {
  if (options.max_tokens >= 0 && generated() >= options.max_tokens) return Finish::max_tokens;
  // A token past the context could never be followed by another.
  if (size() >= options.context) return Finish::context_full;
  return Finish::none;
}

void Session::Impl::set_fault(std::string where) {
  finish = Finish::fault;
  fault = std::move(where);
}

Lane::Outcome Session::Impl::run(std::span<const int32_t> tokens, int64_t first_logits_row,
                                 int64_t greatest) {
  const Lane::Outcome outcome = lane.run(tokens, first_logits_row, plant, greatest);
  if (plant != nullptr && plant->done) plant = nullptr;  // a backend says so of its last pass alone
  return outcome;
}

// The next rows of the history, no logits wanted.
Session::Impl::Work Session::Impl::chunk_of(int64_t n) const {
  const auto from = history.begin() + static_cast<ptrdiff_t>(lane.kv().size());
  return {.rows = {from, from + static_cast<ptrdiff_t>(n)},
          .first_logits_row = n,
          .waiting = n,
          .proposal = {},
          .samples = false};
}

std::optional<Session::Impl::Work> Session::Impl::plan(int64_t prompt_rows) {
  if (finish != Finish::none) return std::nullopt;
  int64_t waiting = pending();
  if (waiting > 1 && prompt_rows < 1) return std::nullopt;
  if (waiting > 1) {
    take_over_late();
    waiting = pending();
  }
  if (waiting > 1 && waiting > prompt_rows) return chunk_of(prompt_rows);
  return Work{.rows = {history.end() - static_cast<ptrdiff_t>(waiting), history.end()},
              .first_logits_row = waiting - 1,
              .waiting = waiting,
              .proposal = {},
              .samples = true};
}

Step Session::Impl::settle(const Work& work, const Lane::Outcome& outcome, double pass_ms,
                           std::optional<double> cost_ms) {
  (work.waiting > 1 || !work.samples ? phases.prompt : phases.verify) += pass_ms;
  const auto rows = static_cast<int64_t>(work.rows.size());
  Step step;
  if (!work.samples) {
    const int64_t first = lane.kv().size();
    lane.commit(outcome.good_rows);
    keep_prefix();
    if (inspector != nullptr) inspector->on_pass(rows, lane.kv());
    if (outcome.good_rows < rows) {
      set_fault(lane.describe_fault(outcome.fault_op, first + outcome.good_rows));
    }
    step.finish = finish;
    return step;
  }
  step.drafted = static_cast<int>(work.proposal.tokens.size());
  // Prompt rows cost otherwise: their logits are not wanted. So does a pass that others share.
  if (control && work.waiting == 1 && cost_ms) {
    control->observe_pass(static_cast<int>(rows), *cost_ms);
  }
  accept(work.proposal.tokens, outcome, step);
  {
    const Stopwatch watch(phases.commit);
    // All rows of the history but the last token's, which waits for the next pass.
    lane.commit(std::min(outcome.good_rows, size() - 1 - lane.kv().size()));
    keep_prefix();
  }
  count(step, work.proposal.part);
  if (control) control->observe_tokens(step.tokens);
  if (!step.tokens.empty()) {
    last_token = Clock::now();
    if (first_tokens == 0) {
      first_token = last_token;
      first_tokens = static_cast<int64_t>(step.tokens.size());
    }
  }
  if (inspector != nullptr) inspector->on_pass(rows, lane.kv());
  if (options.source) {
    const Stopwatch watch(phases.draft);
    options.source->observe(history, step.accepted);
  }
  step.finish = finish;
  return step;
}

// A pass of this session alone.
Step Session::Impl::run_alone(const Work& work) {
  const double start = now_ms();
  const Clock::time_point from = Clock::now();
  const Lane::Outcome outcome = run(work.rows, work.first_logits_row, greatest_wanted());
  return settle(work, outcome, milliseconds(from, Clock::now()), now_ms() - start);
}

// After anything that may have left the state as long as the history.
void Session::Impl::keep_one_pending() {
  state::KvCache& kv = lane.kv();
  if (!history.empty() && kv.size() >= size()) kv.truncate(kv.reusable(size() - 1));
}

double Session::Impl::now_ms() const {
  if (options.clock_ms) return options.clock_ms();
  return std::chrono::duration<double, std::milli>(Clock::now().time_since_epoch()).count();
}

// A draft is no longer than can be committed with one token more.
int Session::Impl::draft_room() const {
  if (!options.source || options.depth.n_max == 0) return 0;
  int64_t room = options.context - size();
  if (options.max_tokens >= 0) room = std::min(room, options.max_tokens - generated());
  return static_cast<int>(std::min<int64_t>(options.depth.n_max, room - 1));
}

draft::Proposal Session::Impl::ask_source(int n) {
  const Stopwatch watch(phases.draft);
  const double start = now_ms();
  draft::Proposal proposal = options.source->propose(history, n);
  if (control && !proposal.behind) control->observe_draft(n, now_ms() - start);
  const std::vector<int32_t>& tokens = proposal.tokens;
  size_t length = std::min(tokens.size(), static_cast<size_t>(n));
  for (size_t i = 0; i < length; ++i) {
    const bool known = tokens[i] >= 0 && tokens[i] < lane.n_vocab();
    const bool unsure =
        i < proposal.confidence.size() && proposal.confidence[i] < options.depth.p_min;
    if (!known || unsure) length = i;
  }
  proposal.cut(length);
  return proposal;
}

void Session::Impl::add_draft(Work& work, draft::Proposal proposal) const {
  if (std::ssize(proposal.tokens) < options.depth.n_min) proposal.cut(0);
  work.rows.insert(work.rows.end(), proposal.tokens.begin(), proposal.tokens.end());
  work.proposal = std::move(proposal);
}

void Session::Impl::draft_alone(Work& work) {
  const int room = draft_room();
  const int n = control ? control->ask(room) : room;
  if (n < 1 || n < options.depth.n_min) return;
  draft::Proposal proposal = ask_source(n);
  if (proposal.behind && proposal.tokens.empty()) return;
  if (control) proposal.cut(static_cast<size_t>(control->choose(proposal, n)));
  add_draft(work, std::move(proposal));
}

void Session::Impl::read_along() {
  if (!options.source || options.depth.n_max == 0 || lane.kv().size() == 0) return;
  if (control && !control->asks()) return;
  const Stopwatch watch(phases.draft);
  options.source->read(std::span(history).first(static_cast<size_t>(lane.kv().size())));
}

sample::Choice Session::Impl::choose(int64_t row, std::span<const int32_t> before,
                                     int64_t position) {
  const auto greatest = lane.greatest(row);
  return greatest.empty() ? sampler.choose(lane.logits(row), before, position)
                          : sampler.choose_among(greatest, before, position);
}

// Samples row after row for as long as the draft agrees, and commits what was sampled.
void Session::Impl::accept(std::span<const int32_t> drafted, const Lane::Outcome& outcome,
                           Step& step) {
  const Stopwatch watch(phases.sample);
  const int64_t first = pending() - 1;
  const int64_t first_position = lane.kv().size();
  for (size_t i = 0; i <= drafted.size(); ++i) {
    const int64_t row = first + static_cast<int64_t>(i);
    // A fault counts only here, where every row before belongs to the history.
    if (row >= outcome.good_rows) {
      return set_fault(lane.describe_fault(outcome.fault_op, first_position + outcome.good_rows));
    }
    const sample::Choice choice = choose(row, history, size());
    if (choice.fault) {
      return set_fault(fmt::format("{} at position {}", sample::choice_fault_name(choice.reason),
                                   first_position + row));
    }
    if (looks_at_rows()) inspector->on_logits(size(), lane.logits(row));
    history.push_back(choice.token);
    step.tokens.push_back(choice.token);
    const bool agrees = i < drafted.size() && drafted[i] == choice.token;
    if (agrees) ++step.accepted;
    finish = options.is_end && options.is_end(choice.token) ? Finish::end_token : limit_reached();
    if (!agrees || finish != Finish::none) return;
  }
}

void Session::Impl::count(const Step& step, std::span<const uint8_t> parts) {
  ++counts.steps;
  counts.drafted += step.drafted;
  counts.accepted += step.accepted;
  const auto count_at = [](std::vector<int64_t>& at, int i) {
    if (at.size() <= static_cast<size_t>(i)) at.resize(static_cast<size_t>(i) + 1);
    ++at[static_cast<size_t>(i)];
  };
  count_at(counts.depths, step.drafted);
  for (int i = 0; i < step.drafted; ++i) {
    const size_t part = parts.empty() ? 0 : parts[static_cast<size_t>(i)];
    const bool accepted = i < step.accepted;
    count_at(counts.proposed_at, i);
    if (accepted) count_at(counts.accepted_at, i);
    if (part >= counts.parts.size()) continue;
    count_at(counts.parts[part].proposed_at, i);
    if (accepted) count_at(counts.parts[part].accepted_at, i);
  }
  counts.accepted_at.resize(counts.proposed_at.size());
  for (DraftCounts::Part& part : counts.parts) part.accepted_at.resize(part.proposed_at.size());
}

Session::Session(std::shared_ptr<const model::Model> model,
                 std::shared_ptr<kernels::Backend> backend, SessionOptions options)
    : impl_(std::make_unique<Impl>(std::move(model), std::move(backend), std::move(options))) {}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

void Session::begin(std::span<const int32_t> history,
                    const std::function<bool(int64_t, int64_t)>& progress) {
  Impl& s = *impl_;
  const Clock::time_point now = Clock::now();
  s.check_history(history);
  s.start(s.replace_history(history, static_cast<int64_t>(history.size()) - 1), now);
  // Where nothing will be generated, no step() will run the last chunk.
  const int64_t waiting = s.finish == Finish::none ? s.options.chunk : 1;
  const auto go_on = [&] { return !progress || progress(s.lane.kv().size(), s.size()); };
  bool cancelled = !go_on();
  while (!cancelled && s.pending() > waiting) {
    s.run_alone(s.chunk_of(std::min(s.options.chunk, s.pending() - 1)));
    if (s.finish == Finish::fault) return;
    cancelled = !go_on();
  }
  if (cancelled) s.finish = Finish::stopped;
}

void Session::open(std::span<const int32_t> history) {
  const Clock::time_point now = Clock::now();
  impl_->check_history(history);
  impl_->start(impl_->replace_history(history, static_cast<int64_t>(history.size()) - 1), now);
}

Step Session::step() {
  Impl& s = *impl_;
  while (auto work = s.plan(s.options.chunk)) {
    if (work->samples) s.draft_alone(*work);
    Step step = s.run_alone(*work);
    if (work->samples || s.finish != Finish::none) return step;
  }
  Step step;
  step.finish = s.finish;
  return step;
}

bool Session::finished() const {
  return impl_->finish != Finish::none;
}
Finish Session::finish() const {
  return impl_->finish;
}
std::string Session::fault() const {
  return impl_->fault;
}
void Session::stop() {
  if (impl_->finish == Finish::none) impl_->finish = Finish::stopped;
}

std::span<const int32_t> Session::history() const {
  return impl_->history;
}
std::span<const int32_t> Session::generated() const {
  return history().subspan(static_cast<size_t>(impl_->prompt_tokens));
}
int64_t Session::prompt_tokens() const {
  return impl_->prompt_tokens;
}
int64_t Session::cached_tokens() const {
  return impl_->cached_tokens;
}
int64_t Session::generated_tokens() const {
  return impl_->generated();
}
const DraftCounts& Session::draft_counts() const {
  return impl_->counts;
}
const Phases& Session::phases() const {
  return impl_->phases;
}
void Session::add_emit_ms(double milliseconds) {
  impl_->phases.emit += milliseconds;
}
const state::KvCache& Session::kv() const {
  return impl_->lane.kv();
}
const model::Model& Session::model() const {
  return impl_->lane.model();
}
const kernels::Backend& Session::backend() const {
  return impl_->lane.backend();
}
const SessionOptions& Session::options() const {
  return impl_->options;
}

Timing Session::timing() const {
  const Impl& s = *impl_;
  if (s.first_tokens == 0) return {};
  return {.ttft_ms = milliseconds(s.begun, s.first_token),
          .decode_ms = milliseconds(s.first_token, s.last_token),
          .wall_ms = milliseconds(s.begun, s.last_token),
          .first_tokens = s.first_tokens};
}

void Session::set_sampling(const sample::Parameters& parameters) {
  impl_->sampler = sample::Sampler(parameters, impl_->lane.n_vocab());
  impl_->options.sampling = parameters;
  if (impl_->options.source) impl_->options.source->set_sampling(parameters);
}

void Session::set_source(std::shared_ptr<draft::Source> source, DepthPolicy depth) {
  impl_->adopt_source(std::move(source), depth);
}

void Session::set_clock(std::function<double()> clock_ms) {
  impl_->options.clock_ms = std::move(clock_ms);
}
void Session::set_max_tokens(int64_t max_tokens) {
  impl_->options.max_tokens = max_tokens;
}
void Session::set_inspector(Inspector* inspector) {
  impl_->inspector = inspector;
}
void Session::set_chunk(int64_t rows) {
  check_chunk(rows);
  impl_->options.chunk = rows;
}
void Session::set_plant(kernels::Plant* plant) {
  impl_->plant = plant;
}

void Session::truncate(int64_t position) {
  Impl& s = *impl_;
  if (position < 0 || position > s.size()) {
    refuse(fmt::format("cut at position {} of {} tokens", position, s.size()));
  }
  const std::vector<int32_t> kept(s.history.begin(), s.history.begin() + position);
  s.replace_history(kept, std::max<int64_t>(position - 1, 0));
  if (s.control) s.control->forget_text();
  s.prompt_tokens = std::min(s.prompt_tokens, position);
  s.cached_tokens = std::min(s.cached_tokens, position);
  s.fault.clear();
  s.finish = position == 0 ? Finish::stopped : s.limit_reached();
}

std::shared_ptr<const state::KvCache::Snapshot> Session::snapshot() const {
  return impl_->lane.kv().snapshot();
}

void Session::restore(const std::shared_ptr<const state::KvCache::Snapshot>& snapshot,
                      std::span<const int32_t> history) {
  Impl& s = *impl_;
  s.check_history(history);
  const auto before = s.lane.kv().snapshot();
  s.lane.kv().restore(snapshot);
  if (s.lane.kv().size() > static_cast<int64_t>(history.size())) {
    const int64_t rows = s.lane.kv().size();
    s.lane.kv().restore(before);
    refuse(fmt::format("a state of {} tokens for a history of {}", rows, history.size()));
  }
  const int64_t common = common_prefix(s.history, history);
  if (s.options.source && common < s.size()) s.options.source->truncate(common);
  s.history.assign(history.begin(), history.end());
  s.keep_one_pending();
  s.start(s.lane.kv().size(), Clock::now());
}

void Session::evaluate(std::span<const int32_t> history,
                       const std::function<void(int64_t, std::span<const float>)>& on_row,
                       int64_t first_position) {
  Impl& s = *impl_;
  s.check_history(history);
  if (first_position < 1) refuse(fmt::format("no logits row chooses position {}", first_position));
  s.replace_history(history, first_position - 1);
  s.start(s.lane.kv().size(), Clock::now());
  s.finish = Finish::stopped;
  while (s.pending() > 0) {
    const int64_t first = s.lane.kv().size();
    const int64_t rows = std::min(s.options.chunk, s.pending());
    // The row at position p chooses the token at p + 1.
    const int64_t first_row = std::clamp<int64_t>(first_position - 1 - first, 0, rows);
    const auto tokens =
        std::span(s.history).subspan(static_cast<size_t>(first), static_cast<size_t>(rows));
    const Lane::Outcome outcome = s.run(tokens, first_row, 0);
    s.lane.commit(outcome.good_rows);
    for (int64_t row = first_row; row < outcome.good_rows; ++row) {
      on_row(first + row + 1, s.lane.logits(row));
    }
    if (s.inspector != nullptr) s.inspector->on_pass(rows, s.lane.kv());
    if (outcome.good_rows < rows) {
      s.set_fault(s.lane.describe_fault(outcome.fault_op, first + outcome.good_rows));
      return;
    }
  }
}

}  // namespace lockstep::decode
