#include <fmt/format.h>

#include "base/error.h"
#include "lab/trace/trace.h"

namespace lockstep::lab::trace {
namespace {

constexpr size_t kShown = 40;

std::string count_of(int64_t n, std::string_view one) {
  return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s");
}

std::string passes_text(const Trace& t) {
  if (t.passes.empty()) {
    return "passes: no event says its rows; whether prompt and generation are mixed is not known\n";
  }
  std::string out = "passes:";
  for (size_t i = 0; i < t.passes.size(); ++i) {
    const PassKind& p = t.passes[i];
    if (i == kShown) {
      out += fmt::format(" and {} kinds more", t.passes.size() - kShown);
      break;
    }
    out += fmt::format("{} {} of {} ({} in all, {:.2f} ms)", i ? "," : "", p.passes,
                       count_of(p.rows, "row"), p.passes * p.rows, p.ms);
  }
  out += "\n";
  if (t.left_out > 0) {
    out +=
        fmt::format("  {} in passes of other rows are left out\n", count_of(t.left_out, "event"));
  } else if (t.passes.size() > 1) {
    out +=
        "  kinds of pass are mixed below, and a prompt's work is not that of a token; --rows N "
        "takes "
        "one kind\n";
  }
  return out;
}

}  // namespace

std::string trace_text(const Trace& t) {
  std::string out = fmt::format("{} on {}, {:.2f} ms busy\n", count_of(t.events, "event"),
                                count_of(static_cast<int64_t>(t.tracks), "track"), t.busy_ms);
  const auto say = [&out](int64_t n, std::string_view what) {
    if (n > 0) out += fmt::format("  {} {}\n", n, what);
  };
  say(t.damaged, "without a name or with a time that can't be: left out");
  say(t.crossing, "began inside another and ended after it: their own times are not certain");
  if (t.cut_off) out += "  the file ends in the middle: what comes before that is here\n";
  out += passes_text(t);
  int64_t enclosing = 0;
  for (const Group& group : t.groups) enclosing += group.enclosing;
  if (enclosing > 0) {
    out += fmt::format(
        "durations add up to {:.2f} ms, {:.1f} % of the time (events that hold others: {}); own "
        "times "
        "add up to it\n",
        t.sum_ms, t.busy_ms > 0 ? 100 * t.sum_ms / t.busy_ms : 0.0, enclosing);
  }
  out += "\n    own ms   share    calls  inclusive ms  name\n";
  for (size_t i = 0; i < t.groups.size(); ++i) {
    if (i == kShown) {
      out += fmt::format("  ... {} more; --json has them\n", t.groups.size() - kShown);
      break;
    }
    const Group& g = t.groups[i];
    out += fmt::format("{:>10.3f} {:>5.1f} % {:>8} {:>13.3f}  {}{}{}\n", g.own_ms,
                       t.busy_ms > 0 ? 100 * g.own_ms / t.busy_ms : 0.0, g.calls, g.ms,
                       g.category.empty() ? "" : escape(g.category, 40) + ": ", escape(g.name, 80),
                       g.enclosing > 0 ? "  (holds others)" : "");
  }
  return out;
}

}  // namespace lockstep::lab::trace
