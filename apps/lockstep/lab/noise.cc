// lockstep lab noise: what nothing looks like on this machine.
#include "lab/noise/noise.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli.h"
#include "lab/format.h"
#include "lab/lab.h"
#include "lab/rates.h"
#include "lab/runs/table.h"
#include "lab/runs/runs.h"
#include "lab/stats/effect.h"
#include "lab/stats/summary.h"
#include "output.h"

namespace lockstep::app {
namespace {

namespace noise = lab::noise;
namespace runs = lab::runs;
namespace stats = lab::stats;

struct NoiseOptions {
  std::vector<std::string> files;
  std::optional<double> alpha, power;
  std::optional<std::string> reported;
  bool json = false;
};

std::string_view outlier_name(stats::Outlier outlier) {
  return outlier == stats::Outlier::severe ? "severe"
         : outlier == stats::Outlier::mild ? "mild"
                                           : "";
}

std::string outliers_text(const std::vector<stats::Outlier>& flags,
                          const std::vector<std::string>& names) {
  std::string out;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == stats::Outlier::none) continue;
    out += fmt::format("{}{} ({})", out.empty() ? "" : ", ", escape(names[i], 80),
                       outlier_name(flags[i]));
  }
  return out.empty() ? "none" : out;
}

Json outliers_json(const std::vector<stats::Outlier>& flags,
                   const std::vector<std::string>& names) {
  Json out = Json::array();
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] == stats::Outlier::none) continue;
    out.push_back({{"name", names[i]}, {"class", outlier_name(flags[i])}});
  }
  return out;
}

std::string series_text(const noise::SeriesReport& series, std::string_view what) {
  std::string out = fmt::format("\n{} in time ({} values)\n", what, series.values.size());
  if (series.drift) {
    const double steps = static_cast<double>(series.values.size() - 1);
    out += fmt::format(
        "  drift, first to last: {} {} (Theil-Sen), Kendall p {:.3f}\n",
        percent_text(series.drift->slope * steps),
        interval_text({series.drift->interval.low * steps, series.drift->interval.high * steps}),
        series.drift->p);
  } else {
    out += "  drift: needs 5 values\n";
  }
  if (series.steps.empty()) out += "  change points (E-divisive, permutations): none\n";
  for (const stats::ChangePoint& step : series.steps) {
    out +=
        fmt::format("  change point at {} ({}): {}, p {:.3f}; nothing may be compared across it\n",
                    step.index + 1, escape(series.names[step.index], 80),
                    percent_text(step.after - step.before), step.p);
  }
  out +=
      fmt::format("  outliers (Tukey, kept): {}\n", outliers_text(series.outliers, series.names));
  if (series.cut_at_start > 0) {
    out += fmt::format("  the mean is most precise without the first {} values (MSER)\n",
                       series.cut_at_start);
  }
  return out;
}

Json series_json(const noise::SeriesReport& series) {
  Json steps = Json::array();
  for (const stats::ChangePoint& step : series.steps) {
    steps.push_back({{"index", step.index},
                     {"name", series.names[step.index]},
                     {"change_percent", percent_json(step.after - step.before)},
                     {"p", step.p}});
  }
  Json drift = nullptr;
  if (series.drift) {
    drift = {{"percent_per_value", percent_json(series.drift->slope)},
             {"interval_percent_per_value", interval_json(series.drift->interval)},
             {"kendall_tau", series.drift->tau},
             {"p", series.drift->p}};
  }
  return {{"values", series.values.size()},
          {"drift", std::move(drift)},
          {"change_points", std::move(steps)},
          {"outliers", outliers_json(series.outliers, series.names)},
          {"mser_cut", series.cut_at_start}};
}

std::string provable_text(const std::vector<noise::Provable>& table, double power) {
  std::string out = fmt::format(
      "\nsmallest gain that can be proved with {:.4g} %\n"
      "  blocks   normal approximation   exact signed rank   the same at the SD's upper end\n",
      100 * power);
  for (const noise::Provable& row : table) {
    out += fmt::format("  {:>6} {:>22} {:>19} {:>32}\n", row.blocks, size_text(row.normal),
                       size_text(row.signed_rank), size_text(row.at_upper_sd));
  }
  return out;
}

