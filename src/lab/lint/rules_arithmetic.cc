// V6 closed, V7 metric, V11 possible: what the figures say of each other.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "lab/lint/row_context.h"

namespace lockstep::lab {
namespace {

// Verify steps v, passes with a draft: counted, or those that a printed mean length allows.
struct Steps {
  int64_t low = 0, high = 0;
  std::string from;
};

// mean = 1 + a / v printed with two decimals: v between a / (mean + 0.005 - 1) and a / (mean -
// 0.005 - 1).
std::optional<Steps> steps_from_mean(int64_t accepted, double mean) {
  if (accepted <= 0 || mean - 0.005 <= 1) return std::nullopt;
  const auto a = static_cast<double>(accepted);
  // A mean this close to 1 says nothing of the steps.
  if (a / (mean - 0.0050001 - 1) > static_cast<double>(kMostCount) || mean - 0.0050001 <= 1) {
    return std::nullopt;
  }
  const auto low = static_cast<int64_t>(std::ceil(a / (mean + 0.0050001 - 1)));
  const auto high = static_cast<int64_t>(std::floor(a / (mean - 0.0050001 - 1)));
  return Steps{low, high, "the mean length"};
}

class Accounts {
 public:
  explicit Accounts(const RowContext& row) : row_(row) {}

  Finding judge() {
    counts();
    prompt();
    drafting();
    depths();
    positions();
    rates();
    said_by_the_log();
    if (!wrong_.empty()) {
      return fails(
          fmt::format("it does not add up: {}", fmt::join(wrong_, "; ")),
          "the figures are not understood, or another client was active: do not quote them");
    }
    if (closed_.empty()) {
      return unknown("no two of its counts say the same thing",
                     "record prompt, cached and evaluated tokens, steps, drafted and accepted");
    }
    return holds(fmt::format("{}", fmt::join(closed_, "; ")));
  }

 private:
  void check(bool is_so, std::string what) {
    (is_so ? closed_ : wrong_).push_back(std::move(what));
  }

  void counts() {
    for (const Fact& fact : row_.row.object.facts()) {
      const auto value = fact.integer();
      if (value && (*value > kMostCount || *value < -kMostCount)) {
        wrong_.push_back(fmt::format("{} = {}", fact.name, *value));
      }
    }
  }

  // E.5.5: prompt_n + cache_n = the prompt's length.
  void prompt() {
    const auto prompt = row_.integer("prompt_tokens"), cached = row_.integer("cached_tokens"),
               evaluated = row_.integer("evaluated_tokens");
    if (prompt && cached && (*cached < 0 || *cached > *prompt)) {
      wrong_.push_back(fmt::format("{} cached of {} prompt tokens", *cached, *prompt));
    }
    if (!prompt || !cached || !evaluated) return;
    check(*evaluated + *cached == *prompt,
          fmt::format("{} evaluated + {} cached {} {} prompt tokens", *evaluated, *cached,
                      *evaluated + *cached == *prompt ? "=" : "is not", *prompt));
  }

  // E.5.1, .2, .3, .7.
  void drafting() {
    const auto a = row_.integer("draft.accepted"), g = row_.integer("draft.drafted"),
               n = row_.integer("generated_tokens"), all = row_.integer("draft.steps");
    const auto mean = row_.number("draft.mean_len");
    if (a && g) {
      if (*a < 0 || *g < 0 || *a > *g) {
        wrong_.push_back(fmt::format("{} accepted of {} drafted", *a, *g));
        return;
      }
    }
    if (!a) return;
    // Our own result counts every pass that chose a token, the prompt's too: N = a + steps - cut,
    // and at most one draft was cut off at the end.
    if (all && n && row_.text("format").starts_with("lockstep.run")) {
      const int64_t cut = *a + *all - *n;
      const int64_t n_max = longest_draft().value_or(0);
      check(cut >= 0 && cut <= n_max, fmt::format("{} steps + {} accepted {} {} tokens", *all, *a,
                                                  cut == 0                  ? "="
                                                  : cut > 0 && cut <= n_max ? "covers"
                                                                            : "is not",
                                                  *n));
      if (mean && *all > 0) {
        const double is = static_cast<double>(*n) / static_cast<double>(*all);
        check(std::abs(is - *mean) < 0.006, fmt::format("mean length {:.2f}", *mean));
      }
      return;
    }
    std::optional<Steps> v;
    if (mean) v = steps_from_mean(*a, *mean);
    if (all && *all > 0) {
      // vLLM counts drafts: mean = 1 + a / drafts.
      if (v) {
        check(*all >= v->low && *all <= v->high,
              fmt::format("mean length {:.2f} {} 1 + {}/{}", *mean,
                          *all >= v->low && *all <= v->high ? "=" : "is not", *a, *all));
      }
      v = Steps{*all, *all, "the count of drafts"};
    }
    // 1.00 may be a rounded 1.004; below it nothing can be.
    if (mean && *a > 0 && *mean + 0.0051 < 1) {
      wrong_.push_back(fmt::format("mean length {:.2f} with {} accepted", *mean, *a));
    }
    if (!v) return;
    if (v->low > v->high) {
      wrong_.push_back(fmt::format("no number of steps gives mean length {:.2f} with {} accepted",
                                   mean.value_or(0), *a));
      return;
    }
    if (g) {
      // Some v of the interval, at least one drafted token a step and not more than 64.
      const bool fits = *g >= v->low && *g <= 64 * v->high;
      check(fits, fmt::format("{} drafted in {} steps", *g, interval(*v)));
      const auto n_max = longest_draft();
      if (n_max && *n_max > 0) {
        check(*g <= *n_max * v->high,
              fmt::format("{} drafted in {} steps of at most {}", *g, interval(*v), *n_max));
        if (mean) {
          check(*mean <= static_cast<double>(*n_max) + 1.005,
                fmt::format("mean length {:.2f} with drafts of at most {}", *mean, *n_max));
        }
      }
    }
    // N = 1 + a + v + u - c with u >= 0 and c of one draft at most: v <= N - 1 - a + 64.
    if (n && row_.row.object.kind() == Kind::row) {
      check(v->low <= *n - 1 - *a + 64 && *a < *n + 64,
            fmt::format("1 + {} accepted + {} steps against {} tokens", *a, interval(*v), *n));
    }
  }

