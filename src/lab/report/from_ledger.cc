#include <fmt/format.h>

#include <map>

#include "base/error.h"
#include "lab/ledger/history.h"
#include "lab/ledger/import.h"
#include "lab/report/ledger_page.h"
#include "lab/report/sections.h"

namespace lockstep::lab::report {
namespace {

constexpr size_t kMostRows = 300;

std::optional<double> number(const Object& object, std::string_view name) {
  const Fact* fact = object.find(name);
  return fact ? fact->number() : std::nullopt;
}
std::string number_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.3f}", *value) : "-";
}
std::string short_id(std::string_view id) {
  return std::string(id.substr(0, 12));
}

// What is imported and can be shown whole.
std::vector<Input> shown_imports(Ledger& ledger) {
  std::vector<std::pair<std::string, std::string>> found;  // file, artifact
  ledger.each(Kind::import, [&](const Entry& entry) {
    const std::string format = entry.object.value("format");
    if (format == "runs-csv" || format == "lockstep.lab.log/1") {
      found.emplace_back(entry.object.value("file"), entry.object.value("artifact"));
    }
  });
  std::vector<Input> out;
  for (const auto& [file, artifact] : found) out.push_back({file, ledger.artifact(artifact)});
  return out;
}

std::string provenance_of(const Object& object, std::string_view name) {
  const Fact* fact = object.find(name);
  return fact ? std::string(name_of(fact->provenance)) : "-";
}

// Records and verdicts that have an effect.
void add_effects(Page& page, const Catalog& catalog) {
  Section section;
  section.heading = "Effects in the ledger";
  Table records, verdicts;
  records.caption = "Records";
  records.columns = {{"", true},          {"id", false},      {"lane", false},
                     {"level", true},     {"effect", true},   {"selected", true},
                     {"confirmed", true}, {"expected", true}, {"stands", false}};
  verdicts.caption = "Verdicts that have an effect";
  verdicts.columns = {{"", true},       {"id", false},      {"verdict", false}, {"change", false},
                      {"effect", true}, {"interval", true}, {"from", false}};
  EffectPlot plot;
  const auto add = [&](const Object& object, std::string label,
                       std::string verdict) -> std::string {
    const std::optional<double> effect = number(object, "effect");
    if (!effect) return "-";
    const auto low = number(object, "effect_low"), high = number(object, "effect_high");
    plot.effects.push_back({std::move(label),
                            std::move(verdict),
                            *effect,
                            {low.value_or(-HUGE_VAL), high.value_or(HUGE_VAL)},
                            0,
                            {}});
    return fmt::format("{}", plot.effects.size());
  };
  for (const Catalog::Item* item : catalog.of(Kind::record)) {
    const Object& record = item->object;
    const std::vector<std::string> faults = record_faults(catalog, record);
    const Catalog::Item* candidate = catalog.candidate_of(*item);
    records.rows.push_back(
        {add(record, candidate ? candidate->object.value("change") : short_id(item->id), "record"),
         short_id(item->id), record.value("lane"), number_text(number(record, "level")),
         number_text(number(record, "effect")), number_text(number(record, "selected")),
         number_text(number(record, "confirmed")), number_text(number(record, "expected")),
         faults.empty() ? "yes" : fmt::format("no: {}", fmt::join(faults, "; "))});
  }
  for (const Catalog::Item* item : catalog.of(Kind::verdict)) {
    const Object& verdict = item->object;
    if (!number(verdict, "effect")) continue;
    const Catalog::Item* candidate = catalog.candidate_of(*item);
    const std::string change =
        candidate ? candidate->object.value("change") : std::string("(no candidate)");
    const std::string place = add(verdict, change, verdict.value("verdict"));
    verdicts.rows.push_back({place, short_id(item->id), verdict.value("verdict"), change,
                             percent_text(*number(verdict, "effect")),
                             interval_text(plot.effects.back().interval),
                             provenance_of(verdict, "effect")});
  }
  if (records.rows.empty() && verdicts.rows.empty()) return;
  if (!plot.effects.empty()) {
    section.plot = std::move(plot);
    section.plot_caption =
        "As the ledger has them, in per cent; a bar that runs to the edge has no end recorded.";
  }
  for (Table* table : {&records, &verdicts}) {
    if (table->rows.size() > kMostRows) {
      table->left_out = static_cast<int64_t>(table->rows.size() - kMostRows);
      table->rows.resize(kMostRows);
    }
    if (!table->rows.empty()) section.tables.push_back(std::move(*table));
  }
  page.sections.push_back(std::move(section));
}

// The ladder of each lane's claims.
void add_claims(Page& page, const Catalog& catalog, const noise::Threshold& limit) {
  std::map<std::string, std::vector<ClaimedRecord>> lanes;
  for (ClaimedRecord& claim : claimed_ladder(catalog)) {
    if (claim.value > 0) lanes[claim.lane].push_back(std::move(claim));
  }
  for (const auto& [lane, claims] : lanes) {
    std::vector<double> values;
    std::vector<std::string> labels;
    Table table;
    table.caption = "The claims";
    table.columns = {{"when", false}, {"tok/s", true}, {"from", false}, {"run", false}};
    for (const ClaimedRecord& claim : claims) {
      values.push_back(claim.value);
      labels.push_back(claim.name);
      table.rows.push_back({claim.when.empty() ? "-" : claim.when,
                            fmt::format("{:.3f}", claim.value),
                            std::string(name_of(claim.provenance)), claim.name});
    }
    noise::Ladder ladder = noise::reported_ladder(values, limit);
    ladder.source = lane.empty() ? "claimed" : fmt::format("claimed in {}", lane);
    Section section = ladder_section(ladder, limit, labels);
    section.tables.push_back(std::move(table));
    section.notes.emplace_back(
        "A claim is evidence and no record: only facts that are verified or logged, under a full "
        "identity, make one.");
    page.sections.push_back(std::move(section));
  }
}

}  // namespace

Page ledger_page(Ledger& ledger, const Options& options) {
  Page page;
  page.title = "Lockstep lab report";
  const Head head = ledger.head();
  const Catalog catalog = load_catalog(ledger);
  const std::vector<Input> inputs = shown_imports(ledger);
  page.findings.push_back(fmt::format("the ledger holds {} entries: {} runs, {} claims, {} records",
                                      head.entries, catalog.of(Kind::run).size(),
                                      catalog.of(Kind::claim).size(),
                                      catalog.of(Kind::record).size()));
  Page files;
  const std::optional<noise::Threshold> limit = add_files(files, inputs, options);
  add_effects(page, catalog);
  add_claims(page, catalog, limit.value_or(noise::Threshold{}));
  if (page.sections.empty() && files.sections.empty()) {
    throw Error(ExitCode::bad_use,
                "the ledger holds no record, effect, claim, table of runs or lab log result; see "
                "lockstep lab import --help");
  }
  for (std::string& finding : files.findings) page.findings.push_back(std::move(finding));
  for (Section& section : files.sections) page.sections.push_back(std::move(section));
  page.sources.push_back({ledger.database().name(),
                          fmt::format("ledger, entry {}, head {}", head.entries, head.hash), "",
                          0});
  for (Source& source : files.sources) page.sources.push_back(std::move(source));
  return page;
}

}  // namespace lockstep::lab::report
