// lockstep lab tried: was it tried before, what came of it, may it be tried again.
#include <fmt/format.h>

#include <memory>

#include "lab/lab.h"
#include "lab/ledger/history.h"
#include "lab/ledger_common.h"

namespace lockstep::app {
namespace {

struct TriedOptions : LedgerOptions {
  std::string query;
};

std::string change_of(const lab::Attempt& attempt) {
  const std::string change = attempt.candidate->object.value("change");
  return change.empty() ? "(said by the run's name alone)" : change;
}

std::string name_of_run(const lab::Attempt& attempt) {
  return attempt.run ? attempt.run->object.value("name") : "";
}

std::vector<std::string> attempt_header() {
  return {"verdict", "said", "lane", "tok/s", "retry", "change", "run"};
}

std::vector<std::string> attempt_cells(const lab::Attempt& attempt) {
  return {attempt.judged,
          attempt.said.empty() ? "-" : attempt.said,
          attempt.lane.empty() ? "-" : attempt.lane,
          number_text(attempt.tok_s),
          attempt.retry.empty() ? "none recorded" : attempt.retry,
          fmt::format("{}{}", attempt.in_change ? "" : "[name] ", change_of(attempt)),
          name_of_run(attempt)};
}

// A gain in isolation that is lost end to end shows here.
std::string realised_text(const lab::Realised& realised) {
  if (realised.attempts == 0) return "";
  std::string share;
  if (realised.predicted > 0) {
    share = fmt::format(", {:.0f} % of it", 100 * realised.measured / realised.predicted);
  }
  return fmt::format(
      "predicted and measured: {}; {:+.2f} % was predicted in all, {:+.2f} % came{}\n",
      realised.attempts, 100 * realised.predicted, 100 * realised.measured, share);
}

ExitCode tried(const TriedOptions& options) {
  if (options.query.empty()) bad_use("say what: lockstep lab tried \"p_min=0.136\"");
  lab::Ledger ledger = options.open(lab::Database::Mode::read);
  const lab::Catalog catalog = lab::load_catalog(ledger);
  const lab::Tried result = lab::tried(catalog, options.query);
  if (options.json) {
    Json asked = Json::object(), found = Json::array(), near = Json::array();
    for (const lab::Setting& setting : result.settings) asked[setting.key] = setting.value;
    for (const lab::Attempt& attempt : result.found) found.push_back(attempt_json(attempt));
    for (const auto& [setting, attempt] : result.near) {
      Json one = {{"key", setting.key}, {"value", setting.value}};
      one["attempt"] = attempt_json(attempt);
      near.push_back(std::move(one));
    }
    const lab::Realised realised = lab::realised(result.found);
    print_json({{"schema", "lockstep.lab.tried/1"},
                {"settings", asked},
                {"words", result.words},
                {"found", found},
                {"near", near},
                {"realised",
                 {{"attempts", realised.attempts},
                  {"predicted", realised.predicted},
                  {"measured", realised.measured}}}});
    return ExitCode::ok;
  }
  std::string what;
  for (const lab::Setting& setting : result.settings) {
    what += fmt::format("{}{}={}", what.empty() ? "" : ", ", setting.key, setting.value);
  }
  for (const std::string& word : result.words) what += (what.empty() ? "" : ", ") + word;
  std::vector<std::vector<std::string>> rows = {attempt_header()};
  for (const lab::Attempt& attempt : result.found) rows.push_back(attempt_cells(attempt));
  if (!result.found.empty()) {
    print(fmt::format("{}: tried {} times\n{}{}", escape(what), result.found.size(),
                      table_of(rows, 48), realised_text(lab::realised(result.found))));
    return ExitCode::ok;
  }
  std::string out = fmt::format("{}: not tried\n", escape(what));
  if (!result.near.empty()) {
    constexpr size_t kShown = 5;
    for (size_t i = 0; i < std::min(kShown, result.near.size()); ++i) {
      const auto& [setting, attempt] = result.near[i];
      rows.push_back(attempt_cells(attempt));
      rows.back()[5] = fmt::format("{}={}: {}", setting.key, setting.value, rows.back()[5]);
    }
    out += fmt::format("nearest:\n{}", table_of(rows, 48));
  }
  print(out);
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_tried(Flags& flags) {
  const auto options = std::make_shared<TriedOptions>();
  options->bind(flags);
  flags.positional("WHAT",
                   "settings and words: \"p_min=0.136\", \"selected softmax\"; after -- also "
                   "\"--threads 16\"",
                   options->query);
  flags.describe(
      "Finds earlier attempts by what they changed, whatever the spelling: p_min=0.136 "
      "finds MTP_P_MIN=0.1360, --spec-draft-p-min 0.136 and a run named …-pmin0136-…, and "
      "says verdict, lane and on what condition it may be tried again.",
      "lockstep lab tried \"p_min=0.136 threads=16\"");
  return [options] { return tried(*options); };
}

}  // namespace lockstep::app