  std::optional<int64_t> longest_draft() const {
    const auto n_max = read_integer(row_.effective("n_max"));
    return n_max && *n_max >= 0 && *n_max <= 1'000'000 ? n_max : std::nullopt;
  }

  static std::string interval(const Steps& v) {
    return v.low == v.high ? fmt::format("{}", v.low) : fmt::format("{}–{}", v.low, v.high);
  }

  // Σ k · depths[k] = drafted, Σ depths = steps.
  void depths() {
    const std::vector<double> depths = row_.numbers("draft.depths");
    const auto g = row_.integer("draft.drafted"), steps = row_.integer("draft.steps");
    if (depths.empty()) return;
    double passes = 0, drafted = 0;
    for (size_t k = 0; k < depths.size(); ++k) {
      passes += depths[k], drafted += static_cast<double>(k) * depths[k];
    }
    if (steps) {
      check(passes == static_cast<double>(*steps),
            fmt::format("depths cover {} of {} steps", passes, *steps));
    }
    if (g) {
      check(drafted == static_cast<double>(*g),
            fmt::format("depths give {} of {} drafted", drafted, *g));
    }
  }

  // E.5.6: Σ per-position accepted × v = a, and the shares do not rise (of all steps; a share of
  // what was drafted at a place may).
  void positions() {
    const std::vector<double> shares = row_.numbers("draft.per_position");
    const auto a = row_.integer("draft.accepted");
    if (shares.empty() || !a) return;
    if (std::any_of(shares.begin(), shares.end(), [](double s) { return s < 0 || s > 1; })) {
      wrong_.emplace_back("an acceptance outside 0 to 1");
      return;
    }
    const std::vector<double> depths = row_.numbers("draft.depths");
    if (!depths.empty()) {
      double sum = 0;
      for (size_t i = 0; i < shares.size(); ++i) {
        double drafted = 0;
        for (size_t k = i + 1; k < depths.size(); ++k) drafted += depths[k];
        sum += shares[i] * drafted;
      }
      check(std::abs(sum - static_cast<double>(*a)) < 0.5,
            fmt::format("the positions give {:.1f} of {} accepted", sum, *a));
      return;
    }
    for (size_t i = 1; i < shares.size(); ++i) {
      if (shares[i] > shares[i - 1] + 1e-3) {
        wrong_.push_back(fmt::format("acceptance rises from place {} to {}", i, i + 1));
        return;
      }
    }
    const auto mean = row_.number("draft.mean_len");
    if (!mean) return;
    double sum = 1;
    for (const double share : shares) sum += share;
    // Shares of three decimals, one each.
    const double room = 0.006 + 0.0006 * static_cast<double>(shares.size());
    check(std::abs(sum - *mean) <= room,
          fmt::format("the positions give mean length {:.2f}, {:.2f} is said", sum, *mean));
  }

