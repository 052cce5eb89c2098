#include "prove/prover.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "base/error.h"

namespace lockstep::app {
namespace {

// Time that stands still for some passes (so that the longest drafts cost nothing) and then goes on
// by chance, alike in every run: automatic depth tries much and little, and a line does not depend
// on how busy the machine is.
std::function<double()> random_clock() {
  return [now = 0.0, calls = 0, rng = std::mt19937_64(1)]() mutable {
    constexpr int kStill = 20;
    if (++calls > kStill) now += static_cast<double>(rng() % 1000) * 0.01;
    return now;
  };
}

constexpr int64_t kMaxDepth = 15;

decode::SessionOptions options_of(const Case& of, int64_t context) {
  decode::SessionOptions options;
  options.context = context;
  options.k_type = of.k_type;
  options.v_type = of.v_type;
  options.sampling = of.sampling;
  return options;
}

}  // namespace

Prover::Prover(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
               int64_t tokens, std::shared_ptr<kernels::Backend> plain)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      plain_backend_(plain ? std::move(plain) : backend_),
      tokens_(tokens) {}

int64_t Prover::plain_tokens() const {
  return tokens_ + kMaxDepth + 1;
}

std::unique_ptr<decode::Session> Prover::new_session(
    const Case& of, std::shared_ptr<kernels::Backend> backend) const {
  const int64_t needed = static_cast<int64_t>(of.prompt.size()) + plain_tokens() + kMaxDepth + 1;
  const int64_t trained = model_->hyperparameters().n_ctx_train;
  if (needed > trained) {
    throw Error(
        ExitCode::bad_use,
        fmt::format("case {} needs {} positions, the model has {}; give fewer tokens (-n) or "
                    "a shorter prompt (-p)",
                    of.name, needed, trained));
  }
  return std::make_unique<decode::Session>(model_, std::move(backend), options_of(of, needed));
}

const Trace& Prover::plain(const Case& of) {
  for (const auto& [known, trace] : plains_) {
    if (known == of) return *trace;
  }
  auto trace = std::make_unique<Trace>();
  const auto session = new_session(of, plain_backend_);
  Recorder recorder(*trace);
  session->set_inspector(&recorder);
  session->set_chunk(1);
  session->set_max_tokens(plain_tokens());
  session->begin(of.prompt);
  int64_t position = static_cast<int64_t>(of.prompt.size());
  while (!session->finished()) {
    for (const int32_t token : session->step().tokens) trace->tokens[position++] = token;
  }
  if (session->finish() == decode::Finish::fault) {
    throw Error(ExitCode::check_failed,
                fmt::format("the plain run of case {} faults: {}", of.name, session->fault()));
  }
  return *plains_.emplace_back(of, std::move(trace)).second;
}

std::vector<int32_t> Prover::continuation(const Case& of) {
  std::vector<int32_t> tokens;
  for (const auto& [position, token] : plain(of).tokens) tokens.push_back(token);
  return tokens;
}

decode::Session& Prover::kept_session(const Case& of) {
  for (const auto& [known, session] : sessions_) {
    if (known.prompt == of.prompt && known.k_type == of.k_type && known.v_type == of.v_type) {
      return *session;
    }
  }
  return *sessions_.emplace_back(of, new_session(of, backend_)).second;
}

void Prover::decode(decode::Session& session, std::span<const int32_t> history, const Case& of,
                    const How& how, Trace& trace) {
  const Trace& reference = plain(of);
  const int64_t reused_before = session.kv().pages_reused();
  Recorder recorder(trace, &reference, how.rows);
  session.set_inspector(&recorder);
  session.set_sampling(of.sampling);
  session.set_source(how.source ? how.source(reference) : nullptr,
                     {.n_max = how.depth, .automatic = how.automatic});
  session.set_clock(how.automatic ? random_clock() : nullptr);
  session.set_chunk(how.chunk);
  const int64_t end = static_cast<int64_t>(of.prompt.size()) + plain_tokens();
  session.set_max_tokens(end - static_cast<int64_t>(history.size()));
  session.begin(history);
  auto position = static_cast<int64_t>(history.size());
  const int64_t enough = position + how.tokens;
  for (int64_t pass = 0; pass < how.passes && position < enough && !session.finished(); ++pass) {
    const decode::Step step = session.step();
    for (const int32_t token : step.tokens) trace.tokens[position++] = token;
    trace.proposed += step.drafted;
    trace.accepted += step.accepted;
  }
  if (session.finish() == decode::Finish::fault) trace.fault = session.fault();
  trace.pages_reused += session.kv().pages_reused() - reused_before;
  session.set_inspector(nullptr);
}

void Prover::judge(Line& line, const Case& of, const Trace& arm) {
  const Compared compared = compare(plain(of), arm);
  line.proposed += arm.proposed;
  line.accepted += arm.accepted;
  line.pages_reused += arm.pages_reused;
  line.tokens += compared.tokens;
  line.rows += compared.rows;
  line.states += compared.states;
  for (const auto& [width, passes] : arm.widths) line.widths[width] += passes;
  if (compared.first && !line.first) {
    line.first = compared.first;
    line.first_case = of.name;
  }
}

void check_needs(Line& line, const Needs& needs) {
  const auto missing = [&](std::string_view what) {
    line.unexercised += fmt::format("{}{}", line.unexercised.empty() ? "" : ", ", what);
  };
  if (needs.looked_at && line.rows == 0) missing("no logits row compared");
  if (!needs.looked_at && line.rows > 0) missing("logits rows were asked for");
  if (!needs.looked_at && line.tokens == 0) missing("no token compared");
  if (line.states == 0) missing("no KV state compared");
  if (needs.accepted && line.accepted == 0) missing("no draft token was accepted");
  if (needs.rejected && line.accepted == line.proposed) missing("no draft token was rejected");
  if (needs.reused && line.pages_reused == 0) missing("no page was reused");
  for (const int64_t width : needs.widths) {
    if (!line.widths.contains(width)) missing(fmt::format("no pass of {} rows", width));
  }
}

}  // namespace lockstep::app
