// lockstep lab show: what the ledger holds, or one entry of it.
#include <fmt/format.h>

#include <memory>

#include "lab/lab.h"
#include "lab/ledger_common.h"

namespace lockstep::app {
namespace {

struct ShowOptions : LedgerOptions {
  std::string id;
  bool raw = false;
};

ExitCode show_all(const ShowOptions& options, lab::Ledger& ledger) {
  const lab::Head head = ledger.head();
  const auto counts = ledger.counts();
  if (options.json) {
    print_json({{"schema", "lockstep.lab.show/1"},
                {"ledger", ledger.database().name()},
                {"entries", head.entries},
                {"head", head.hash},
                {"kinds", counts}});
    return ExitCode::ok;
  }
  std::string out = fmt::format("{}: {} entries, head {}\n", escape(ledger.database().name()),
                                head.entries, head.hash);
  for (const std::string_view kind : lab::kKinds) {
    const auto at = counts.find(std::string(kind));
    if (at != counts.end()) out += fmt::format("  {:<10}{:>8}\n", kind, at->second);
  }
  print(out);
  return ExitCode::ok;
}

ExitCode show(const ShowOptions& options) {
  lab::Ledger ledger = options.open(lab::Database::Mode::read);
  if (options.id.empty()) {
    if (options.raw) bad_use("--raw: say which artifact");
    return show_all(options, ledger);
  }
  const bool artifact = options.id.size() == 64 && ledger.has_artifact(options.id);
  if (options.raw) {
    std::string sha = options.id;
    if (!artifact) {
      const auto entry = ledger.find(ledger.resolve(options.id));
      sha = entry ? entry->object.value("sha256") : "";
      if (sha.empty() && entry) sha = entry->object.value("artifact");
      if (sha.empty()) bad_use(fmt::format("{}: no artifact", shorten(options.id)));
    }
    print(ledger.artifact(sha));
    return ExitCode::ok;
  }
  std::string id;
  if (artifact) {
    ledger.each(lab::Kind::artifact, [&](const lab::Entry& entry) {
      if (entry.object.value("sha256") == options.id) id = entry.id;
    });
  }
  if (id.empty()) id = ledger.resolve(options.id);
  const auto entry = ledger.find(id);
  if (!entry) bad_use(fmt::format("{}: no such entry", shorten(options.id)));
  const auto superseded = ledger.superseded();
  const auto by = superseded.find(id);
  if (options.json) {
    Json out = {{"schema", "lockstep.lab.entry/1"}, {"seq", entry->seq}};
    out.update(object_json(id, entry->object));
    out["superseded_by"] = by == superseded.end() ? Json() : Json(by->second);
    out["created_at"] = entry->created_at;
    out["prev"] = entry->prev;
    out["hash"] = entry->hash;
    print_json(out);
    return ExitCode::ok;
  }
  std::string out =
      fmt::format("{} {}\n  entry {}, written {}, hash {}\n", lab::name_of(entry->object.kind()),
                  id, entry->seq, escape(entry->created_at), short_id(entry->hash));
  if (!entry->object.supersedes().empty()) {
    out += fmt::format("  supersedes {}\n", short_id(entry->object.supersedes()));
  }
  if (by != superseded.end()) out += fmt::format("  superseded by {}\n", short_id(by->second));
  std::vector<std::vector<std::string>> rows = {{"field", "value", "from", "source"}};
  for (const lab::Fact& fact : entry->object.facts()) {
    rows.push_back({fact.name,
                    fact.known()
                        ? (fact.type == lab::FactType::ref ? short_id(fact.value) : fact.value)
                        : fmt::format("absent: {}", fact.value),
                    std::string(lab::name_of(fact.provenance)), short_source(fact.source)});
  }
  print(out + table_of(rows));
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_show(Flags& flags) {
  const auto options = std::make_shared<ShowOptions>();
  options->bind(flags);
  flags.toggle("--raw", options->raw);
  flags.positional("ID", "the first digits of an id (4 at least), #NUMBER, or nothing: a summary",
                   options->id);
  flags.describe(
      "Shows one entry with where each of its facts comes from, or how many entries of each "
      "kind there are. --raw writes an artifact's bytes.",
      "lockstep lab show 3fa9c2");
  return [options] { return show(*options); };
}

}  // namespace lockstep::app