  void rates() {
    const auto ms = row_.number("decode_ms"), rate = row_.number("decode_tok_s"),
               wall = row_.number("wall_tok_s");
    const auto n = row_.integer("generated_tokens");
    for (const std::string_view name :
         {"decode_ms", "prompt_ms", "ttft_ms", "decode_tok_s", "wall_tok_s"}) {
      const auto value = row_.number(name);
      if (value && *value < 0) wrong_.push_back(fmt::format("{} = {}", name, *value));
    }
    if (ms && rate && n && *n > 1 && *ms > 0) {
      const Denominator which = denominator_of(row_);
      check(which != Denominator::neither,
            fmt::format("{} tokens in {:.2f} ms {} {:.2f} tok/s", *n, *ms,
                        which != Denominator::neither ? "are" : "are not", *rate));
    }
    if (wall && rate && *rate > 0) {
      // All n tokens over all the time against those after the first step over less.
      const int64_t first = std::max<int64_t>(1, row_.integer("first_tokens").value_or(1));
      const double room =
          n && *n > first ? static_cast<double>(*n) / static_cast<double>(*n - first) : 1.1;
      check(
          *wall <= *rate * room * (1 + 1e-6),
          fmt::format("the rate with the prompt's time, {:.2f}, {} the one without, {:.2f}", *wall,
                      *wall <= *rate * room * (1 + 1e-6) ? "is below" : "is above", *rate));
    }
    const std::vector<double> samples = row_.numbers("samples_tok_s");
    const auto stated = rate ? rate : row_.number("tok_s");
    if (!samples.empty() && stated) {
      double sum = 0;
      for (const double sample : samples) sum += sample;
      const double mean = sum / static_cast<double>(samples.size());
      // Samples are printed with six digits.
      check(std::abs(mean - *stated) <= 1e-3 * std::abs(*stated),
            fmt::format("the mean of {} samples is {:.2f}, {:.2f} is said", samples.size(), mean,
                        *stated));
    }
    const auto most = row_.number("support.max_tok_s"), middle = row_.number("support.mean_tok_s");
    if (most && middle) {
      check(*middle <= *most * (1 + 1e-9),
            fmt::format("the mean {:.2f} {} the largest, {:.2f}", *middle,
                        *middle <= *most ? "is below" : "is above", *most));
    }
  }

  void said_by_the_log() {
    const Fact* fact = row_.fact("contradictions");
    if (!fact) return;
    const auto list = nlohmann::json::parse(fact->value, nullptr, false);
    if (!list.is_array()) return;
    for (const auto& one : list) {
      if (one.is_string()) wrong_.push_back(one.get<std::string>().substr(0, 200));
    }
  }

