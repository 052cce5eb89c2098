// lockstep lab records: what the lab proved, and the ladder that somebody claims.
#include <fmt/format.h>

#include <memory>

#include "lab/lab.h"
#include "lab/ledger/history.h"
#include "lab/ledger_common.h"

namespace lockstep::app {
namespace {

ExitCode records(const LedgerOptions& options) {
  lab::Ledger ledger = options.open(lab::Database::Mode::read);
  const lab::Catalog catalog = lab::load_catalog(ledger);
  const auto proved = catalog.of(lab::Kind::record);
  const std::vector<lab::ClaimedRecord> ladder = lab::claimed_ladder(catalog);
  Json records_json = Json::array(), claims_json = Json::array();
  std::string out = fmt::format("records: {}\n", proved.size());
  std::vector<std::vector<std::string>> rows = {
      {"id", "lane", "level", "effect", "selected", "confirmed", "expected", "stands"}};
  for (const auto* item : proved) {
    const auto number = [&](std::string_view name) {
      const lab::Fact* fact = item->object.find(name);
      return fact ? fact->number() : std::nullopt;
    };
    // Looked at again: what it stands on may have been superseded since.
    const auto faults = lab::record_faults(catalog, item->object);
    rows.push_back({short_id(item->id), item->object.value("lane"), number_text(number("level")),
                    number_text(number("effect")), number_text(number("selected")),
                    number_text(number("confirmed")), number_text(number("expected")),
                    faults.empty() ? "yes" : fmt::format("no: {}", fmt::join(faults, "; "))});
    Json one = object_json(item->id, item->object);
    one["faults"] = faults;
    records_json.push_back(std::move(one));
  }
  if (!proved.empty()) out += table_of(rows);
  out += fmt::format("claimed: {}\n", ladder.size());
  rows = {{"id", "lane", "when", "tok/s", "step", "from", "run"}};
  std::optional<double> before;
  std::string lane;
  for (const lab::ClaimedRecord& claim : ladder) {
    if (claim.lane != lane) before.reset();
    lane = claim.lane;
    const std::optional<double> step = before ? std::optional(claim.value - *before) : std::nullopt;
    before = claim.value;
    rows.push_back({short_id(claim.claim->id), claim.lane.empty() ? "-" : claim.lane,
                    claim.when.empty() ? "-" : claim.when, number_text(claim.value),
                    step ? fmt::format("{:+.3f}", *step) : "-",
                    std::string(lab::name_of(claim.provenance)), claim.name});
    Json one = object_json(claim.claim->id, claim.claim->object);
    one["name"] = claim.name;
    one["step"] = number_json(step);
    claims_json.push_back(std::move(one));
  }
  if (options.json) {
    print_json(
        {{"schema", "lockstep.lab.records/1"}, {"records", records_json}, {"claims", claims_json}});
    return ExitCode::ok;
  }
  if (!ladder.empty()) {
    out +=
        table_of(rows) +
        "a claim is evidence and no record: only facts that are verified or logged, under a full "
        "identity, make one\n";
  }
  print(out);
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_records(Flags& flags) {
  const auto options = std::make_shared<LedgerOptions>();
  options->bind(flags);
  flags.describe(
      "Lists the records and whether what they stand on still holds, and the ladder of "
      "claims with where each figure comes from.",
      "lockstep lab records");
  return [options] { return records(*options); };
}

}  // namespace lockstep::app