Json provable_json(const std::vector<noise::Provable>& table) {
  Json out = Json::array();
  for (const noise::Provable& row : table) {
    out.push_back({{"blocks", row.blocks},
                   {"percent_normal", percent_json(row.normal)},
                   {"percent_signed_rank", percent_json(row.signed_rank)},
                   {"percent_at_upper_sd", percent_json(row.at_upper_sd)}});
  }
  return out;
}

// A/A runs.

std::string text_of(const noise::Report& report, const noise::Options& options) {
  std::string out =
      fmt::format("noise of {} blocks ({} server starts, {} rows): {}\n", report.log_ratios.size(),
                  report.starts, report.rows, report.pairing);
  out += fmt::format("  SD of a block's log ratio: {} [{}, {}] ({:.4g} %, chi-squared)\n",
                     size_text(report.sd), size_text(report.sd_interval.low),
                     size_text(report.sd_interval.high), 100 * (1 - options.alpha));
  out += fmt::format("  centre: {} {} (exact signed rank, level {:.4g} %){}\n",
                     percent_text(report.centre.estimate), interval_text(report.centre.interval),
                     100 * report.centre.attained,
                     report.centre.reached && !report.centre.interval.contains(0)
                         ? ": not 0, so the two sides are not the same thing"
                     : report.centre.reached ? ""
                                             : ": too few blocks for the level that was asked for");
  out +=
      fmt::format("  outliers (Tukey, kept): {}\n", outliers_text(report.outliers, report.names));
  const noise::WarmUpReport& warm = report.warm_up;
  if (!warm.why_not.empty()) {
    out += fmt::format("  first row of a start: not judged; {}\n", warm.why_not);
  } else {
    out += fmt::format(
        "  first row of a start against its later ones: {} {} (level {:.4g} %, {} "
        "starts){}\n",
        percent_text(warm.warm_up.effect), interval_text(warm.warm_up.interval),
        100 * warm.warm_up.attained, warm.warm_up.starts,
        warm.warm_up.found     ? ": a warm-up"
        : warm.warm_up.reached ? ""
                               : ": too few starts to say");
  }
  if (!report.provable.empty()) out += provable_text(report.provable, options.power);
  return out + series_text(report.controls, "server starts");
}

Json json_of(const noise::Report& report) {
  const noise::WarmUpReport& warm = report.warm_up;
  Json blocks = Json::array();
  for (size_t i = 0; i < report.names.size(); ++i) {
    blocks.push_back(
        {{"block", report.names[i]}, {"rate_percent", percent_json(report.log_ratios[i])}});
  }
  return {{"blocks", std::move(blocks)},
          {"pairing", report.pairing},
          {"starts", report.starts},
          {"rows", report.rows},
          {"sd_percent", percent_json(report.sd)},
          {"sd_interval_percent", interval_json(report.sd_interval)},
          {"centre_percent", percent_json(report.centre.estimate)},
          {"centre_interval_percent", interval_json(report.centre.interval)},
          {"centre_level", report.centre.attained},
          {"outliers", outliers_json(report.outliers, report.names)},
          {"warm_up", warm.why_not.empty()
                          ? Json{{"starts", warm.warm_up.starts},
                                 {"effect_percent", percent_json(warm.warm_up.effect)},
                                 {"interval_percent", interval_json(warm.warm_up.interval)},
                                 {"level", warm.warm_up.attained},
                                 {"found", warm.warm_up.found}}
                          : Json{{"why_not", warm.why_not}}},
          {"provable", provable_json(report.provable)},
          {"controls", series_json(report.controls)}};
}

// A table of runs.