  const RowContext& row_;
  std::vector<std::string> closed_, wrong_;
};

std::string_view generation_text(Denominator d) {
  return d == Denominator::all ? "all n tokens over the time" : "the n - 1 after the first";
}

}  // namespace

Denominator denominator_of(int64_t n, double ms, double rate, bool loose) {
  if (n < 1 || ms <= 0) return Denominator::not_known;
  const double t = ms / 1e3, all = static_cast<double>(n) / t,
               steps = static_cast<double>(n - 1) / t;
  // Both numbers are printed with two decimals at least.
  double room = 0.0051 + rate * (0.0051 / ms);
  if (loose) room = std::max(room, 0.3 / t);
  const double d_all = std::abs(all - rate), d_steps = std::abs(steps - rate);
  if (std::min(d_all, d_steps) > room) return Denominator::neither;
  if (std::max(d_all, d_steps) <= room) return Denominator::either;
  return d_all < d_steps ? Denominator::all : Denominator::steps;
}

Denominator denominator_of(const RowContext& row) {
  const auto n = row.integer("generated_tokens");
  const auto ms = row.number("decode_ms");
  const auto printed = row.number("printed_tok_s");
  const auto rate = printed ? printed : row.number("decode_tok_s");
  if (n && ms && rate) {
    // A first step with a draft in it brings several tokens at once, and none of them took the time
    // that is divided.
    const auto first = row.integer("first_tokens");
    if (first && *first > 1 && *first < *n &&
        denominator_of(*n - *first + 1, *ms, *rate, false) == Denominator::steps) {
      return Denominator::steps;
    }
    return denominator_of(*n, *ms, *rate, row.integer("repetitions").value_or(1) > 1);
  }
  const std::string said = row.text("denominator");
  if (said == "n") return Denominator::all;
  if (said == "n-1") return Denominator::steps;
  return Denominator::not_known;
}

Finding check_closed(const RowContext& row) {
  return Accounts(row).judge();
}

Finding check_metric(const RowContext& row) {
  const Denominator mine = denominator_of(row);
  const auto events = row.integer("events"), tokens = row.integer("generated_tokens");
  if (mine == Denominator::neither) {
    return fails("neither n nor n - 1 tokens over the time give the rate that is said",
                 "find out what the rate divides");
  }
  if (events && tokens && *events < *tokens) {
    return unknown(fmt::format("{} tokens came in {} events: the time of an event is not that of a "
                               "token, and how many came with the first is not known",
                               *tokens, *events),
                   "record token ids with every event, or use the server's own timings");
  }
  if (mine == Denominator::not_known || mine == Denominator::either) {
    return unknown(mine == Denominator::either
                       ? "too few tokens to tell n from n - 1 in the rate that is said"
                       : "time and tokens are not recorded, so nothing tells what the rate divides",
                   "record decode_ms and generated_tokens");
  }
  if (row.result.all && row.result.steps) {
    return fails("rows of this result divide different things: some all n tokens, some n - 1",
                 "compute all of them as (n - 1) / t");
  }
  if (row.options.control) {
    const ResultFacts none;
    for (const Catalog::Item* other : row.options.control->of(Kind::row)) {
      // Of a ledger only the rows of the run that was named.
      if (row.options.control == row.options.ledger &&
          row.options.control->run_of(*other) != row.options.control_item &&
          other != row.options.control_item) {
        continue;
      }
      const Denominator theirs = denominator_of(
          RowContext{*row.options.control, row.options, *other, row.options.control->run_of(*other),
                     row.options.control->identity_of(*other), nullptr, none});
      if ((theirs == Denominator::all || theirs == Denominator::steps) && theirs != mine) {
        return fails(
            fmt::format("the control's rate divides another number of tokens than this one "
                        "({})",
                        generation_text(mine)),
            "compute both as (n - 1) / t: at 512 tokens the two differ by 0.2 %");
      }
    }
  }
  const auto n = row.integer("generated_tokens");
  const auto ms = row.number("decode_ms");
  if (mine == Denominator::all && n && ms && *n > 1 && *ms > 0) {
    return holds(fmt::format("the rate divides all n tokens; (n - 1) / t is {:.2f}",
                             static_cast<double>(*n - 1) / *ms * 1e3));
  }
  return holds(fmt::format("the rate divides {}", generation_text(mine)));
}

Finding check_possible(const RowContext& row) {
  auto rate = row.number("decode_tok_s");
  if (rate && *rate <= 0) {
    return fails(fmt::format("{} tok/s", *rate), "no such rate can be: look where it comes from");
  }
  for (const std::string_view name : {"decode_ms", "ttft_ms", "ms_per_pass"}) {
    const auto value = row.number(name);
    if (value && *value < 0) {
      return fails(fmt::format("{} = {}", name, *value),
                   "time does not run backwards: look at the clock it was read from");
    }
  }
  const auto bandwidth =
      row.options.bandwidth_gb_s ? row.options.bandwidth_gb_s : row.number("bandwidth_gb_s");
  const auto bytes =
      row.options.bytes_per_pass ? row.options.bytes_per_pass : row.number("bytes_per_pass");
  const auto pass_ms = row.number("ms_per_pass");
  if (!bandwidth || !bytes || *bytes <= 0 || *bandwidth <= 0 || (!rate && !pass_ms)) {
    std::string missing;
    const auto lacks = [&](bool there, std::string_view what) {
      if (!there) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", what);
    };
    lacks(rate || pass_ms, "a rate");
    lacks(bandwidth.has_value(), "the bandwidth (--bandwidth)");
    lacks(bytes.has_value(), "the bytes of a pass (--bytes; lab roof or inspect give them)");
    return unknown(fmt::format("not known: {}", missing), "give what is missing");
  }
  // A pass reads at least the bytes of one row, and gives as many tokens as were accepted, plus
  // one.
  double per_pass = 1;
  const auto n = row.integer("generated_tokens"), a = row.integer("draft.accepted"),
             steps = row.integer("draft.steps");
  if (const auto mean = row.number("draft.mean_len"); mean && *mean >= 1) {
    per_pass = *mean;
  } else if (n && steps && *steps > 0) {
    per_pass = static_cast<double>(*n) / static_cast<double>(*steps);
  } else if (n && a && *n > *a && *a > 0) {
    per_pass = static_cast<double>(*n) / static_cast<double>(*n - *a);
  }
  const double passes_s = rate ? *rate / per_pass : 1e3 / *pass_ms;
  const double limit_s = *bandwidth * 1e9 / *bytes;
  const double share = passes_s / limit_s;
  const std::string what = fmt::format(
      "{:.1f} passes a second of {:.2f} GB at {:.0f} GB/s: {:.0f} % of the memory's limit "
      "({:.1f} tok/s at {:.2f} tokens a pass)",
      passes_s, *bytes / 1e9, *bandwidth, 100 * share, limit_s * per_pass, per_pass);
  // 2 % for the bandwidth's own reading.
  if (share > 1.02) {
    return fails(what, "the bytes fit a cache, the bandwidth is another, or the rate is not real");
  }
  if (share < 0.05) {
    return fails(what + ": below a twentieth",
                 "look for layers on the CPU, a spill to host memory, or another process");
  }
  return holds(what);
}

}  // namespace lockstep::lab
