#include "lab/log/text_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "lab/log/accounting.h"
#include "lab/log/names.h"

namespace lockstep::lab::log {
namespace {

constexpr size_t kShownRequests = 40, kShownFailures = 20;

template <typename T>
std::string or_dash(const std::optional<T>& value, const char* format) {
  return value ? fmt::format(fmt::runtime(format), *value) : "-";
}

std::string range_text(Range range) {
  return range.known() ? fmt::format("{}", range.low)
                       : fmt::format("{}..{}", range.low, range.high);
}

std::string warmth(const Request& r) {
  const std::optional<bool> warm = is_warm(r);
  if (!warm) return "?";
  if (!*warm) return "cold";
  return r.cached_tokens ? fmt::format("{} cached", *r.cached_tokens) : "warm";
}

std::string count_of(int64_t n, std::string_view one) {
  return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
}

std::string files_text(const Analysis& a) {
  std::string out;
  for (const FileFacts& file : a.files) {
    out += fmt::format("{}: {}, {} used", escape(file.path, 200),
                       count_of(file.lines.lines, "line"), file.used);
    std::string odd;
    const auto say = [&odd](int64_t n, std::string_view what) {
      if (n > 0) odd += fmt::format(", {} {}", n, what);
    };
    say(file.garbled, "garbled");
    say(file.lines.cut, "longer than 64 KiB (the rest of them was skipped)");
    say(file.lines.with_nul, "with NUL bytes");
    if (file.lines.unfinished) odd += ", the last one has no end";
    if (file.lines.byte_order_mark) odd += ", byte-order mark";
    out += odd;
    if (!file.garbled_lines.empty()) {
      out += fmt::format(
          " (line {}{})", fmt::join(file.garbled_lines, ", "),
          file.garbled > static_cast<int64_t>(file.garbled_lines.size()) ? ", ..." : "");
    }
    out += "\n";
  }
  return out;
}

std::string lives_text(const Analysis& a) {
  std::string out;
  size_t shown = 0;
  for (size_t i = 0; i < a.lives.size(); ++i) {
    const Life& life = a.lives[i];
    if (++shown > kShownRequests) {
      out += fmt::format("  ... {} more\n", a.lives.size() - kShownRequests);
      break;
    }
    out += fmt::format("server {}: {}{}, from line {}{}", i + 1, life.engine,
                       life.source.empty() ? "" : " (" + escape(life.source, 60) + ")",
                       life.first_line, life.started_here ? "" : ", already running");
    if (life.engine != "vllm") out += ", " + count_of(life.requests, "request");
    if (life.n_slots) out += ", " + count_of(*life.n_slots, "slot");
    out += "\n";
    for (const Speculation& spec : life.speculation) {
      out +=
          fmt::format("  drafts by {}", spec.type.empty() ? "(not named)" : escape(spec.type, 40));
      if (spec.n_max) out += fmt::format(", up to {} tokens asked for", *spec.n_max);
      if (spec.clamped_to) out += fmt::format(", cut to {}", *spec.clamped_to);
      if (spec.n_min.value_or(0) > 0) out += fmt::format(", at least {}", *spec.n_min);
      if (spec.p_min.value_or(0) > 0) out += fmt::format(", p_min {:g}", *spec.p_min);
      out += "\n";
    }
    if (life.draft_length) {
      out += fmt::format("  effective draft length {}{}: {}\n", *life.draft_length,
                         life.draft_length_proved ? "" : " (not proved)", life.draft_length_how);
    } else if (!life.draft_length_how.empty()) {
      out += fmt::format("  {}\n", life.draft_length_how);
    }
    if (life.draft_length && std::none_of(life.speculation.begin(), life.speculation.end(),
                                          [](const auto& s) { return s.n_max.has_value(); })) {
      out +=
          "  the length asked for is not in this log (llama-server prints it with -lv 4, "
          "ik_llama.cpp "
          "doesn't)\n";
    }
    if (life.generation_tok_s_mean) {
      out += fmt::format("  mean of {} with generation: {:.1f} tok/s over all requests\n",
                         count_of(life.generation_lines, "interval"), *life.generation_tok_s_mean);
    }
  }
  return out;
}

std::string requests_text(const Analysis& a) {
  if (a.requests.empty()) return "";
  std::string out =
      "\n  row  slot task   prompt        reuse   generated  tok/s n-1    tok/s n  printed by  "
      "accepted/drafted  steps  mean len  tok/step  ms/step\n";
  for (size_t i = 0; i < a.requests.size(); ++i) {
    if (i == kShownRequests) {
      out += fmt::format("  ... {} more rows; --json has them\n",
                         a.request_count - static_cast<int64_t>(i));
      break;
    }
    const Request& r = a.requests[i];
    const std::optional<double> rate = decode_rate(*r.generated_tokens, *r.decode_ms);
    const std::optional<int64_t> steps = decode_steps(r);
    std::optional<double> all, tokens_a_step, ms_a_step, mean;
    if (*r.decode_ms > 0) all = static_cast<double>(*r.generated_tokens) * 1000 / *r.decode_ms;
    if (steps && *steps > 0) {
      tokens_a_step = static_cast<double>(*r.generated_tokens - 1) / static_cast<double>(*steps);
      ms_a_step = *r.decode_ms / static_cast<double>(*steps);
    }
    if (r.draft && r.draft->steps.known()) {
      mean = 1 + static_cast<double>(r.draft->accepted) / static_cast<double>(r.draft->steps.low);
    }
    out += fmt::format(
        "{:>5} {:>5} {:>4} {:>8} {:>12} {:>11} {:>10} {:>10}  {:>10}  {:>16} {:>6} {:>9} {:>9} "
        "{:>8}\n",
        i + 1, r.slot < 0 ? "-" : std::to_string(r.slot), r.task < 0 ? "-" : std::to_string(r.task),
        or_dash(r.prompt_tokens, "{}"), warmth(r), *r.generated_tokens, or_dash(rate, "{:.2f}"),
        or_dash(all, "{:.2f}"), name_of(r.denominator),
        r.draft ? fmt::format("{}/{}", r.draft->accepted, r.draft->drafted) : "-",
        r.draft ? range_text(r.draft->steps) : "-", or_dash(mean, "{:.2f}"),
        or_dash(tokens_a_step, "{:.2f}"), or_dash(ms_a_step, "{:.2f}"));
  }
  return out;
}

std::string totals_text(const Analysis& a) {
  const Totals& t = a.totals;
  std::string out = "\n";
  if (t.requests > 0) {
    out += fmt::format(
        "requests             {}: {} cold, {} warm, {} unknown{}{}\n", t.requests, t.cold, t.warm,
        t.unknown_warmth,
        t.beside_other_slots > 0 ? fmt::format(", {} beside another slot", t.beside_other_slots)
                                 : "",
        a.without_timing > 0 ? fmt::format("; {} more ended without a timing", a.without_timing)
                             : "");
    if (t.after_fault > 0) {
      out += fmt::format(
          "after a fault        {}: no speed of theirs counts before a control shows the device "
          "well\n",
          count_of(t.after_fault, "request"));
    }
    out += fmt::format("prompt               {} tok/s ({} tokens evaluated in {:.0f} ms)\n",
                       or_dash(t.prompt_tok_s(), "{:.2f}"), t.prompt_tokens_evaluated, t.prompt_ms);
    out +=
        fmt::format("decode               {} tok/s over n-1, {} over n ({} tokens in {:.0f} ms)\n",
                    or_dash(t.decode_tok_s(), "{:.2f}"), or_dash(t.decode_tok_s_all(), "{:.2f}"),
                    t.generated_tokens, t.decode_ms);
  }
  if (t.step_requests > 0 && t.step_requests + t.one_token >= t.requests) {
    const double tokens = *t.tokens_per_step(), ms = *t.ms_per_step();
    out += fmt::format(
        "a step               {:.3f} tokens, {:.3f} ms; {:.3f} / {:.3f} = {:.3f} ms a token\n",
        tokens, ms, ms, tokens, ms / tokens);
  } else if (t.step_requests > 0) {
    out += fmt::format(
        "a step               {:.3f} tokens, {:.3f} ms (the {} of {} rows whose steps are known)\n",
        *t.tokens_per_step(), *t.ms_per_step(), t.step_requests, t.requests);
  }
  if (t.drafted > 0) {
    out += fmt::format(
        "drafting             {} accepted of {} drafted = {:.5f}, in {} verify steps", t.accepted,
        t.drafted, *t.acceptance(), range_text({t.verify_low, t.verify_high}));
    if (t.mean_accepted_len()) out += fmt::format(", mean length {:.3f}", *t.mean_accepted_len());
    out += "\n";
    if (t.position_requests > 0) {
      out += "accepted by position";
      std::vector<double> shares = t.per_position();
      while (shares.size() > 1 && shares.back() == 0) shares.pop_back();
      for (const double share : shares) out += fmt::format(" {:.3f}", share);
      if (t.position_requests < t.draft_requests) {
        out += fmt::format(" ({} of {} rows have it)", t.position_requests, t.draft_requests);
      }
      out += "\n";
    } else {
      out +=
          "accepted by position not in this log (llama-server prints it with -lv 4, ik_llama.cpp "
          "doesn't)\n";
    }
    if (t.draft_ms_drafted > 0) {
      out +=
          fmt::format("drafting costs       {:.3f} ms a drafted token, by the statistics lines\n",
                      t.draft_ms / static_cast<double>(t.draft_ms_drafted));
    }
  }
  return out;
}

std::string depths_text(const Analysis& a) {
  const std::vector<Bucket> buckets = a.depths.buckets();
  if (buckets.empty()) return "";
  std::string out =
      "\nby mean context while decoding\n       context     rows    tok/s  acceptance  tok/step   "
      "ms/step\n";
  for (const Bucket& b : buckets) {
    out += fmt::format("  {:>12} {:>8} {:>8} {:>11} {:>9} {:>9}\n",
                       std::isinf(b.to) ? fmt::format(">= {}k", b.from / 1024)
                                        : fmt::format("{:g}k-{:g}k", b.from / 1024, b.to / 1024),
                       b.totals.requests, or_dash(b.totals.decode_tok_s(), "{:.2f}"),
                       or_dash(b.totals.acceptance(), "{:.3f}"),
                       or_dash(b.totals.tokens_per_step(), "{:.2f}"),
                       or_dash(b.totals.ms_per_step(), "{:.2f}"));
  }
  const auto line = [&out](std::string_view what, const Fit& fit, std::string_view unit,
                           double scale) {
    if (!fit.correlation()) return;
    out += fmt::format("  {:<34} r = {:+.3f}, slope {:+.4g} {} (n = {})\n", what,
                       *fit.correlation(), *fit.slope() * scale, unit, fit.n());
  };
  line("tok/s over context", a.depths.rate(), "tok/s per 1k", 1024);
  line("ms a step over context", a.depths.step_ms(), "ms per 1k", 1024);
  line("acceptance over context", a.depths.acceptance(), "per 1k", 1024);
  line("tok/s over acceptance", a.depths.rate_by_acceptance(), "tok/s per 0.1", 0.1);
  return out;
}

}  // namespace

std::string text_report(const Analysis& a) {
  std::string out = files_text(a);
  out += generation_text(a) + "\n\n";
  out += lives_text(a);
  out += requests_text(a);
  out += totals_text(a);
  out += depths_text(a);
  if (!a.notices.empty()) {
    out += "\nnotes\n";
    for (size_t i = 0; i < std::min(kShownFailures, a.notices.size()); ++i) {
      const Notice& n = a.notices[i];
      out += fmt::format("  line {}: {}: {}\n", n.line, n.id, n.text);
    }
    if (a.notices.size() > kShownFailures)
      out += fmt::format("  ... {} more\n", a.notices.size() - kShownFailures);
  }
  if (a.contradiction_count == 0) {
    out += "\nno contradictions\n";
  } else {
    out += fmt::format("\n{}\n", count_of(a.contradiction_count, "contradiction"));
    for (size_t i = 0; i < std::min(kShownFailures, a.contradictions.size()); ++i) {
      const Contradiction& c = a.contradictions[i];
      out += fmt::format("  line {}: {}: {}\n", c.line, c.id, escape(c.text, 400));
    }
    if (a.contradiction_count > static_cast<int64_t>(kShownFailures)) {
      out += fmt::format("  ... {} more\n",
                         a.contradiction_count - static_cast<int64_t>(kShownFailures));
    }
  }
  return out;
}

}  // namespace lockstep::lab::log
