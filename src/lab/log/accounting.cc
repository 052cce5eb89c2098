#include "lab/log/accounting.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::lab::log {
namespace {

// Half a unit of the last place, and a little for values that were rounded to binary before.
constexpr double kHalf2 = 0.005 * (1 + 1e-9) + 1e-9;
constexpr double kHalf3 = 0.0005 * (1 + 1e-9) + 1e-12;

// Whether k / t, with t known to half a unit of 2 decimals, is printed as `rate` with 2 decimals.
bool gives(double k, double ms, double rate) {
  const double high_ms = ms + kHalf2, low_ms = std::max(ms - kHalf2, 1e-9);
  return k * 1000 / high_ms <= rate + kHalf2 && k * 1000 / low_ms >= rate - kHalf2;
}

// To a whole number; what no count of steps can be stays far above every count.
int64_t whole(double value) {
  return static_cast<int64_t>(std::clamp(value, -1e15, 1e15));
}

int64_t divide_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

Denominator find_denominator(int64_t n, double ms, double printed_rate) {
  if (n < 1 || ms <= 0) return Denominator::unknown;
  const bool all = gives(static_cast<double>(n), ms, printed_rate);
  const bool steps = gives(static_cast<double>(n - 1), ms, printed_rate);
  return all && steps ? Denominator::either
         : all        ? Denominator::all
         : steps      ? Denominator::steps
                      : Denominator::neither;
}

std::optional<double> decode_rate(int64_t n, double ms) {
  if (n < 2 || ms <= 0) return std::nullopt;
  return static_cast<double>(n - 1) * 1000 / ms;
}

Range steps_from(const Drafting& draft, std::optional<int64_t> generated_tokens) {
  const int64_t a = draft.accepted, g = draft.drafted;
  Range range{std::max<int64_t>(1, divide_up(std::max<int64_t>(g, a), kMaxDraft)),
              std::max<int64_t>(g, 1)};
  if (generated_tokens && (!draft.printed_mean || a == 0)) {
    // v <= N - 1 - a + c - u, and no more than the last draft was cut off.
    range.high = std::min(range.high, std::max<int64_t>(1, *generated_tokens - 1 - a + kMaxDraft));
  }
  if (draft.printed_mean && a > 0) {
    const double mean = *draft.printed_mean;
    if (mean + kHalf2 <= 1) return {1, 0};
    const double low = static_cast<double>(a) / (mean + kHalf2 - 1);
    range.low = std::max(range.low, whole(std::ceil(low - 1e-9)));
    if (mean - kHalf2 > 1) {
      const double high = static_cast<double>(a) / (mean - kHalf2 - 1);
      range.high = std::min(range.high, whole(std::floor(high + 1e-9)));
    }
  }
  if (draft.counted_steps && *draft.counted_steps >= range.low &&
      *draft.counted_steps <= range.high) {
    range = {*draft.counted_steps, *draft.counted_steps};
  }
  // Each share by position is a whole number of steps over v, printed with 3 decimals, and they
  // sum to a. Only worth the time where few candidates are left.
  if (!draft.per_position.empty() && !range.known() && range.low <= range.high &&
      range.high - range.low <= 4096) {
    const auto fits = [&](int64_t v) {
      int64_t low = 0, high = 0;
      for (const double share : draft.per_position) {
        const auto from =
            static_cast<int64_t>(std::ceil((share - kHalf3) * static_cast<double>(v)));
        const auto to = static_cast<int64_t>(std::floor((share + kHalf3) * static_cast<double>(v)));
        if (from > to) return false;
        low += std::max<int64_t>(from, 0);
        high += to;
      }
      return low <= a && a <= high;
    };
    int64_t low = range.low, high = range.high;
    while (low <= high && !fits(low)) ++low;
    while (high >= low && !fits(high)) --high;
    if (low <= high) range = {low, high};  // else check_drafting() says what doesn't fit
  }
  return range;
}

std::optional<int64_t> decode_steps(const Request& request) {
  if (!request.generated_tokens || *request.generated_tokens < 1) return std::nullopt;
  const int64_t n = *request.generated_tokens;
  if (!request.draft) return n - 1;
  const int64_t rest = n - 1 - request.draft->accepted;
  if (rest >= request.draft->steps.high) return rest;
  if (request.draft->steps.known()) return std::max(rest, request.draft->steps.low);
  return std::nullopt;
}

void DraftLengths::add(const Drafting& draft) {
  if (draft.drafted < 1 || draft.steps.low > draft.steps.high) return;
  ++requests_;
  with_steps_ += (draft.printed_mean.has_value() && draft.accepted > 0) ||
                 (draft.counted_steps.has_value() && draft.steps.known());
  gcd_ = std::gcd(gcd_, draft.drafted);
  const int64_t g = draft.drafted;
  for (int64_t n = 1; n <= kMaxDraft; ++n) {
    const int64_t v = std::max(divide_up(g, n), draft.steps.low);
    if (v > draft.steps.high) continue;
    const int64_t missing = n * v - g;
    if (missing == 0) {
      ++exact_[static_cast<size_t>(n)];
    } else if (missing <= n * (n - 1) / 2 && missing * 3 <= n * v) {
      ++cut_[static_cast<size_t>(n)];
    }
  }
}

std::optional<DraftLengths::Found> DraftLengths::find() const {
  if (requests_ == 0) return std::nullopt;
  const bool by_steps = with_steps_ * 2 > requests_;
  int64_t best = 0, best_score = -1;
  for (int64_t n = 1; n <= kMaxDraft; ++n) {
    const int64_t agree = exact(n) + cut(n);
    if (agree * 10 < requests_ * 9) continue;
    // A whole multiple says more than one with cut drafts, which a longer length explains easily.
    // Where the steps are known, of two lengths the shorter needs less cutting; where they aren't,
    // every divisor of a length explains what it does.
    const int64_t score = agree * 4 + exact(n) * 8;
    if (score > best_score || (score == best_score && !by_steps)) {
      best = n;
      best_score = score;
    }
  }
  if (best == 0) return std::nullopt;
  Found found;
  found.length = best;
  found.agree = exact(best);
  found.with_cut = cut(best);
  found.by_steps = by_steps;
  found.log10_chance = -static_cast<double>(found.agree) * std::log10(static_cast<double>(best));
  if (found.agree == 0 && !by_steps) return std::nullopt;
  int64_t others = 0;  // lengths that explain every row, too
  for (int64_t n = 1; n <= kMaxDraft; ++n) others += n != best && exact(n) + cut(n) == requests_;
  found.proved = found.agree + found.with_cut == requests_ && requests_ >= 3 &&
                 (by_steps ? found.agree * 2 > requests_ || others == 0
                           : found.log10_chance < -3 && found.with_cut == 0);
  return found;
}

void narrow_steps(Drafting& draft, int64_t length) {
  if (draft.drafted % length != 0) return;
  const int64_t v = draft.drafted / length;
  if (draft.steps.low <= v && v <= draft.steps.high) draft.steps = {v, v};
}

std::vector<Failure> check_drafting(const Drafting& draft) {
  std::vector<Failure> out;
  const int64_t a = draft.accepted, g = draft.drafted;
  if (a < 0 || g < 0) {
    out.push_back({"negative", fmt::format("{} accepted of {} drafted", a, g)});
    return out;
  }
  if (a > g) {
    out.push_back(
        {"accepted_above_drafted", fmt::format("{} accepted, but only {} drafted", a, g)});
  }
  if (draft.printed_ratio && g > 0) {
    const double ratio = static_cast<double>(a) / static_cast<double>(g);
    if (std::abs(ratio - *draft.printed_ratio) >
        draft.ratio_half_unit + 1e-7  // printed from a float
    ) {
      out.push_back({"acceptance_ratio", fmt::format("{} of {} are {:.5f}, not the printed {:.5f}",
                                                     a, g, ratio, *draft.printed_ratio)});
    }
  }
  if (draft.printed_mean && draft.steps.low > draft.steps.high) {
    out.push_back({"mean_length",
                   fmt::format("no number of steps gives the printed mean length {:.2f} with {} "
                               "accepted of {} drafted",
                               *draft.printed_mean, a, g)});
  }
  for (size_t i = 1; i < draft.per_position.size(); ++i) {
    if (draft.per_position[i] > draft.per_position[i - 1]) {
      out.push_back({"positions_rise",
                     fmt::format("position {} was accepted in {:.3f} of the steps, "
                                 "position {} in {:.3f}: a token counts only after "
                                 "all before it",
                                 i + 1, draft.per_position[i], i, draft.per_position[i - 1])});
      break;
    }
  }
  if (!draft.per_position.empty() && draft.steps.known()) {
    double sum = 0;
    for (const double share : draft.per_position) sum += share;
    const auto v = static_cast<double>(draft.steps.low);
    const double slack = v * kHalf3 * static_cast<double>(draft.per_position.size()) + 1e-6;
    if (std::abs(sum * v - static_cast<double>(a)) > slack) {
      out.push_back({"positions_sum", fmt::format("the shares by position sum to {:.3f}, times {} "
                                                  "steps that is {:.1f} accepted tokens, not {}",
                                                  sum, draft.steps.low, sum * v, a)});
    }
  }
  return out;
}

std::vector<Failure> check_request(const Request& r, std::optional<int64_t> longest) {
  std::vector<Failure> out;
  const auto add = [&out](std::string id, std::string text) {
    out.push_back({std::move(id), std::move(text)});
  };
  for (const auto& [name, ms] : {std::pair{"prompt", r.prompt_ms}, std::pair{"decode", r.decode_ms},
                                 std::pair{"total", r.total_ms}}) {
    if (ms && *ms < 0) add("negative", fmt::format("{} time of {} ms", name, *ms));
  }
  for (const auto& [name, n] :
       {std::pair{"prompt", r.evaluated_tokens}, std::pair{"generated", r.generated_tokens}}) {
    if (n && *n < 0) add("negative", fmt::format("{} {} tokens", *n, name));
  }
  if (r.denominator == Denominator::neither) {
    add("decode_rate",
        fmt::format("{} tokens in {:.2f} ms are {:.2f} tok/s, or {:.2f} without the first; printed "
                    "is {:.2f}",
                    *r.generated_tokens, *r.decode_ms,
                    static_cast<double>(*r.generated_tokens) * 1000 / *r.decode_ms,
                    static_cast<double>(*r.generated_tokens - 1) * 1000 / *r.decode_ms,
                    *r.decode_rate_printed));
  }
  if (r.prompt_ms && r.evaluated_tokens && r.prompt_rate_printed && *r.prompt_ms > 0 &&
      *r.evaluated_tokens > 0 &&
      !gives(static_cast<double>(*r.evaluated_tokens), *r.prompt_ms, *r.prompt_rate_printed)) {
    add("prompt_rate", fmt::format("{} prompt tokens in {:.2f} ms are not {:.2f} tok/s",
                                   *r.evaluated_tokens, *r.prompt_ms, *r.prompt_rate_printed));
  }
  if (r.total_ms && r.prompt_ms && r.decode_ms &&
      std::abs(*r.total_ms - *r.prompt_ms - *r.decode_ms) > 3 * kHalf2) {
    add("total_time", fmt::format("prompt {:.2f} ms and decode {:.2f} ms are not the printed total "
                                  "{:.2f} ms",
                                  *r.prompt_ms, *r.decode_ms, *r.total_ms));
  }
  if (r.total_tokens && r.evaluated_tokens && r.generated_tokens &&
      *r.total_tokens != *r.evaluated_tokens + *r.generated_tokens) {
    add("total_tokens",
        fmt::format("{} prompt and {} generated tokens are not the printed total {}",
                    *r.evaluated_tokens, *r.generated_tokens, *r.total_tokens));
  }
  if (r.prompt_tokens && r.cached_tokens && r.evaluated_tokens &&
      r.cached_from == CachedFrom::log &&
      *r.cached_tokens + *r.evaluated_tokens != *r.prompt_tokens) {
    add("prompt_length", fmt::format("{} cached and {} evaluated tokens are not the prompt's {}",
                                     *r.cached_tokens, *r.evaluated_tokens, *r.prompt_tokens));
  }
  if (!r.draft) return out;
  for (Failure& failure : check_drafting(*r.draft)) out.push_back(std::move(failure));
  const Drafting& d = *r.draft;
  if (r.generated_tokens && d.steps.low <= d.steps.high) {
    // Tokens of the last draft that a limit cut off: no more than it had.
    const int64_t cut = d.accepted + d.steps.low + 1 - *r.generated_tokens;
    const int64_t most = longest.value_or(kMaxDraft);
    if (cut > most) {
      add("tokens", fmt::format("1 + {} accepted + {} verify steps are {} tokens, but {} were "
                                "generated, and a limit can cut off at most {}",
                                d.accepted, d.steps.low, 1 + d.accepted + d.steps.low,
                                *r.generated_tokens, most));
    }
  }
  if (longest && d.printed_mean && *d.printed_mean - kHalf2 > static_cast<double>(*longest + 1)) {
    add("mean_above_length",
        fmt::format("a mean length of {:.2f} is not possible with drafts of {}", *d.printed_mean,
                    *longest));
  }
  return out;
}

}  // namespace lockstep::lab::log
