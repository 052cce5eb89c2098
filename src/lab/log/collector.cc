#include "lab/log/collector.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep::lab::log {
namespace {

// Lives of one file: a server that restarts every second for a day is a loop, and no memory for it.
constexpr size_t kMaxLives = 100'000;

bool is_model_drafter(const Speculation& spec) {
  return spec.type.starts_with("draft");
}

}  // namespace

int64_t Collector::add_life(Life life) {
  if (analysis_.lives.size() == kMaxLives) {
    throw Error(ExitCode::bad_file,
                fmt::format("more than {} server starts in one log; give a part of it", kMaxLives));
  }
  analysis_.lives.push_back(std::move(life));
  lengths_.emplace_back();
  settled_at_.push_back(0);
  return static_cast<int64_t>(analysis_.lives.size()) - 1;
}

void Collector::add(Request request) {
  const int64_t index = analysis_.request_count++;
  Life& owner = life(request.life);
  request.ordinal = ++owner.requests;
  if (request.generated_tokens && request.decode_ms && request.decode_rate_printed) {
    request.denominator = find_denominator(*request.generated_tokens, *request.decode_ms,
                                           *request.decode_rate_printed);
    ++owner.denominators[static_cast<size_t>(request.denominator)];
  }
  if (request.draft) {
    ++owner.draft_lines[static_cast<size_t>(request.draft->line)];
    request.draft->steps = steps_from(*request.draft, request.generated_tokens);
    lengths_[static_cast<size_t>(request.life)].add(*request.draft);
  }
  if (analysis_.requests.size() < Analysis::kKept) {
    analysis_.requests.push_back(std::move(request));
    return;
  }
  settle_so_far(static_cast<size_t>(request.life));
  settle(request, index);
}

void Collector::add(Interval interval) {
  ++analysis_.interval_count;
  interval.draft.steps = steps_from(interval.draft, std::nullopt);
  lengths_[static_cast<size_t>(interval.life)].add(interval.draft);
  if (analysis_.intervals.size() < Analysis::kKept) {
    analysis_.intervals.push_back(std::move(interval));
    return;
  }
  settle_so_far(static_cast<size_t>(interval.life));
  settle(interval);
}

void Collector::contradiction(std::string id, int64_t line, int64_t request, std::string text) {
  ++analysis_.contradiction_count;
  if (analysis_.contradictions.size() < Analysis::kKeptFailures) {
    analysis_.contradictions.push_back({std::move(id), line, request, std::move(text)});
  }
}

void Collector::notice(std::string_view id, int64_t line, std::string_view text) {
  ++analysis_.notice_count;
  const int64_t now = static_cast<int64_t>(analysis_.lives.size());
  if (analysis_.notices.size() >= Analysis::kKeptFailures) return;
  const std::pair<int64_t, std::string> key{now, std::string(id)};
  if (std::find(noticed_.begin(), noticed_.end(), key) != noticed_.end()) return;
  noticed_.push_back(key);
  analysis_.notices.push_back({std::string(id), line, std::string(text)});
}

// The longest draft that may be in force: what was found, else what was asked for.
std::optional<int64_t> Collector::longest_draft(const Life& owner) const {
  if (owner.draft_length) return owner.draft_length;
  std::optional<int64_t> longest;
  for (const Speculation& spec : owner.speculation) {
    if (spec.n_max && *spec.n_max >= 1) longest = std::max(longest.value_or(0), *spec.n_max);
  }
  return longest;
}

// Beyond the requests that are kept, by what is known so far: again when an eighth more is known.
void Collector::settle_so_far(size_t index) {
  const int64_t known = lengths_[index].requests();
  if (settled_at_[index] > 0 && known < settled_at_[index] + settled_at_[index] / 8) return;
  settled_at_[index] = std::max<int64_t>(known, 1);
  settle_life(index);
}