struct Pool {
  size_t n = 0;
  double mean = 0, sd = 0, low = 0, high = 0;
};
Pool pool_of(const std::vector<double>& rates) {
  const auto [low, high] = std::minmax_element(rates.begin(), rates.end());
  return {rates.size(), stats::mean(rates), rates.size() > 1 ? stats::standard_deviation(rates) : 0,
          *low, *high};
}

// The named controls, all of them and without those that Tukey's fences flag.
std::pair<std::vector<double>, std::vector<double>> named_rates(const noise::TableReport& report) {
  std::pair<std::vector<double>, std::vector<double>> out;
  for (size_t i = 0; i < report.named.size(); ++i) {
    const double rate = report.table.rows[report.named[i]].tok_s;
    out.first.push_back(rate);
    if (report.named_outliers[i] == stats::Outlier::none) out.second.push_back(rate);
  }
  return out;
}

std::string pool_text(const Pool& pool) {
  return fmt::format("n {:>3}, mean {:.2f}, SD {:.2f} ({:.2f} %), range {:.2f} to {:.2f}", pool.n,
                     pool.mean, pool.sd, 100 * pool.sd / pool.mean, pool.low, pool.high);
}

std::string ladder_text(const noise::Ladder& ladder) {
  std::string out = fmt::format("\n  ladder, {}:", ladder.source);
  for (size_t i = 0; i < ladder.values.size(); ++i) {
    out += fmt::format("{} {:.3f}", i == 0 ? "" : " ->", ladder.values[i]);
  }
  out += "\n";
  for (const noise::Step& step : ladder.steps) {
    out +=
        fmt::format("    {:.3f} -> {:.3f}: {:+.3f} tok/s: {}", step.from, step.to, step.difference,
                    step.told ? "more than noise" : "cannot be told from noise");
    if (step.by_luck) {
      out += fmt::format("; best of the {} rows since, by luck alone {:+.2f}", *step.rows_between,
                         *step.by_luck);
    }
    out += "\n";
  }
  return out;
}

std::string text_of(const noise::TableReport& report, const noise::Options& options) {
  const noise::Table& table = report.table;
  std::string out = fmt::format(
      "{} rows, {} with a rate that counts; {} placed in a recipe, {} not (they stay out)\n",
      table.total, table.rows.size(), report.placed,
      static_cast<int64_t>(table.rows.size()) - report.placed);
  out += fmt::format("how rows were grouped: {}\n", noise::grouping_rule());
  out += "\nrecipes that ran more than once (tok/s of the first row after the start)\n";
  for (const noise::Group& group : report.groups) {
    if (group.rates.size() < 2) continue;
    out += fmt::format("  {}{}\n    {}, {} named control{}\n   ", group.recipe,
                       group.inferred ? " (family partly inferred)" : "",
                       pool_text(pool_of(group.rates)), group.named_controls,
                       group.named_controls == 1 ? "" : "s");
    for (const size_t i : group.members) {
      out += fmt::format(" {:.3f}{}", table.rows[i].tok_s,
                         report.placements[i].named_control ? "c" : "");
    }
    out += "\n";
  }
  const auto [all, kept] = named_rates(report);
  if (!all.empty()) {
    out += fmt::format("\nrows named control, recipes and builds pooled\n  all:              {}\n",
                       pool_text(pool_of(all)));
    if (kept.size() < all.size() && !kept.empty()) {
      out += fmt::format("  without outliers: {}\n", pool_text(pool_of(kept)));
    }
    for (const size_t i : report.named) {
      if (report.placements[i].placed) continue;
      out += fmt::format("  not placed: {:.3f}, {}: \"{}\"\n", table.rows[i].tok_s,
                         escape(table.rows[i].run, 80), escape(report.placements[i].why_not, 80));
    }
    out += series_text(report.controls, "named controls");
  }
  if (report.pooled.df < 1) {
    out += "\nno recipe ran twice: the noise of a row is not known from this table\n";
    return out;
  }
  out += fmt::format(
      "\nnoise of one row: SD {:.3f} tok/s [{:.3f}, {:.3f}] within recipes, {:.0f} degrees of "
      "freedom\n"
      "  by hand: for each recipe above sum (rate - its mean)^2; add all; divide by the sum of (n "
      "- 1) = "
      "{:.0f}; take the root\n"
      "  two single rows differ by more than noise ({:.4g} %, two-sided) from t({:.4g}; {:.0f}) * "
      "SD * "
      "sqrt 2 = {:.3f} * {:.3f} * 1.414 = {:.2f} tok/s on\n",
      report.pooled.sd, report.pooled_interval.low, report.pooled_interval.high, report.pooled.df,
      report.pooled.df, 100 * options.alpha, 1 - options.alpha / 2, report.limit.df, report.limit.t,
      report.limit.sd, report.limit.difference);
  if (report.promoted.values.size() > 1) out += ladder_text(report.promoted);
  if (report.reported.values.size() > 1) out += ladder_text(report.reported);
  if (!report.provable.empty()) {
    out += fmt::format("\na pair of such rows has a log ratio of SD {}",
                       size_text(report.relative_sd * std::sqrt(2.0)));
    out += provable_text(report.provable, options.power);
  }
  if (table.skipped > 0) out += fmt::format("\n{} lines could not be read\n", table.skipped);
  return out;
}

