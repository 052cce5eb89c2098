// lockstep lab rejected: the dead ends.
#include <fmt/format.h>

#include <memory>

#include "lab/lab.h"
#include "lab/ledger_common.h"

namespace lockstep::app {
namespace {

ExitCode rejected(const LedgerOptions& options) {
  lab::Ledger ledger = options.open(lab::Database::Mode::read);
  const lab::Catalog catalog = lab::load_catalog(ledger);
  const std::vector<lab::DeadEnd> ends = lab::dead_ends(catalog);
  if (options.json) {
    Json list = Json::array();
    for (const lab::DeadEnd& end : ends) {
      Json tries = Json::array();
      for (const lab::Attempt& attempt : end.attempts) tries.push_back(attempt_json(attempt));
      list.push_back({{"lane", end.attempts[0].lane},
                      {"best_tok_s", number_json(end.best_tok_s)},
                      {"attempts", tries}});
    }
    print_json({{"schema", "lockstep.lab.rejected/1"}, {"dead_ends", list}});
    return ExitCode::ok;
  }
  std::vector<std::vector<std::string>> rows = {
      {"verdict", "lane", "times", "best tok/s", "from", "retry", "change", "recipe"}};
  for (const lab::DeadEnd& end : ends) {
    const lab::Attempt& last = end.attempts.back();
    rows.push_back(
        {last.judged, last.lane.empty() ? "-" : last.lane, fmt::format("{}", end.attempts.size()),
         number_text(end.best_tok_s), std::string(lab::name_of(last.provenance)),
         last.retry.empty() ? "none recorded" : last.retry, last.candidate->object.value("change"),
         last.candidate->object.value("recipe")});
  }
  print((ends.empty() ? "" : table_of(rows, 48)) +
        fmt::format("{} dead ends{}\n", ends.size(),
                    ends.empty()
                        ? ""
                        : "; \"reported\" ones are somebody's word: a loss within the noise "
                          "looks the same (lab noise)"));
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_rejected(Flags& flags) {
  const auto options = std::make_shared<LedgerOptions>();
  options->bind(flags);
  flags.describe(
      "Lists what was rejected: not better, inexact, invalid or a fault, and never found "
      "better under the same lane and recipe, with its retry condition.",
      "lockstep lab rejected");
  return [options] { return rejected(*options); };
}

}  // namespace lockstep::app
