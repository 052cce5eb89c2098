// lockstep lab diff: in what two things differ, requested and effective.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "lab/lab.h"
#include "lab/ledger_common.h"
#include "lab/results/catalog.h"

namespace lockstep::app {
namespace {

struct DiffOptions : LedgerOptions {
  std::string a, b;
  bool all = false;
};

struct Side {
  std::string name;
  std::map<std::string, lab::Fact> traits;
};

// A result file (of several results the first), or an entry of the ledger.
Side side_of(const std::string& text, const DiffOptions& options) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(text, ignored)) {
    const lab::Catalog catalog(lab::read_result(shorten(text), read_result_file(text)));
    const auto runs = catalog.of(lab::Kind::run);
    if (runs.empty()) bad_use(fmt::format("{}: no run in it", shorten(text)));
    if (runs.size() > 1) {
      note(fmt::format("{}: {} runs; the first is compared", shorten(text), runs.size()));
    }
    return {text, lab::traits_of(catalog, *runs[0])};
  }
  lab::Ledger ledger = options.open(lab::Database::Mode::read);
  const std::string id = ledger.resolve(text);
  const lab::Catalog catalog = lab::load_catalog(ledger);
  const auto* item = catalog.find(id);
  if (!item) bad_use(fmt::format("{}: an entry that has nothing to compare", shorten(text)));
  return {fmt::format("{} {}", lab::name_of(item->object.kind()), short_id(id)),
          lab::traits_of(catalog, *item)};
}

std::string shown(const lab::Fact* fact) {
  if (!fact) return "(not said)";
  return fact->known() ? fact->value : "(absent)";
}

Json side_json(const lab::Fact* fact) {
  return fact ? fact_json(*fact) : Json();
}

ExitCode diff(const DiffOptions& options) {
  if (options.a.empty() || options.b.empty()) {
    bad_use("give two ids or result files; see lockstep lab diff --help");
  }
  const Side a = side_of(options.a, options), b = side_of(options.b, options);
  const std::vector<lab::Difference> list = lab::differences(a.traits, b.traits);
  size_t same = 0, both_unknown = 0;
  Json differ = Json::array(), equal = Json::array();
  std::vector<std::vector<std::string>> rows = {{"what", a.name, b.name}};
  for (const lab::Difference& d : list) {
    const bool known = (d.a && d.a->known()) || (d.b && d.b->known());
    if (d.same) ++(known ? same : both_unknown);
    if (!d.same || options.all) {
      rows.push_back({(d.same ? "  " : "* ") + d.name, shown(d.a), shown(d.b)});
    }
    Json one = {{"name", d.name}, {"a", side_json(d.a)}, {"b", side_json(d.b)}};
    (d.same ? equal : differ).push_back(std::move(one));
  }
  if (options.json) {
    print_json({{"schema", "lockstep.lab.diff/1"},
                {"a", a.name},
                {"b", b.name},
                {"differ", differ},
                {"same", equal},
                {"unknown_in_both", both_unknown}});
    return ExitCode::ok;
  }
  const size_t n = list.size() - same - both_unknown;
  std::string out = rows.size() > 1 ? table_of(rows) : "";
  out += fmt::format("{} differ, {} are the same, {} are not known of either\n", n, same,
                     both_unknown);
  print(out);
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_diff(Flags& flags) {
  const auto options = std::make_shared<DiffOptions>();
  options->bind(flags);
  flags.toggle("--all", options->all);
  flags.positional("A", "an id of the ledger, or a result file", options->a);
  flags.positional("B", "another", options->b);
  flags.describe(
      "Compares two identities: requested and effective values, receipts, settings, lane. "
      "What is not known is said, and never taken for equal to something that is.",
      "lockstep lab diff before.json after.json");
  return [options] { return diff(*options); };
}

}  // namespace lockstep::app