Json pool_json(const std::vector<double>& rates) {
  if (rates.empty()) return nullptr;
  const Pool pool = pool_of(rates);
  return {
      {"n", pool.n}, {"mean", pool.mean}, {"sd", pool.sd}, {"min", pool.low}, {"max", pool.high}};
}

Json ladder_json(const noise::Ladder& ladder) {
  Json steps = Json::array();
  for (const noise::Step& step : ladder.steps) {
    steps.push_back({{"from", step.from},
                     {"to", step.to},
                     {"difference", step.difference},
                     {"more_than_noise", step.told},
                     {"rows_between", step.rows_between ? Json(*step.rows_between) : Json(nullptr)},
                     {"by_luck", step.by_luck ? Json(*step.by_luck) : Json(nullptr)}});
  }
  return {{"source", ladder.source}, {"values", ladder.values}, {"steps", std::move(steps)}};
}

Json json_of(const noise::TableReport& report) {
  const noise::Table& table = report.table;
  const auto row_json = [&](size_t i) {
    return Json{{"line", table.rows[i].line},
                {"run", table.rows[i].run},
                {"tok_s", table.rows[i].tok_s},
                {"named_control", report.placements[i].named_control},
                {"inferred", report.placements[i].inferred}};
  };
  Json groups = Json::array(), unplaced = Json::array();
  for (const noise::Group& group : report.groups) {
    Json rows = Json::array();
    for (const size_t i : group.members) rows.push_back(row_json(i));
    Json json = pool_json(group.rates);
    json["recipe"] = group.recipe;
    json["inferred"] = group.inferred;
    json["named_controls"] = group.named_controls;
    json["rows"] = std::move(rows);
    groups.push_back(std::move(json));
  }
  for (size_t i = 0; i < report.placements.size(); ++i) {
    if (report.placements[i].placed) continue;
    Json json = row_json(i);
    json["why_not"] = report.placements[i].why_not;
    unplaced.push_back(std::move(json));
  }
  const auto [all, kept] = named_rates(report);
  return {{"rows", table.total},
          {"rows_used", table.rows.size()},
          {"rows_placed", report.placed},
          {"lines_skipped", table.skipped},
          {"grouping_rule", noise::grouping_rule()},
          {"recipes", std::move(groups)},
          {"not_placed", std::move(unplaced)},
          {"named_controls",
           {{"all", pool_json(all)},
            {"without_outliers", pool_json(kept)},
            {"series", series_json(report.controls)}}},
          {"row_sd",
           {{"tok_s", report.pooled.sd},
            {"degrees_of_freedom", report.pooled.df},
            {"interval",
             {number_json(report.pooled_interval.low), number_json(report.pooled_interval.high)}},
            {"percent", 100 * report.relative_sd}}},
          {"difference_beyond_noise",
           {{"tok_s", report.limit.difference},
            {"t", report.limit.t},
            {"formula", "t * sd * sqrt(2)"}}},
          {"ladders", {ladder_json(report.promoted), ladder_json(report.reported)}},
          {"provable", provable_json(report.provable)}};
}

