// The page is made of the text report's figures: tables, and plots as SVG that take their colours
// from the page, so that light, dark and print all work. No script, nothing fetched.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/html/html_text.h"
#include "lab/log/accounting.h"
#include "lab/log/names.h"
#include "lab/log/text_report.h"

namespace lockstep::lab::log {
namespace {

constexpr size_t kMostPoints = 2000, kMostRows = 500;

constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--ink:#1c2430;--soft:#667085;--line:#d5dae1;--mark:#2563a8;--bad:#b3261e;--paper:#fff}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9ee;--soft:#98a2b3;--line:#39424e;--mark:#7db3ea;--bad:#ff8a80;--paper:#14181d}}
@media print{:root{--ink:#000;--soft:#444;--line:#bbb;--mark:#234;--bad:#700;--paper:#fff}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:70rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid var(--line)}th{color:var(--soft);font-weight:600}
td.l,th.l{text-align:left}.scroll{overflow-x:auto}.bad{color:var(--bad)}.soft{color:var(--soft)}
.plots{display:flex;flex-wrap:wrap;gap:1.5rem}svg{max-width:100%;height:auto}
svg text{fill:var(--soft);font:11px system-ui,sans-serif}svg .axis{stroke:var(--line)}svg .dot{fill:var(--mark);fill-opacity:.65}
svg .bar{fill:var(--mark)}svg .fit{stroke:var(--mark);stroke-width:1.5;fill:none}
)";

double nice_step(double span) {
  const double raw = span / 4, power = std::pow(10, std::floor(std::log10(raw)));
  const double unit = raw / power;
  return power * (unit <= 1 ? 1 : unit <= 2 ? 2 : unit <= 5 ? 5 : 10);
}

struct Point {
  double x, y;
};

// A scatter plot with a least-squares line; "" for fewer than two points.
std::string scatter(std::string_view title, std::string_view x_name, std::string_view y_name,
                    const std::vector<Point>& points, const Fit& fit) {
  if (points.size() < 2) return "";
  double x_max = 0, y_max = 0;
  for (const Point& p : points) x_max = std::max(x_max, p.x), y_max = std::max(y_max, p.y);
  if (x_max <= 0 || y_max <= 0) return "";
  const double x_step = nice_step(x_max), y_step = nice_step(y_max);
  x_max = std::ceil(x_max / x_step) * x_step;
  y_max = std::ceil(y_max / y_step) * y_step;
  constexpr double kW = 420, kH = 260, kLeft = 52, kBottom = 40, kTop = 24, kRight = 12;
  const auto px = [&](double x) { return kLeft + x / x_max * (kW - kLeft - kRight); };
  const auto py = [&](double y) { return kH - kBottom - y / y_max * (kH - kBottom - kTop); };
  std::string out =
      fmt::format("<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {} {}\" width=\"{}\">",
                  html_text(title), kW, kH, kW);
  out += fmt::format("<text x=\"{}\" y=\"14\">{}</text>", kLeft, html_text(title));
  for (double x = 0; x <= x_max * 1.001; x += x_step) {
    out += fmt::format(
        "<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/><text "
        "text-anchor=\"middle\" x=\"{0:.1f}\" y=\"{3}\">{4:g}</text>",
        px(x), kTop, kH - kBottom, kH - kBottom + 14, x);
  }
  for (double y = 0; y <= y_max * 1.001; y += y_step) {
    out += fmt::format(
        "<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text "
        "text-anchor=\"end\" x=\"{3}\" y=\"{4:.1f}\">{5:g}</text>",
        kLeft, kW - kRight, py(y), kLeft - 6, py(y) + 4, y);
  }
  out += fmt::format("<text text-anchor=\"middle\" x=\"{}\" y=\"{}\">{}</text>", (kLeft + kW) / 2,
                     kH - 6, html_text(x_name));
  out += fmt::format(
      "<text transform=\"translate(12 {}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
      (kTop + kH - kBottom) / 2, html_text(y_name));
  const size_t stride = points.size() / kMostPoints + 1;
  for (size_t i = 0; i < points.size(); i += stride) {
    out += fmt::format("<circle class=\"dot\" r=\"3\" cx=\"{:.1f}\" cy=\"{:.1f}\"/>",
                       px(points[i].x), py(points[i].y));
  }
  if (fit.slope() && fit.correlation()) {
    const auto at = [&](double x) {
      return std::clamp(fit.mean_y() + *fit.slope() * (x - fit.mean_x()), 0.0, y_max);
    };
    out += fmt::format(
        "<path class=\"fit\" d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\"/><text text-anchor=\"end\" "
        "x=\"{}\" y=\"14\">r = {:+.3f}, n = {}</text>",
        px(0), py(at(0)), px(x_max), py(at(x_max)), kW - kRight, *fit.correlation(), fit.n());
  }
  return out + "</svg>";
}

std::string position_bars(const std::vector<double>& shares) {
  if (shares.empty()) return "";
  constexpr double kW = 420, kH = 260, kLeft = 52, kBottom = 40, kTop = 24;
  const double each = (kW - kLeft - 12) / static_cast<double>(shares.size());
  std::string out = fmt::format(
      "<svg role=\"img\" aria-label=\"accepted by position\" viewBox=\"0 0 {0} {1}\" "
      "width=\"{0}\"><text x=\"{2}\" y=\"14\">share of verify steps with the i-th drafted token "
      "accepted</text>",
      kW, kH, kLeft);
  for (int i = 0; i <= 4; ++i) {
    const double y = kH - kBottom - i * 0.25 * (kH - kBottom - kTop);
    out += fmt::format(
        "<line class=\"axis\" x1=\"{0}\" x2=\"{1}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/><text "
        "text-anchor=\"end\" x=\"{3}\" y=\"{4:.1f}\">{5:g}</text>",
        kLeft, kW - 12, y, kLeft - 6, y + 4, i * 0.25);
  }
  for (size_t i = 0; i < shares.size(); ++i) {
    const double height = shares[i] * (kH - kBottom - kTop);
    const double x = kLeft + each * static_cast<double>(i) + each * 0.15;
    out += fmt::format(
        "<rect class=\"bar\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" "
        "height=\"{:.1f}\"><title>{:.3f}</title></rect>",
        x, kH - kBottom - height, each * 0.7, height, shares[i]);
    if (shares.size() <= 16 || i % 4 == 0) {
      out += fmt::format("<text text-anchor=\"middle\" x=\"{:.1f}\" y=\"{}\">{}</text>",
                         x + each * 0.35, kH - kBottom + 14, i + 1);
    }
  }
  return out + "</svg>";
}

std::string plots(const Analysis& a) {
  std::vector<Point> rate, step;
  for (const Request& r : a.requests) {
    const std::optional<double> context = mean_context(r);
    if (!context || !r.generated_tokens || !r.decode_ms) continue;
    const std::optional<double> tok_s = decode_rate(*r.generated_tokens, *r.decode_ms);
    if (!tok_s) continue;
    rate.push_back({*context, *tok_s});
    const std::optional<int64_t> steps = decode_steps(r);
    if (steps && *steps > 0) step.push_back({*context, *r.decode_ms / static_cast<double>(*steps)});
  }
  return "<div class=\"plots\">" +
         scatter("decode rate", "mean context", "tok/s", rate, a.depths.rate()) +
         scatter("cost of a step", "mean context", "ms a step", step, a.depths.step_ms()) +
         position_bars(a.totals.per_position()) + "</div>";
}

template <typename T>
std::string cell(const std::optional<T>& value, const char* format) {
  return value ? fmt::format("<td>{}</td>", fmt::format(fmt::runtime(format), *value))
               : "<td class=\"soft\">-</td>";
}

std::string requests(const Analysis& a) {
  if (a.requests.empty()) return "";
  std::string out =
      "<h2>Requests</h2><div "
      "class=\"scroll\"><table><tr><th>row</th><th>server</th><th>slot</th><th>task</"
      "th><th>prompt</th><th class=\"l\">reuse</th><th>generated</th><th>tok/s over "
      "n-1</th><th>tok/s over n</th><th>printed "
      "by</th><th>accepted</th><th>drafted</th><th>steps</th><th>tokens a step</th><th>ms a "
      "step</th></tr>";
  for (size_t i = 0; i < std::min(kMostRows, a.requests.size()); ++i) {
    const Request& r = a.requests[i];
    const std::optional<int64_t> steps = decode_steps(r);
    std::optional<double> all, tokens, ms;
    if (*r.decode_ms > 0) all = static_cast<double>(*r.generated_tokens) * 1000 / *r.decode_ms;
    if (steps && *steps > 0) {
      tokens = static_cast<double>(*r.generated_tokens - 1) / static_cast<double>(*steps);
      ms = *r.decode_ms / static_cast<double>(*steps);
    }
    const std::optional<bool> warm = is_warm(r);
    out += fmt::format("<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td>", i + 1, r.life + 1,
                       r.slot, r.task) +
           cell(r.prompt_tokens, "{}") +
           fmt::format("<td class=\"l\">{}</td><td>{}</td>",
                       !warm             ? "?"
                       : !*warm          ? "cold"
                       : r.cached_tokens ? fmt::format("{} cached", *r.cached_tokens)
                                         : "warm",
                       *r.generated_tokens) +
           cell(decode_rate(*r.generated_tokens, *r.decode_ms), "{:.2f}") + cell(all, "{:.2f}") +
           fmt::format("<td>{}</td>", name_of(r.denominator)) +
           (r.draft ? fmt::format("<td>{}</td><td>{}</td>", r.draft->accepted, r.draft->drafted)
                    : "<td class=\"soft\">-</td><td class=\"soft\">-</td>") +
           cell(steps, "{}") + cell(tokens, "{:.3f}") + cell(ms, "{:.3f}") + "</tr>\n";
  }
  out += "</table></div>";
  if (a.request_count > static_cast<int64_t>(kMostRows))
    out +=
        fmt::format("<p class=\"soft\">{} more rows are in the figures and not in this table.</p>",
                    a.request_count - static_cast<int64_t>(kMostRows));
  return out;
}

std::string depths(const Analysis& a) {
  const std::vector<Bucket> buckets = a.depths.buckets();
  if (buckets.empty()) return "";
  std::string out =
      "<h2>By depth</h2><table><tr><th>mean "
      "context</th><th>rows</th><th>tok/s</th><th>acceptance</th><th>tokens a step</th><th>ms a "
      "step</th></tr>";
  for (const Bucket& b : buckets) {
    out += fmt::format("<tr><td>{}</td><td>{}</td>",
                       std::isinf(b.to) ? fmt::format("{:g}k and more", b.from / 1024)
                                        : fmt::format("{:g}k to {:g}k", b.from / 1024, b.to / 1024),
                       b.totals.requests) +
           cell(b.totals.decode_tok_s(), "{:.2f}") + cell(b.totals.acceptance(), "{:.3f}") +
           cell(b.totals.tokens_per_step(), "{:.3f}") + cell(b.totals.ms_per_step(), "{:.3f}") +
           "</tr>\n";
  }
  return out + "</table>";
}

}  // namespace

std::string html_report(const Analysis& a) {
  std::string title = a.files.empty() ? "log" : a.files[0].path;
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><title>{}</title><style>{}</style></head><body>\n<h1>{}</"
      "h1>\n<p>{}</p>\n",
      html_text(title), kStyle, html_text(title), html_text(generation_text(a)));
  const Totals& t = a.totals;
  out += "<h2>In total</h2><table>";
  const auto row = [&out](std::string_view name, const std::string& value) {
    out += fmt::format("<tr><td class=\"l\">{}</td><td>{}</td></tr>", name, value);
  };
  row("requests", fmt::format("{}: {} cold, {} warm, {} unknown", t.requests, t.cold, t.warm,
                              t.unknown_warmth));
  if (t.decode_tok_s()) row("decode, tok/s over n-1", fmt::format("{:.3f}", *t.decode_tok_s()));
  if (t.decode_tok_s_all())
    row("decode, tok/s over n", fmt::format("{:.3f}", *t.decode_tok_s_all()));
  if (t.prompt_tok_s()) row("prompt, tok/s", fmt::format("{:.3f}", *t.prompt_tok_s()));
  if (t.acceptance())
    row("accepted of drafted",
        fmt::format("{} of {} = {:.5f}", t.accepted, t.drafted, *t.acceptance()));
  if (t.mean_accepted_len())
    row("mean accepted length", fmt::format("{:.3f}", *t.mean_accepted_len()));
  if (t.tokens_per_step()) row("tokens a step", fmt::format("{:.3f}", *t.tokens_per_step()));
  if (t.ms_per_step()) row("ms a step", fmt::format("{:.3f}", *t.ms_per_step()));
  out += "</table>";
  for (size_t i = 0; i < std::min<size_t>(a.lives.size(), 50); ++i) {
    const Life& life = a.lives[i];
    if (life.draft_length_how.empty()) continue;
    out += fmt::format("<p>Server {}: {}{}</p>", i + 1,
                       life.draft_length
                           ? fmt::format("effective draft length {}{}: ", *life.draft_length,
                                         life.draft_length_proved ? "" : " (not proved)")
                           : "",
                       html_text(life.draft_length_how));
  }
  out += plots(a) + depths(a);
  if (a.totals.drafted > 0 && a.totals.position_requests == 0)
    out += "<p class=\"soft\">Acceptance by position is not in this log.</p>";
  out +=
      fmt::format("<h2>Contradictions</h2><p>{}</p>",
                  a.contradiction_count == 0 ? "none" : fmt::format("{}", a.contradiction_count));
  if (!a.contradictions.empty()) {
    out += "<table><tr><th>line</th><th class=\"l\">what</th><th class=\"l\"></th></tr>";
    for (size_t i = 0; i < std::min<size_t>(a.contradictions.size(), 200); ++i) {
      const Contradiction& c = a.contradictions[i];
      out += fmt::format("<tr><td>{}</td><td class=\"l bad\">{}</td><td class=\"l\">{}</td></tr>",
                         c.line, html_text(c.id), html_text(c.text));
    }
    out += "</table>";
  }
  if (!a.notices.empty()) {
    out += "<h2>Notes</h2><table>";
    for (size_t i = 0; i < std::min<size_t>(a.notices.size(), 200); ++i) {
      const Notice& n = a.notices[i];
      out += fmt::format("<tr><td>{}</td><td class=\"l\">{}</td><td class=\"l\">{}</td></tr>",
                         n.line, html_text(n.id), html_text(n.text));
    }
    out += "</table>";
  }
  out += requests(a);
  out +=
      "<h2>Files</h2><table><tr><th "
      "class=\"l\">file</th><th>lines</th><th>used</th><th>garbled</th><th>cut</th></tr>";
  for (const FileFacts& file : a.files) {
    out += fmt::format(
        "<tr><td class=\"l\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
        html_text(file.path), file.lines.lines, file.used, file.garbled, file.lines.cut);
  }
  return out + "</table>\n</body></html>\n";
}

}  // namespace lockstep::lab::log