void Collector::settle_life(size_t index) {
  Life& owner = analysis_.lives[index];
  const DraftLengths& lengths = lengths_[index];
  owner.draft_length.reset();
  owner.draft_length_proved = false;
  if (lengths.requests() == 0) return;
  const auto found = lengths.find();
  const bool by_model =
      owner.speculation.empty() ||
      std::any_of(owner.speculation.begin(), owner.speculation.end(), is_model_drafter);
  if (found && !found->proved && !by_model) {
    owner.draft_length_how = "n-gram drafts end where their match does: no fixed length";
    return;
  }
  if (!found) {
    owner.draft_length_how =
        fmt::format("the drafts have no fixed length (no n explains nine in ten of {} rows)",
                    lengths.requests());
    return;
  }
  owner.draft_length = found->length;
  owner.draft_length_proved = found->proved;
  owner.draft_length_how = fmt::format(
      "{} of {} rows drafted a whole multiple of {}{}, {}", found->agree, lengths.requests(),
      found->length,
      found->with_cut > 0 ? fmt::format(", {} more but for drafts cut at the end", found->with_cut)
                          : "",
      found->by_steps
          ? std::string("by the steps that printed mean lengths or statistics lines give")
          : fmt::format("which counts that have nothing to do with {} do with "
                        "probability 10^{:.1f}",
                        found->length, found->log10_chance));
  if (!found->proved) owner.draft_length_how += "; too few rows to call it proved";
}

void Collector::settle(Request& request, int64_t index) {
  const Life& owner = life(request.life);
  std::optional<int64_t> longest;
  if (request.draft) {
    if (owner.draft_length) narrow_steps(*request.draft, *owner.draft_length);
    longest = longest_draft(owner);
  }
  // At its end a context holds the prompt, what was generated but for the last token, and what a
  // stop cut off a draft. So end - (N - 1) - evaluated = cached + cut: without a draft it is
  // cached, and where it is 0 both are.
  if (!request.cached_tokens && request.end_tokens && request.generated_tokens &&
      request.evaluated_tokens && *request.generated_tokens >= 1 &&
      !request.truncated.value_or(false)) {
    const int64_t more =
        *request.end_tokens - (*request.generated_tokens - 1) - *request.evaluated_tokens;
    if (more == 0 || (more > 0 && !request.draft)) {
      request.cached_tokens = more;
      request.cached_from = CachedFrom::end;
      if (!request.prompt_tokens) request.prompt_tokens = more + *request.evaluated_tokens;
    } else if (more > longest.value_or(kMaxDraft)) {
      request.witnesses.push_back(Witness::context_end);
    }
  }
  for (Failure& failure : check_request(request, longest)) {
    contradiction(std::move(failure.id), request.line, index, std::move(failure.text));
  }
  analysis_.totals.add(request);
  analysis_.depths.add(request);
}

void Collector::settle(Interval& interval) {
  const Life& owner = life(interval.life);
  if (owner.draft_length) narrow_steps(interval.draft, *owner.draft_length);
  for (Failure& failure : check_drafting(interval.draft)) {
    contradiction(std::move(failure.id), interval.line, -1, std::move(failure.text));
  }
  analysis_.totals.add(interval);
}

Analysis Collector::finish() {
  for (size_t i = 0; i < analysis_.lives.size(); ++i) {
    settle_life(i);
    const Life& owner = analysis_.lives[i];
    if (!owner.draft_length || !owner.draft_length_proved) continue;
    for (const Speculation& spec : owner.speculation) {
      const bool fixed = is_model_drafter(spec) && spec.p_min.value_or(0) == 0;
      if (!spec.n_max || *spec.n_max == *owner.draft_length || owner.speculation.size() > 1)
        continue;
      if (spec.clamped_to && *spec.clamped_to == *owner.draft_length) continue;
      if (!fixed && *owner.draft_length < *spec.n_max)
        continue;  // a threshold, or n-grams that end
      contradiction("draft_length", owner.first_line, -1,
                    fmt::format("{} was to draft {} tokens; {} were drafted a step ({})", spec.type,
                                *spec.n_max, *owner.draft_length, owner.draft_length_how));
    }
  }
  // Requests beyond those kept were added when they came.
  int64_t index = 0;
  for (Request& request : analysis_.requests) settle(request, index++);
  for (Interval& interval : analysis_.intervals) settle(interval);
  // A fifth of a percent of rejections would have shown in so many tokens.
  constexpr int64_t kMany = 500;
  const Totals& totals = analysis_.totals;
  if (totals.drafted >= kMany && totals.accepted == totals.drafted) {
    notice(
        "all_accepted", 0,
        "every drafted token was accepted: the prompts repeat themselves, the drafter is the model "
        "itself, or acceptance is not checked");
  }
  std::stable_sort(analysis_.contradictions.begin(), analysis_.contradictions.end(),
                   [](const auto& a, const auto& b) { return a.line < b.line; });
  return std::move(analysis_);
}

}  // namespace lockstep::lab::log
