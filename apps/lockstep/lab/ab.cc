// lockstep lab ab: is B better than A?
#include "lab/ab/ab.h"

#include <fmt/format.h>

#include <memory>

#include "cli.h"
#include "lab/format.h"
#include "lab/lab.h"
#include "lab/looks.h"
#include "lab/runs/runs.h"
#include "lab/stats/effect.h"
#include "output.h"

namespace lockstep::app {
namespace {

namespace ab = lab::ab;
namespace runs = lab::runs;
namespace stats = lab::stats;

struct AbOptions {
  std::vector<std::string> files;
  std::optional<double> min_effect, no_worse, gain, sd, alpha;
  std::optional<int64_t> seed;
  std::optional<std::vector<int64_t>> looks;
  bool always_valid = false, json = false;
};

ab::Options judging(const AbOptions& options) {
  if (options.looks && options.always_valid)
    bad_use("--looks and --always-valid exclude each other");
  ab::Options out;
  out.alpha = options.alpha.value_or(0.05);
  out.min_effect = stats::log_of_percent(options.min_effect.value_or(0));
  out.no_worse_margin = stats::log_of_percent(options.no_worse.value_or(0.5));
  out.seed = static_cast<uint64_t>(options.seed.value_or(1));
  if (options.gain) out.gain = stats::log_of_percent(*options.gain);
  if (options.looks) {
    check_looks(*options.looks);
    out.method = ab::Method::group_sequential;
    out.looks = *options.looks;
  } else if (options.always_valid) {
    out.method = ab::Method::always_valid;
    if (options.gain.has_value() != options.sd.has_value()) {
      bad_use("--always-valid aims at --gain over --sd; give both, or neither (a gain of one SD)");
    }
    if (options.gain) out.tau = *out.gain / stats::log_of_percent(*options.sd);
  } else if (options.gain) {
    bad_use("--gain is for --looks (futility) and --always-valid; lab power plans fixed campaigns");
  }
  if (options.sd && !options.always_valid) bad_use("--sd is for --always-valid alone");
  return out;
}

std::string reasons_text(const ab::Result& result) {
  std::string out;
  for (const ab::Reason& reason : result.reasons) {
    out += fmt::format("  {}: {}\n", reason.rule, reason.text);
  }
  return out;
}

std::string shown(const std::string& text) {
  return escape(text, 80);
}

std::string text_of(const ab::Result& result, const ab::Options& options) {
  std::string out = fmt::format("verdict: {}\n", ab::verdict_name(result.verdict));
  out += reasons_text(result);
  out += fmt::format(
      "\n  A is \"{}\": {} server starts, {} rows; B is \"{}\": {} and {}; {} prompts\n",
      shown(result.arm_a), result.starts_a, result.rows_a, shown(result.arm_b), result.starts_b,
      result.rows_b, result.prompts);
  if (result.exactness.judged) {
    out += fmt::format("  exactness ({}): {} prompts compared, {} differ\n",
                       shown(result.exactness.cls), result.exactness.compared,
                       result.exactness.different);
  }
  if (result.has_effect) {
    const bool ranks = options.method == ab::Method::signed_rank;
    out +=
        fmt::format("  rate, B to A:    {}  {} ({}, level {:.4g} %) over {} blocks{}\n",
                    percent_text(result.estimate), interval_text(result.interval),
                    ranks ? "Hodges-Lehmann, exact signed rank" : ab::method_name(options.method),
                    100 * result.level, result.units.size(),
                    static_cast<int64_t>(result.units.size()) < result.units_given
                        ? fmt::format(" of {}", result.units_given)
                        : "");
    if (result.tokens_per_step) {
      out += fmt::format("  tokens a step:   {}{}\n", percent_text(*result.tokens_per_step),
                         result.same_tokens_per_step ? " (the same in every block)" : "");
      out += fmt::format("  ms a step:       {}\n", percent_text(*result.ms_per_step));
    }
    if (result.sd) out += fmt::format("  SD of a block:   {}\n", size_text(*result.sd));
    if (result.smallest_provable) {
      out += fmt::format("  at that SD, {} blocks prove {} with 80 %\n", result.units.size(),
                         size_text(*result.smallest_provable));
    }
    if (result.bootstrap) {
      out += fmt::format("  cluster bootstrap of the mean: percentile {}, BCa {}\n",
                         interval_text(result.bootstrap->percentile),
                         interval_text(result.bootstrap->bca));
    }
    if (result.sign_e_value) {
      out += fmt::format(
          "  sign betting (no assumption on the shape): e-value {:.3g}, {:.3g} needed\n",
          *result.sign_e_value, 1 / options.alpha);
    }
    if (result.no_worse) {
      out += fmt::format("  no worse than {}: {} (one-sided level {:.4g} %)\n",
                         size_text(options.no_worse_margin), stats::answer_name(*result.no_worse),
                         100 * result.no_worse_level);
    }
    if (options.min_effect != 0) {
      out += fmt::format("  better means above {}\n", percent_text(options.min_effect));
    }
  }
  if (!result.looks.empty()) {
    out += "\n  blocks  interval\n";
    for (const ab::Look& look : result.looks) {
      out += fmt::format("  {:>6}  {} {}\n", look.n, interval_text(look.interval), look.says);
    }
  }
  for (const std::string& remark : result.notes) out += fmt::format("  note: {}\n", remark);
  return out;
}

Json json_of(const ab::Result& result, const ab::Options& options) {
  Json reasons = Json::array(), units = Json::array(), looks = Json::array();
  for (const ab::Reason& reason : result.reasons) {
    reasons.push_back({{"rule", reason.rule}, {"text", reason.text}});
  }
  const auto part = [](const std::optional<double>& ratio) {
    return ratio ? percent_json(*ratio) : Json(nullptr);
  };
  for (const ab::Unit& unit : result.units) {
    units.push_back({{"block", unit.name},
                     {"rate_percent", percent_json(unit.log_ratio)},
                     {"tokens_per_step_percent", part(unit.tokens_per_step)},
                     {"ms_per_step_percent", part(unit.ms_per_step)}});
  }
  for (const ab::Look& look : result.looks) {
    looks.push_back({{"blocks", look.n},
                     {"interval_percent", interval_json(look.interval)},
                     {"says", look.says}});
  }
  Json json{{"schema", "lockstep.lab.ab/1"},
            {"verdict", ab::verdict_name(result.verdict)},
            {"reasons", std::move(reasons)},
            {"method", ab::method_name(options.method)},
            {"alpha", options.alpha},
            {"min_effect_percent", percent_json(options.min_effect)},
            {"a", {{"arm", result.arm_a}, {"starts", result.starts_a}, {"rows", result.rows_a}}},
            {"b", {{"arm", result.arm_b}, {"starts", result.starts_b}, {"rows", result.rows_b}}},
            {"metric", result.metric},
            {"prompts", result.prompts},
            {"exactness",
             {{"class", result.exactness.cls},
              {"judged", result.exactness.judged},
              {"prompts_compared", result.exactness.compared},
              {"prompts_different", result.exactness.different},
              {"rows_without_hash", result.exactness.without_hash}}},
            {"blocks_given", result.units_given},
            {"blocks", std::move(units)},
            {"looks", std::move(looks)}};
  if (result.has_effect) {
    json["effect"] = {{"rate_percent", percent_json(result.estimate)},
                      {"interval_percent", interval_json(result.interval)},
                      {"level", result.level},
                      {"sd_percent", part(result.sd)},
                      {"tokens_per_step_percent", part(result.tokens_per_step)},
                      {"tokens_per_step_same", result.same_tokens_per_step},
                      {"ms_per_step_percent", part(result.ms_per_step)},
                      {"smallest_provable_percent", part(result.smallest_provable)}};
  } else {
    json["effect"] = nullptr;
  }
  json["bootstrap"] =
      result.bootstrap ? Json{{"percentile_percent", interval_json(result.bootstrap->percentile)},
                              {"bca_percent", interval_json(result.bootstrap->bca)},
                              {"seed", options.seed}}
                       : Json(nullptr);
  json["sign_e_value"] = result.sign_e_value ? number_json(*result.sign_e_value) : Json(nullptr);
  json["no_worse"] = result.no_worse
                         ? Json{{"margin_percent", percent_json(options.no_worse_margin)},
                                {"answer", stats::answer_name(*result.no_worse)},
                                {"level", result.no_worse_level}}
                         : Json(nullptr);
  json["notes"] = result.notes;
  return json;
}

ExitCode run_ab(const AbOptions& options) {
  if (options.files.empty() || options.files.size() > 2) {
    bad_use("lab ab takes two files, A and B, or one with two arms");
  }
  const ab::Options judged_by = judging(options);
  std::vector<runs::Runs> read;
  for (const std::string& file : options.files) {
    read.push_back(runs::parse_runs(runs::read_file(file), file));
  }
  ab::Result result;
  if (read.size() == 1) {
    const auto [a, b] = ab::split_arms(read[0]);
    result = ab::judge(a, b, judged_by);
  } else {
    result = ab::judge(read[0], read[1], judged_by);
  }
  for (const runs::Runs& file : read) {
    if (file.skipped > 0) {
      result.notes.push_back(
          fmt::format("{}: {} row{} could not be read and {} left out; first: {}",
                      shorten(file.source), file.skipped, file.skipped == 1 ? "" : "s",
                      file.skipped == 1 ? "is" : "are", file.first_skipped));
    }
  }
  if (options.json) {
    print_json(json_of(result, judged_by));
  } else {
    print(text_of(result, judged_by));
  }
  return result.verdict == ab::Verdict::inexact || result.verdict == ab::Verdict::invalid
             ? ExitCode::check_failed
             : ExitCode::ok;
}

}  // namespace

Runner set_up_lab_ab(Flags& flags) {
  const auto options = std::make_shared<AbOptions>();
  flags.number("--min-effect", options->min_effect, -50, 1000);
  flags.number("--no-worse", options->no_worse, 0, 50);
  flags.integers("--looks", options->looks, 2, 1000);
  flags.toggle("--always-valid", options->always_valid);
  flags.number("--gain", options->gain, 1e-6, 1000);
  flags.number("--sd", options->sd, 1e-6, 100);
  flags.number("--alpha", options->alpha, 1e-6, 0.5);
  flags.integer("--seed", options->seed, 0, INT64_MAX);
  flags.toggle("--json", options->json);
  flags.positionals("FILE",
                    "A and B: lockstep.lab.runs/1 or CSV (docs/lab-statistics.md); one file may "
                    "hold both arms",
                    options->files);
  flags.describe(
      "Says whether B is better than A: better, not_better or unknown, with the effect on tokens a "
      "second and its interval. Token hashes are looked at first: where they differ the verdict is "
      "inexact and no statistics are made. What can't be compared is invalid, with the rule that "
      "says "
      "so. Exit code 1 for inexact and invalid.",
      "lockstep lab ab control.json candidate.json --min-effect 0.5");
  return [options] { return run_ab(*options); };
}

}  // namespace lockstep::app
