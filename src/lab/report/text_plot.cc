#include "lab/report/text_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace lockstep::lab::report {
namespace {

constexpr int kWidth = 60, kHeight = 9;

// From a value to one of n places; values outside go to the edge.
struct Scale {
  double low = 0, high = 1;
  int places = kWidth;
  int at(double x) const {
    if (!(high > low)) return places / 2;
    const double share = std::clamp((x - low) / (high - low), 0.0, 1.0);
    return static_cast<int>(std::lround(share * (places - 1)));
  }
};
Scale scale_of(const std::vector<double>& values, int places) {
  Scale out{HUGE_VAL, -HUGE_VAL, places};
  for (const double x : values) {
    if (!std::isfinite(x)) continue;
    out.low = std::min(out.low, x), out.high = std::max(out.high, x);
  }
  return out;
}

std::vector<std::string> lines_of(const EffectPlot& plot) {
  std::vector<double> values{0};
  for (const Effect& effect : plot.effects) {
    values.insert(values.end(), {effect.estimate, effect.interval.low, effect.interval.high});
  }
  const Scale scale = scale_of(values, kWidth);
  std::vector<std::string> out;
  for (size_t i = 0; i < std::min<size_t>(plot.effects.size(), 60); ++i) {
    const Effect& effect = plot.effects[i];
    std::string line(kWidth, ' ');
    const int from = scale.at(effect.interval.low), to = scale.at(effect.interval.high);
    for (int x = from; x <= to; ++x) line[static_cast<size_t>(x)] = '-';
    line[static_cast<size_t>(scale.at(0))] = ':';
    line[static_cast<size_t>(from)] = std::isfinite(effect.interval.low) ? '[' : '<';
    line[static_cast<size_t>(to)] = std::isfinite(effect.interval.high) ? ']' : '>';
    line[static_cast<size_t>(scale.at(effect.estimate))] = 'o';
    out.push_back(fmt::format("{:>3} {}", i + 1, line));
  }
  if (!out.empty()) {
    out.push_back(
        fmt::format("    {:<10.2f}{:^40}{:>10.2f}  % (: is 0)", scale.low, "", scale.high));
  }
  return out;
}

// Points (x, y, mark) on a grid with y named at top and bottom.
struct Mark {
  double x, y;
  char c;
};
std::vector<std::string> grid(const std::vector<Mark>& marks, const std::string& unit) {
  std::vector<double> xs, ys;
  for (const Mark& mark : marks) xs.push_back(mark.x), ys.push_back(mark.y);
  if (marks.empty()) return {};
  const Scale x = scale_of(xs, kWidth), y = scale_of(ys, kHeight);
  std::vector<std::string> out(kHeight, std::string(kWidth, ' '));
  for (const Mark& mark : marks) {
    out[static_cast<size_t>(kHeight - 1 - y.at(mark.y))][static_cast<size_t>(x.at(mark.x))] =
        mark.c;
  }
  for (int i = 0; i < kHeight; ++i) {
    const std::string name = i == 0             ? fmt::format("{:.2f}", y.high)
                             : i == kHeight - 1 ? fmt::format("{:.2f}", y.low)
                                                : "";
    out[static_cast<size_t>(i)] = fmt::format("{:>9} |{}", name, out[static_cast<size_t>(i)]);
  }
  out.push_back(fmt::format("{:>9} +{}", unit, std::string(kWidth, '-')));
  return out;
}

std::vector<std::string> lines_of(const SeriesPlot& plot) {
  std::vector<Mark> marks;
  for (const SeriesPlot::Level& level : plot.levels) {
    for (size_t i = level.first; i <= level.last; ++i) {
      marks.push_back({static_cast<double>(i), level.value, '-'});
    }
  }
  for (size_t i = 0; i < plot.values.size(); ++i) {
    marks.push_back({static_cast<double>(i), plot.values[i], plot.outlier[i] ? '!' : 'o'});
  }
  return grid(marks, "tok/s");
}

std::vector<std::string> lines_of(const LadderPlot& plot) {
  std::vector<Mark> marks;
  for (const LadderPlot::Point& other : plot.others) marks.push_back({other.x, other.value, '.'});
  for (const LadderPlot::Rung& rung : plot.rungs) {
    if (plot.half_width > 0) {
      const double step = plot.half_width / 4;
      for (int i = -4; i <= 4; ++i) marks.push_back({rung.x, rung.value + i * step, '|'});
    }
  }
  for (const LadderPlot::Rung& rung : plot.rungs) marks.push_back({rung.x, rung.value, 'o'});
  return grid(marks, "tok/s");
}

std::vector<std::string> lines_of(const PositionPlot& plot) {
  std::vector<std::string> out;
  for (size_t i = 0; i < plot.traces.size(); ++i) {
    if (plot.traces.size() > 1) out.push_back(fmt::format("log {}", i + 1));
    const auto& shares = plot.traces[i].shares;
    for (size_t place = 0; place < std::min<size_t>(shares.size(), 64); ++place) {
      out.push_back(fmt::format(
          "{:>3} {:.3f} {}", place + 1, shares[place],
          std::string(static_cast<size_t>(std::lround(std::clamp(shares[place], 0.0, 1.0) * 50)),
                      '#')));
    }
  }
  return out;
}

}  // namespace

std::vector<std::string> text_plot(const Plot& plot) {
  return std::visit([](const auto& one) { return lines_of(one); }, plot);
}

}  // namespace lockstep::lab::report