ExitCode run_noise(const NoiseOptions& options) {
  if (options.files.empty()) bad_use("no file; give runs of the same thing, or a table of runs");
  noise::Options studied_by;
  studied_by.alpha = options.alpha.value_or(0.05);
  studied_by.power = options.power.value_or(0.8);
  std::vector<runs::Runs> read;
  Json json{
      {"schema", "lockstep.lab.noise/1"}, {"alpha", studied_by.alpha}, {"power", studied_by.power}};
  std::string out;
  Json table_json = nullptr;
  for (const std::string& file : options.files) {
    const std::string text = runs::read_file(file);
    const size_t first = text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && text[first] != '{' && text[first] != '[') {
      const runs::Csv csv = runs::parse_csv(text, file);
      if (noise::is_run_table(csv)) {
        if (options.files.size() > 1)
          bad_use(fmt::format("{}: a table of runs is studied alone", shorten(file)));
        std::vector<double> reported;
        if (options.reported) reported = reported_values(*options.reported);
        const noise::TableReport report =
            noise::study_table(noise::read_run_table(csv, file), reported, studied_by);
        out = text_of(report, studied_by);
        table_json = json_of(report);
        continue;
      }
    }
    read.push_back(runs::parse_runs(text, file));
  }
  json["table"] = std::move(table_json);
  json["runs"] = nullptr;
  if (!read.empty()) {
    if (options.reported) bad_use("--reported goes with a table of runs");
    const noise::Report report = noise::study_runs(read, studied_by);
    out = text_of(report, studied_by);
    json["runs"] = json_of(report);
    int64_t skipped = 0;
    for (const runs::Runs& file : read) {
      skipped += file.skipped;
      if (file.skipped > 0) {
        out += fmt::format("note: {}: {} rows could not be read; first: {}\n", shorten(file.source),
                           file.skipped, file.first_skipped);
      }
    }
    json["runs"]["rows_skipped"] = skipped;
  }
  if (options.json) {
    print_json(json);
  } else {
    print(out);
  }
  return ExitCode::ok;
}

}  // namespace

std::vector<double> reported_values(const std::string& text) {
  constexpr size_t kMostReported = 100;
  std::vector<double> out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::optional<double> value =
        parse_number(std::string_view(text).substr(begin, end - begin));
    if (!value || !(*value > 0) || !std::isfinite(*value) || out.size() == kMostReported) {
      bad_use(fmt::format("--reported {}: not a list of rates, as in 101.4,102.0", shorten(text)));
    }
    out.push_back(*value);
    begin = end + 1;
  }
  return out;
}

Runner set_up_lab_noise(Flags& flags) {
  const auto options = std::make_shared<NoiseOptions>();
  flags.number("--alpha", options->alpha, 1e-6, 0.5);
  flags.number("--power", options->power, 0.5, 0.9999);
  flags.text("--reported", options->reported);
  flags.toggle("--json", options->json);
  flags.positionals("FILE",
                    "lockstep.lab.runs/1 or CSV of the same thing measured twice, or one table "
                    "of runs with the columns batch,run,change,fresh_tok_s,verdict",
                    options->files);
  flags.describe(
      "Measures the noise floor: how much the same thing differs from itself, the smallest gain "
      "that 6 to "
      "50 blocks can prove over it, drift and change points of the controls, and whether first "
      "rows are "
      "slow. Of a table of runs without a recipe column it finds the controls, shows how it "
      "grouped them, "
      "and says which steps of the ladder of promoted rows can be told from noise.",
      "lockstep lab noise control-a.json control-b.json");
  return [options] { return run_noise(*options); };
}

}  // namespace lockstep::app
