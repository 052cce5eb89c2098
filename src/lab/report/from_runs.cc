// Sections of paired runs: effects with their intervals, and the control in time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "lab/ab/ab.h"
#include "lab/report/sections.h"
#include "lab/stats/effect.h"
#include "lab/stats/summary.h"

namespace lockstep::lab::report {
namespace {

constexpr size_t kMostArms = 200;

struct Arm {
  std::string label;
  runs::Runs runs;
};

bool called_control(std::string_view arm) {
  return arm == "control" || arm == "a" || arm == "baseline";
}

// The arms of all files; two files with an arm of one name are told apart by their own.
std::vector<Arm> arms_of(const std::vector<runs::Runs>& files) {
  std::vector<Arm> out;
  std::map<std::string, int> named;
  for (const runs::Runs& file : files) {
    std::map<std::string, size_t> own;
    for (const runs::Row& row : file.rows) {
      const auto [at, made] = own.try_emplace(row.arm, out.size());
      if (made) {
        if (out.size() == kMostArms) {
          throw Error(ExitCode::bad_file, fmt::format("{}: more than {} arms; give fewer files",
                                                      shorten(file.source), kMostArms));
        }
        ++named[row.arm];
        out.push_back({row.arm, {file.source, file.metric, file.exactness, {}, 0, ""}});
      }
      out[at->second].runs.rows.push_back(row);
    }
  }
  for (Arm& arm : out) {
    if (named[arm.label] > 1 || arm.label.empty()) {
      arm.label = fmt::format("{} ({})", arm.label, arm.runs.source);
    }
  }
  const auto control = std::find_if(
      out.begin(), out.end(), [](const Arm& arm) { return called_control(arm.runs.rows[0].arm); });
  if (control != out.end()) std::rotate(out.begin(), control, control + 1);
  return out;
}

// One level a server start: the median log rate of its rows, in the file's order.
noise::SeriesReport starts_in_time(const runs::Runs& arm, const noise::Options& options) {
  std::vector<std::string> names;
  std::map<std::string, size_t> place;
  std::vector<std::vector<double>> logs;
  for (const runs::Row& row : arm.rows) {
    const auto [at, made] = place.try_emplace(row.start, names.size());
    if (made) names.push_back(row.start), logs.emplace_back();
    logs[at->second].push_back(std::log(row.tok_s));
  }
  std::vector<double> levels;
  for (const std::vector<double>& start : logs) levels.push_back(stats::median(start));
  return noise::study_series(std::move(levels), std::move(names), options);
}

std::string part_text(const std::optional<double>& log_ratio) {
  return log_ratio ? percent_text(stats::percent(*log_ratio)) : "-";
}

std::string reasons_text(const ab::Result& result) {
  std::string out;
  for (const ab::Reason& reason : result.reasons) {
    out += fmt::format("{}{}: {}", out.empty() ? "" : "; ", reason.rule, reason.text);
  }
  return out;
}

Section effects_section(Page& page, const std::vector<Arm>& arms, const Options& options) {
  Section section;
  section.heading = "Effects against the control";
  section.paragraphs = {fmt::format(
      "Each arm against \"{}\", block by block: the log ratio of rates is one number a block, and "
      "inference is over blocks. Estimate: Hodges-Lehmann; interval: exact signed rank, with the "
      "level "
      "it attains. Where token hashes differ there is no effect to speak of.",
      arms[0].label)};
  Table table;
  table.columns = {{"", true},         {"arm", false},          {"verdict", false},
                   {"rate", true},     {"interval", true},      {"level", true},
                   {"blocks", true},   {"tokens a step", true}, {"ms a step", true},
                   {"provable", true}, {"why", false}};
  EffectPlot plot;
  ab::Options judged_by;
  judged_by.alpha = options.alpha;
  judged_by.seed = options.seed;
  for (size_t i = 1; i < arms.size(); ++i) {
    const ab::Result result = ab::judge(arms[0].runs, arms[i].runs, judged_by);
    const std::string verdict(ab::verdict_name(result.verdict));
    std::vector<std::string> row = {"-", arms[i].label,       verdict, "-", "-", "-", "-", "-", "-",
                                    "-", reasons_text(result)};
    if (result.has_effect) {
      Effect effect{arms[i].label,
                    verdict,
                    stats::percent(result.estimate),
                    {stats::percent(result.interval.low), stats::percent(result.interval.high)},
                    result.level,
                    {}};
      for (const ab::Unit& unit : result.units) {
        effect.values.push_back(stats::percent(unit.log_ratio));
      }
      row[0] = fmt::format("{}", plot.effects.size() + 1);
      row[3] = percent_text(effect.estimate);
      row[4] = interval_text(effect.interval);
      row[5] = fmt::format("{:.2f} %", 100 * result.level);
      row[6] = fmt::format("{}", result.units.size());
      row[7] = part_text(result.tokens_per_step) + (result.same_tokens_per_step ? " (same)" : "");
      row[8] = part_text(result.ms_per_step);
      row[9] = result.smallest_provable
                   ? fmt::format("{:.2f} %", stats::percent(*result.smallest_provable))
                   : "-";
      if (arms.size() == 2 && result.smallest_provable) {
        plot.provable = stats::percent(*result.smallest_provable);
      }
      page.findings.push_back(fmt::format("{}: {}, {} {} over {} blocks", arms[i].label, verdict,
                                          row[3], row[4], row[6]));
      plot.effects.push_back(std::move(effect));
    } else {
      page.findings.push_back(
          fmt::format("{}: {} ({})", arms[i].label, verdict, reasons_text(result)));
    }
    for (const std::string& note : result.notes) {
      section.notes.push_back(fmt::format("{}: {}", arms[i].label, note));
    }
    table.rows.push_back(std::move(row));
  }
  section.tables.push_back(std::move(table));
  if (!plot.effects.empty()) {
    section.plot_caption = fmt::format(
        "A bar is the interval, the mark in it the estimate, the small dots are blocks.{}",
        plot.provable
            ? fmt::format(" Inside the shaded band (±{:.2f} %) these blocks prove nothing "
                          "with {:.4g} % power.",
                          *plot.provable, 100 * options.power)
            : "");
    section.plot = std::move(plot);
  }
  if (arms.size() > 2) {
    section.notes.push_back(
        fmt::format("{} arms were judged, each at {:.4g} %: of that many equal ones {:.2g} come "
                    "out as an effect by "
                    "chance. What was launched and isn't here counts, too.",
                    arms.size() - 1, 100 * options.alpha,
                    options.alpha * static_cast<double>(arms.size() - 1)));
  }
  return section;
}

}  // namespace

void add_runs(Page& page, const std::vector<runs::Runs>& files, const Options& options) {
  noise::Options studied_by;
  studied_by.alpha = options.alpha, studied_by.power = options.power,
  studied_by.seed = options.seed;
  const std::vector<Arm> arms = arms_of(files);
  if (arms.size() > 1) page.sections.push_back(effects_section(page, arms, options));
  Section section = series_section(fmt::format("The control \"{}\" in time", arms[0].label),
                                   starts_in_time(arms[0].runs, studied_by));
  section.paragraphs.insert(section.paragraphs.begin(),
                            "One level a server start: the median rate of its rows.");
  try {
    const noise::Report floor = noise::study_runs(std::span(&arms[0].runs, 1), studied_by);
    section.paragraphs.push_back(
        fmt::format("Noise, from {}: the SD of a block's log ratio is {:.3f} % [{:.3f} %, {:.3f} "
                    "%] over {} blocks.",
                    floor.pairing, stats::percent(floor.sd), stats::percent(floor.sd_interval.low),
                    stats::percent(floor.sd_interval.high), floor.log_ratios.size()));
  } catch (const Error& error) {
    section.notes.push_back(fmt::format("No noise floor from the control alone: {}", error.what()));
  }
  page.sections.push_back(std::move(section));
}

}  // namespace lockstep::lab::report
