#include "lab/log/compare.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace lockstep::lab::log {

std::optional<double> Split::share(double part) const {
  if (std::abs(total) < 1e-6) return std::nullopt;
  return part / total;
}

Split split_change(const Side& a, const Side& b) {
  Split split;
  split.total = std::log(b.tok_s / a.tok_s);
  split.acceptance = std::log(b.tokens_per_step / a.tokens_per_step);
  const std::optional<double> slope = b.ms_per_position ? b.ms_per_position : a.ms_per_position;
  if (slope && a.context && b.context) {
    const double ms = a.ms_per_step + *slope * (*b.context - *a.context);
    if (ms > 0) split.context = -std::log(ms / a.ms_per_step);
  }
  split.rest = split.total - split.acceptance - split.context.value_or(0);
  return split;
}

Side side_of(const Analysis& analysis, const std::string& name) {
  const Totals& t = analysis.totals;
  if (t.requests == 0) {
    throw Error(
        ExitCode::check_failed,
        fmt::format("{}: no request with a decode timing; nothing to compare", shorten(name)));
  }
  if (t.step_requests == 0 || t.step_ms <= 0) {
    throw Error(ExitCode::check_failed,
                fmt::format("{}: the number of steps is not known (no mean length, no proved draft "
                            "length); nothing to split",
                            shorten(name)));
  }
  // Of the rows whose steps are known, so that the three figures belong together.
  Side side;
  side.tokens_per_step = *t.tokens_per_step();
  side.ms_per_step = *t.ms_per_step();
  side.tok_s = side.tokens_per_step * 1000 / side.ms_per_step;
  const Fit& fit = analysis.depths.step_ms();
  if (fit.n() > 0) side.context = fit.mean_x();
  return side;
}

std::optional<double> common_slope(const Analysis& a, const Analysis& b) {
  double weights = 0, sum = 0;
  for (const Analysis* analysis : {&a, &b}) {
    const Fit& fit = analysis->depths.step_ms();
    if (fit.n() < 5 || !fit.slope()) continue;
    const double error = std::max(*fit.slope_error(), 1e-12);
    weights += 1 / (error * error);
    sum += *fit.slope() / (error * error);
  }
  if (weights <= 0) return std::nullopt;
  return sum / weights;
}

std::string compare_text(const std::string& name_a, const Side& a, const std::string& name_b,
                         const Side& b, const Split& split) {
  std::string out = "          tok/s  tok/step   ms/step   context\n";
  for (const auto& [label, side] : {std::pair{"A", a}, std::pair{"B", b}}) {
    out += fmt::format("  {} {:>11.2f} {:>9.3f} {:>9.3f} {:>9}\n", label, side.tok_s,
                       side.tokens_per_step, side.ms_per_step,
                       side.context ? fmt::format("{:.0f}", *side.context) : "-");
  }
  out += fmt::format("A is {}\nB is {}\n\nB / A = {:.4f}, ln {:+.4f}, of which\n",
                     escape(name_a, 200), escape(name_b, 200), b.tok_s / a.tok_s, split.total);
  const auto line = [&](std::string_view what, double part) {
    const std::optional<double> share = split.share(part);
    out += fmt::format("  {:<28} {:+.4f}  {:>6}  (tok/s x {:.4f})\n", what, part,
                       share ? fmt::format("{:.0f} %", *share * 100) : "-", std::exp(part));
  };
  line("acceptance (tokens a step)", split.acceptance);
  if (split.context) {
    line("context (ms a step, by slope)", *split.context);
    line("the rest of ms a step", split.rest);
  } else {
    line("ms a step", split.rest);
    out += "  how much of that is the context cannot be told: no slope of ms a step over context\n";
  }
  return out;
}

}  // namespace lockstep::lab::log
