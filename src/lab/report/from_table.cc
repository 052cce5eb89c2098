// Sections of a table of runs without a recipe column, and of ladders.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "lab/report/sections.h"
#include "lab/stats/distributions.h"
#include "lab/stats/effect.h"
#include "lab/stats/summary.h"

namespace lockstep::lab::report {
namespace {

constexpr size_t kMostRows = 300;

// Recipes that ran twice and more against the control recipe that ran most, with intervals that
// hold for all of them together: difference ± t(1 - alpha/(2m); df) s sqrt(1/n + 1/n_control), s
// pooled within recipes (Bonferroni; Dunn, JASA 1961).
std::optional<Section> recipes_section(const noise::TableReport& report, const Options& options) {
  std::vector<const noise::Group*> groups;
  const noise::Group* control = nullptr;
  for (const noise::Group& group : report.groups) {
    if (group.rates.size() < 2) continue;
    if (group.is_control && !control) {
      control = &group;
    } else {
      groups.push_back(&group);
    }
  }
  if (!control || groups.empty() || report.pooled.df < 1) return std::nullopt;
  const double mean = stats::mean(control->rates), count = static_cast<double>(groups.size());
  const double t = stats::student_t_quantile(1 - options.alpha / (2 * count), report.pooled.df);
  Section section;
  section.heading = "Recipes against the control recipe";
  section.paragraphs = {
      fmt::format(
          "Every recipe that ran more than once, against the control recipe that ran most ({}; n "
          "{}, mean {:.3f} tok/s). These rows are single starts hours apart and not paired, so "
          "that drift between them is part of the difference: evidence of size, no verdict.",
          control->recipe, control->rates.size(), mean),
      fmt::format(
          "Interval: difference of means ± {:.3f} * {:.3f} * sqrt(1/n + 1/{}), where {:.3f} is the "
          "SD of "
          "a row within recipes and {:.3f} = t({:.5f}; {:.0f}), so that all {} intervals hold "
          "together with {:.4g} %.",
          t, report.pooled.sd, control->rates.size(), report.pooled.sd, t,
          1 - options.alpha / (2 * count), report.pooled.df, groups.size(),
          100 * (1 - options.alpha))};
  EffectPlot plot;
  Table table;
  table.columns = {{"", true},
                   {"recipe", false},
                   {"n", true},
                   {"mean tok/s", true},
                   {"difference", true},
                   {"interval", true},
                   {"beyond noise", false}};
  for (const noise::Group* group : groups) {
    const double own = stats::mean(group->rates);
    const double half = t * report.pooled.sd *
                        std::sqrt(1 / static_cast<double>(group->rates.size()) +
                                  1 / static_cast<double>(control->rates.size()));
    const auto of_control = [mean](double difference) { return 100 * difference / mean; };
    Effect effect{
        group->recipe,          "",
        of_control(own - mean), {of_control(own - mean - half), of_control(own - mean + half)},
        1 - options.alpha,      {}};
    for (const double rate : group->rates) effect.values.push_back(of_control(rate - mean));
    effect.verdict = effect.interval.contains(0) ? "no" : "yes";
    table.rows.push_back({fmt::format("{}", table.rows.size() + 1), group->recipe,
                          fmt::format("{}", group->rates.size()), fmt::format("{:.3f}", own),
                          percent_text(effect.estimate), interval_text(effect.interval),
                          effect.verdict});
    plot.effects.push_back(std::move(effect));
  }
  section.plot = std::move(plot);
  section.plot_caption =
      "A bar is the interval, the mark in it the difference of means, the small dots are rows; "
      "numbers are those of "
      "the table, and what all recipes share is not said again.";
  section.tables.push_back(std::move(table));
  return section;
}

Section grouping_section(const noise::TableReport& report) {
  Section section;
  section.heading = "How rows were grouped";
  section.paragraphs = {fmt::format("{} rows, {} with a rate that counts, {} placed in a recipe; "
                                    "the other {} stay out of the noise.",
                                    report.table.total, report.table.rows.size(), report.placed,
                                    static_cast<int64_t>(report.table.rows.size()) - report.placed),
                        std::string(noise::grouping_rule())};
  Table table;
  table.caption =
      "Recipes that ran more than once; tok/s of the first row after the start, c: named control.";
  table.columns = {{"recipe", false}, {"n", true}, {"mean", true}, {"SD", true}, {"rates", false}};
  for (const noise::Group& group : report.groups) {
    if (group.rates.size() < 2) continue;
    std::string rates;
    for (const size_t i : group.members) {
      rates += fmt::format("{}{:.3f}{}", rates.empty() ? "" : " ", report.table.rows[i].tok_s,
                           report.placements[i].named_control ? "c" : "");
    }
    table.rows.push_back({group.recipe + (group.inferred ? " (family partly inferred)" : ""),
                          fmt::format("{}", group.rates.size()),
                          fmt::format("{:.3f}", stats::mean(group.rates)),
                          fmt::format("{:.3f}", stats::standard_deviation(group.rates)), rates});
    if (table.rows.size() == kMostRows) break;
  }
  section.tables.push_back(std::move(table));
  return section;
}

Section provable_section(const std::vector<noise::Provable>& provable, const Options& options) {
  Section section;
  section.heading = "What a campaign over this noise can prove";
  section.paragraphs = {fmt::format(
      "The smallest gain that so many blocks prove with {:.4g} % power, two-sided {:.4g} %.",
      100 * options.power, 100 * options.alpha)};
  Table table;
  table.columns = {{"blocks", true},
                   {"normal approximation", true},
                   {"exact signed rank", true},
                   {"at the SD's upper end", true}};
  const auto text = [](double log_ratio) {
    return std::isfinite(log_ratio) ? fmt::format("{:.2f} %", stats::percent(log_ratio)) : "-";
  };
  for (const noise::Provable& row : provable) {
    table.rows.push_back({fmt::format("{}", row.blocks), text(row.normal), text(row.signed_rank),
                          text(row.at_upper_sd)});
  }
  section.tables.push_back(std::move(table));
  return section;
}

// Places the promoted rows among all rows in time, and draws those near the ladder.
void place_in_time(LadderPlot& plot, const noise::Table& table) {
  double low = HUGE_VAL, high = -HUGE_VAL;
  for (const LadderPlot::Rung& rung : plot.rungs) {
    low = std::min(low, rung.value), high = std::max(high, rung.value);
  }
  const double room = std::max(2 * (high - low), 3 * plot.half_width);
  size_t rung = 0;
  double x = 0;
  for (const size_t i : noise::in_time(table)) {
    const double value = table.rows[i].tok_s;
    x += 1;
    if (table.rows[i].verdict == "promoted" && rung < plot.rungs.size()) {
      plot.rungs[rung].x = x;
      plot.rungs[rung++].label = table.rows[i].run;
    } else if (value < low - room || value > high + room) {
      ++plot.others_outside;
    } else {
      plot.others.push_back({x, value});
    }
  }
}

size_t told_of(const noise::Ladder& ladder) {
  return static_cast<size_t>(std::count_if(ladder.steps.begin(), ladder.steps.end(),
                                           [](const noise::Step& step) { return step.told; }));
}

}  // namespace

std::string percent_text(double percent) {
  if (std::abs(percent) < 0.005) percent = 0;  // no "-0.00 %"
  return std::isfinite(percent) ? fmt::format("{:+.2f} %", percent) : "any";
}
std::string interval_text(stats::Interval percent) {
  return fmt::format("[{}, {}]", percent_text(percent.low), percent_text(percent.high));
}

Section series_section(std::string heading, const noise::SeriesReport& series) {
  Section section;
  section.heading = std::move(heading);
  SeriesPlot plot;
  plot.unit = "tok/s";
  plot.names = series.names;
  for (const double log_rate : series.values) plot.values.push_back(std::exp(log_rate));
  for (const stats::Outlier outlier : series.outliers) {
    plot.outlier.push_back(outlier != stats::Outlier::none);
  }
  size_t first = 0;
  for (size_t cut = 0; cut <= series.steps.size(); ++cut) {
    const size_t end = cut < series.steps.size() ? series.steps[cut].index : plot.values.size();
    if (end > first) {
      plot.levels.push_back(
          {first, end - 1, stats::median(std::span(plot.values).subspan(first, end - first))});
    }
    first = end;
  }
  if (series.steps.empty()) {
    section.paragraphs.push_back(fmt::format(
        "Change points (E-divisive, permutations): none in {} values{}.", series.values.size(),
        series.values.size() < 10 ? "; a cut needs five values on either side" : ""));
  }
  for (const stats::ChangePoint& step : series.steps) {
    section.paragraphs.push_back(
        fmt::format("Change point at place {} ({}): {}, p {:.3f}. Nothing may be compared across "
                    "it before a new A/A.",
                    step.index + 1, series.names[step.index],
                    percent_text(stats::percent(step.after - step.before)), step.p));
  }
  if (series.drift) {
    const double steps = static_cast<double>(series.values.size()) - 1;
    section.paragraphs.push_back(
        fmt::format("Drift, first to last: {} {} (Theil-Sen), Kendall p {:.3f}.",
                    percent_text(stats::percent(series.drift->slope * steps)),
                    interval_text({stats::percent(series.drift->interval.low * steps),
                                   stats::percent(series.drift->interval.high * steps)}),
                    series.drift->p));
  }
  Table table;
  table.columns = {{"place", true}, {"what", false}, {plot.unit, true}, {"", false}};
  for (size_t i = 0; i < std::min(plot.values.size(), kMostRows); ++i) {
    table.rows.push_back({fmt::format("{}", i + 1), plot.names[i],
                          fmt::format("{:.3f}", plot.values[i]),
                          plot.outlier[i] ? "far out (Tukey), kept" : ""});
  }
  table.left_out = static_cast<int64_t>(plot.values.size() - table.rows.size());
  if (!plot.values.empty()) {
    section.plot = std::move(plot);
    section.plot_caption =
        "Each mark is a value in time; the line is the median between change points.";
    section.tables.push_back(std::move(table));
  }
  return section;
}

Section ladder_section(const noise::Ladder& ladder, const noise::Threshold& limit,
                       const std::vector<std::string>& labels) {
  Section section;
  section.heading = fmt::format("The ladder, {}, against the noise", ladder.source);
  if (limit.df >= 1) {
    section.paragraphs.push_back(fmt::format(
        "Two single rows differ by more than noise from {:.3f} * {:.3f} * 1.414 = {:.2f} tok/s on: "
        "t of "
        "{:.0f} degrees of freedom, times the SD of one row within recipes, times the root of 2.",
        limit.t, limit.sd, limit.difference, limit.df));
  } else {
    section.paragraphs.emplace_back(
        "The noise of a row is not known here (no recipe ran twice), so that no step can be told "
        "from it.");
  }
  LadderPlot plot;
  plot.unit = "tok/s";
  plot.half_width = limit.df >= 1 ? limit.difference / 2 : 0;
  Table table;
  table.columns = {{"from", true},       {"to", true},
                   {"step", true},       {"against the noise", false},
                   {"rows since", true}, {"best of them by luck", true}};
  for (size_t i = 0; i < ladder.values.size(); ++i) {
    plot.rungs.push_back(
        {i < labels.size() ? labels[i] : "", static_cast<double>(i + 1), ladder.values[i]});
  }
  for (const noise::Step& step : ladder.steps) {
    table.rows.push_back({fmt::format("{:.3f}", step.from), fmt::format("{:.3f}", step.to),
                          fmt::format("{:+.3f}", step.difference),
                          limit.df < 1 ? "not known"
                          : step.told  ? "more than noise"
                                       : "can't be told from noise",
                          step.rows_between ? fmt::format("{}", *step.rows_between) : "-",
                          step.by_luck ? fmt::format("{:+.2f}", *step.by_luck) : "-"});
  }
  section.tables.push_back(std::move(table));
  section.plot = std::move(plot);
  section.plot_caption =
      limit.df >= 1 ? fmt::format(
                          "Bars are ±{:.2f} tok/s, half that difference: two of them overlap "
                          "exactly where the step between them can't be told from noise.",
                          limit.difference / 2)
                    : "Without bars: the noise of a row is not known.";
  return section;
}

noise::Threshold add_table(Page& page, std::string_view name, noise::Table table,
                           const Options& options) {
  noise::Options studied_by;
  studied_by.alpha = options.alpha, studied_by.power = options.power,
  studied_by.seed = options.seed;
  const noise::TableReport report =
      noise::study_table(std::move(table), options.reported, studied_by);
  if (report.pooled.df >= 1) {
    page.findings.push_back(
        fmt::format("{}: {} rows; one row has an SD of {:.3f} tok/s [{:.3f}, {:.3f}] within "
                    "recipes ({:.0f} degrees of "
                    "freedom), so two single rows differ by more than noise from {:.2f} tok/s on",
                    name, report.table.total, report.pooled.sd, report.pooled_interval.low,
                    report.pooled_interval.high, report.pooled.df, report.limit.difference));
  } else {
    page.findings.push_back(
        fmt::format("{}: {} rows; no recipe ran twice, so that the noise of a row is not known",
                    name, report.table.total));
  }
  for (const noise::Ladder* ladder : {&report.promoted, &report.reported}) {
    if (ladder->values.size() < 2) continue;
    page.findings.push_back(fmt::format("ladder {}: {} of {} steps can be told from noise",
                                        ladder->source, told_of(*ladder), ladder->steps.size()));
    Section section = ladder_section(*ladder, report.limit, {});
    if (ladder == &report.promoted) {
      auto& plot = std::get<LadderPlot>(*section.plot);
      place_in_time(plot, report.table);
      section.plot_caption +=
          fmt::format(" Small dots are the other rows with a rate{}.",
                      plot.others_outside > 0
                          ? fmt::format("; {} lie too far away to be drawn", plot.others_outside)
                          : "");
    }
    page.sections.push_back(std::move(section));
  }
  if (!report.named.empty()) {
    Section section = series_section("Rows named control in time", report.controls);
    std::vector<double> all, kept;
    for (size_t i = 0; i < report.named.size(); ++i) {
      const double rate = report.table.rows[report.named[i]].tok_s;
      all.push_back(rate);
      if (report.named_outliers[i] == stats::Outlier::none) kept.push_back(rate);
    }
    const auto pool = [](const std::vector<double>& rates) {
      return fmt::format("n {}, mean {:.2f}, SD {:.2f}, {:.2f} to {:.2f} tok/s", rates.size(),
                         stats::mean(rates),
                         rates.size() > 1 ? stats::standard_deviation(rates) : 0.0,
                         *std::min_element(rates.begin(), rates.end()),
                         *std::max_element(rates.begin(), rates.end()));
    };
    section.paragraphs.insert(
        section.paragraphs.begin(),
        fmt::format(
            "Recipes and builds pooled: {}{}.", pool(all),
            kept.size() < all.size() && !kept.empty() ? "; without outliers " + pool(kept) : ""));
    page.sections.push_back(std::move(section));
  }
  if (auto section = recipes_section(report, options)) page.sections.push_back(std::move(*section));
  if (!report.provable.empty()) {
    page.sections.push_back(provable_section(report.provable, options));
  }
  page.sections.push_back(grouping_section(report));
  return report.limit;
}

}  // namespace lockstep::lab::report
