#include "lab/log/summary.h"

#include <algorithm>
#include <limits>

#include "lab/log/accounting.h"

namespace lockstep::lab::log {

std::optional<double> Fit::correlation() const {
  if (n_ < 3 || !spread(sxx_, mean_x_) || !spread(syy_, mean_y_)) return std::nullopt;
  return std::clamp(sxy_ / std::sqrt(sxx_ * syy_), -1.0, 1.0);
}

std::optional<double> Fit::slope() const {
  if (n_ < 3 || !spread(sxx_, mean_x_)) return std::nullopt;
  return sxy_ / sxx_;
}

std::optional<double> Fit::slope_error() const {
  if (n_ < 3 || !spread(sxx_, mean_x_)) return std::nullopt;
  const double residual = std::max(0.0, syy_ - sxy_ * sxy_ / sxx_);
  return std::sqrt(residual / static_cast<double>(n_ - 2) / sxx_);
}

std::optional<bool> is_warm(const Request& request) {
  if (request.cached_tokens) return *request.cached_tokens > 0;
  for (const Witness witness : request.witnesses) {
    if (witness == Witness::similarity || witness == Witness::checkpoint ||
        witness == Witness::cached_tokens || witness == Witness::context_end) {
      return true;
    }
    if (witness == Witness::cached_zero || witness == Witness::reprocessed) return false;
  }
  return std::nullopt;
}

std::optional<double> mean_context(const Request& request) {
  if (!request.generated_tokens) return std::nullopt;
  const double half = static_cast<double>(*request.generated_tokens) / 2;
  if (request.prompt_tokens) return static_cast<double>(*request.prompt_tokens) + half;
  if (request.end_tokens) return std::max(0.0, static_cast<double>(*request.end_tokens) - half);
  return std::nullopt;
}

void Totals::add(const Request& r) {
  if (!r.generated_tokens || !r.decode_ms) return;
  ++requests;
  const std::optional<bool> reused = is_warm(r);
  ++(reused ? *reused ? warm : cold : unknown_warmth);
  beside_other_slots += r.other_slot.value_or(false);
  after_fault += r.after_fault;
  cached_tokens += r.cached_tokens.value_or(0);
  if (r.evaluated_tokens && r.prompt_ms && *r.prompt_ms > 0 && *r.evaluated_tokens > 0) {
    prompt_tokens_evaluated += *r.evaluated_tokens;
    prompt_ms += *r.prompt_ms;
  }
  if (*r.generated_tokens < 1 || *r.decode_ms <= 0) return;
  generated_tokens += *r.generated_tokens;
  decode_tokens += *r.generated_tokens - 1;
  decode_ms += *r.decode_ms;
  one_token += *r.generated_tokens == 1;
  const std::optional<int64_t> n_steps = decode_steps(r);
  if (n_steps && *n_steps > 0) {
    ++step_requests;
    steps += *n_steps;
    step_tokens += *r.generated_tokens - 1;
    step_ms += *r.decode_ms;
  }
  if (!r.draft || r.draft->steps.low > r.draft->steps.high) return;
  Interval as_interval;
  as_interval.draft = *r.draft;
  add(as_interval);
  if (r.draft_ms) {
    draft_ms += *r.draft_ms;
    draft_ms_drafted += r.draft->drafted;
  }
}

void Totals::add(const Interval& interval) {
  const Drafting& d = interval.draft;
  ++draft_requests;
  drafted += d.drafted;
  accepted += d.accepted;
  verify_low += d.steps.low;
  verify_high += d.steps.high;
  if (d.per_position.empty() || !d.steps.known()) return;
  ++position_requests;
  if (position_accepted.size() < d.per_position.size()) {
    position_accepted.resize(d.per_position.size());
    position_steps.resize(d.per_position.size());
  }
  for (size_t i = 0; i < d.per_position.size(); ++i) {
    position_steps[i] += static_cast<double>(d.steps.low);
    position_accepted[i] += d.per_position[i] * static_cast<double>(d.steps.low);
  }
}

std::optional<double> Totals::prompt_tok_s() const {
  if (prompt_ms <= 0) return std::nullopt;
  return static_cast<double>(prompt_tokens_evaluated) * 1000 / prompt_ms;
}
std::optional<double> Totals::decode_tok_s() const {
  if (decode_ms <= 0 || decode_tokens < 1) return std::nullopt;
  return static_cast<double>(decode_tokens) * 1000 / decode_ms;
}
std::optional<double> Totals::decode_tok_s_all() const {
  if (decode_ms <= 0) return std::nullopt;
  return static_cast<double>(generated_tokens) * 1000 / decode_ms;
}
std::optional<double> Totals::acceptance() const {
  if (drafted < 1) return std::nullopt;
  return static_cast<double>(accepted) / static_cast<double>(drafted);
}
std::optional<double> Totals::mean_accepted_len() const {
  if (verify_low < 1 || verify_low != verify_high) return std::nullopt;
  return 1 + static_cast<double>(accepted) / static_cast<double>(verify_low);
}
std::optional<double> Totals::tokens_per_step() const {
  if (steps < 1) return std::nullopt;
  return static_cast<double>(step_tokens) / static_cast<double>(steps);
}
std::optional<double> Totals::ms_per_step() const {
  if (steps < 1) return std::nullopt;
  return step_ms / static_cast<double>(steps);
}
std::vector<double> Totals::per_position() const {
  std::vector<double> out;
  for (size_t i = 0; i < position_accepted.size(); ++i) {
    out.push_back(position_steps[i] > 0 ? position_accepted[i] / position_steps[i] : 0);
  }
  return out;
}

void Depths::add(const Request& r) {
  const std::optional<double> context = mean_context(r);
  if (!context || !r.generated_tokens || !r.decode_ms) return;
  size_t bucket = 0;
  for (double edge = 1024; bucket + 1 < kBuckets && *context >= edge; edge *= 2) ++bucket;
  totals_[bucket].add(r);
  const std::optional<double> tok_s = decode_rate(*r.generated_tokens, *r.decode_ms);
  if (!tok_s) return;
  rate_.add(*context, *tok_s);
  const std::optional<int64_t> n_steps = decode_steps(r);
  if (n_steps && *n_steps > 0) step_ms_.add(*context, *r.decode_ms / static_cast<double>(*n_steps));
  if (r.draft && r.draft->drafted > 0) {
    const double share =
        static_cast<double>(r.draft->accepted) / static_cast<double>(r.draft->drafted);
    acceptance_.add(*context, share);
    rate_by_acceptance_.add(share, *tok_s);
  }
}

std::vector<Bucket> Depths::buckets() const {
  std::vector<Bucket> out;
  double from = 0, to = 1024;
  for (size_t i = 0; i < kBuckets; ++i) {
    if (totals_[i].requests > 0) {
      out.push_back(
          {from, i + 1 == kBuckets ? std::numeric_limits<double>::infinity() : to, totals_[i]});
    }
    from = to;
    to *= 2;
  }
  return out;
}

}  // namespace lockstep::lab::log
