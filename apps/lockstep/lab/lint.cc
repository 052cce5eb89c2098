// lockstep lab lint: whether a result may be quoted.
#include "lab/lint/lint.h"

#include <fmt/format.h>

#include <filesystem>
#include <limits>
#include <memory>

#include "lab/lab.h"
#include "lab/ledger_common.h"

namespace lockstep::app {
namespace {

struct LintCommand : LedgerOptions {
  std::vector<std::string> results;
  std::optional<double> bandwidth, bytes;
  std::optional<std::string> oracle, control, lane;
};

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// The ledger where there is one: asked for, it has to be there.
std::optional<lab::Catalog> ledger_of(const LintCommand& command) {
  if (!command.where && !is_file(command.place())) return std::nullopt;
  lab::Ledger ledger = command.open(lab::Database::Mode::read);
  return lab::load_catalog(ledger);
}

std::string resolved(const LintCommand& command, const std::string& id) {
  lab::Ledger ledger = command.open(lab::Database::Mode::read);
  return ledger.resolve(id);
}

struct Linted {
  std::string name;
  std::vector<lab::LintedRow> rows;
};

constexpr std::string_view kMarks[] = {"+", "-", "?"};

std::string text_of(const std::vector<Linted>& results) {
  std::string out;
  for (const Linted& result : results) {
    // Rows with the same findings are said once.
    std::map<std::string, std::vector<const lab::LintedRow*>> alike;
    std::vector<std::string> order;
    for (const lab::LintedRow& row : result.rows) {
      std::string key;
      for (const lab::Finding& finding : row.findings) {
        key += fmt::format("{}{}\n", static_cast<int>(finding.outcome), finding.sentence);
      }
      if (!alike.contains(key)) order.push_back(key);
      alike[key].push_back(&row);
    }
    // Of a long table the rules with how many rows each; the rows themselves are in --json.
    constexpr size_t kShown = 8;
    if (order.size() > kShown) {
      out += fmt::format("{}: {} rows\n", escape(result.name), result.rows.size());
      std::vector<std::vector<std::string>> table = {
          {"rule", "", "holds", "fails", "unknown", "for instance"}};
      for (size_t i = 0; i < lab::kRules.size(); ++i) {
        size_t counts[3] = {};
        std::string instance;
        for (const lab::LintedRow& row : result.rows) {
          const lab::Finding& finding = row.findings[i];
          ++counts[static_cast<size_t>(finding.outcome)];
          const bool first_failure = finding.outcome == lab::Outcome::fails && counts[1] == 1;
          if (instance.empty() || first_failure) instance = finding.sentence;
        }
        table.push_back({std::string(lab::kRules[i].id), std::string(lab::kRules[i].name),
                         fmt::format("{}", counts[0]), fmt::format("{}", counts[1]),
                         fmt::format("{}", counts[2]), instance});
      }
      out += table_of(table);
      continue;
    }
    for (const std::string& key : order) {
      const std::vector<const lab::LintedRow*>& rows = alike[key];
      out += fmt::format("{}: {}{}\n", escape(result.name), escape(rows[0]->name),
                         rows.size() > 1 ? fmt::format(" and {} more", rows.size() - 1) : "");
      for (size_t i = 0; i < lab::kRules.size(); ++i) {
        const lab::Finding& finding = rows[0]->findings[i];
        out += fmt::format("  {} {:<3} {:<9} {}\n", kMarks[static_cast<size_t>(finding.outcome)],
                           lab::kRules[i].id, lab::kRules[i].name, escape(finding.sentence));
        if (!finding.advice.empty())
          out += fmt::format("                  -> {}\n", finding.advice);
      }
    }
  }
  return out;
}

ExitCode run_lint(const LintCommand& command) {
  if (command.results.empty()) bad_use("no result; see lockstep lab lint --help");
  const std::optional<lab::Catalog> ledger = ledger_of(command);
  lab::LintOptions options;
  options.bandwidth_gb_s = command.bandwidth;
  options.bytes_per_pass = command.bytes;
  options.lane = command.lane.value_or("");
  options.ledger = ledger ? &*ledger : nullptr;
  std::optional<lab::Catalog> oracle, control;
  if (command.oracle) {
    oracle.emplace(lab::read_result(shorten(*command.oracle), read_result_file(*command.oracle)));
    options.oracle = &*oracle;
  }
  if (command.control && is_file(*command.control)) {
    control.emplace(
        lab::read_result(shorten(*command.control), read_result_file(*command.control)));
    options.control = &*control;
    const auto runs = control->of(lab::Kind::run);
    if (runs.empty()) bad_use(fmt::format("--control {}: no run in it", shorten(*command.control)));
    options.control_item = runs[0];
  } else if (command.control) {
    const std::string id = resolved(command, *command.control);
    options.control = options.ledger;
    options.control_item = ledger ? ledger->find(id) : nullptr;
    if (!options.control_item) {
      bad_use(fmt::format("--control {}: nothing to compare with", shorten(*command.control)));
    }
  }
  std::vector<Linted> results;
  for (const std::string& what : command.results) {
    Linted linted;
    linted.name = what;
    if (is_file(what)) {
      const lab::Reading reading = lab::read_result(shorten(what), read_result_file(what));
      for (const std::string& line : reading.notes) note(fmt::format("{}: {}", what, line));
      const lab::Catalog catalog(reading);
      options.artifact = reading.artifact;
      linted.rows = lab::lint(catalog, options);
    } else {
      if (!ledger) {
        throw Error(
            ExitCode::bad_file,
            fmt::format("{}: no such file, and no ledger to look for an id in", shorten(what)));
      }
      const std::string id = resolved(command, what);
      const lab::Catalog::Item* item = ledger->find(id);
      if (!item ||
          (item->object.kind() != lab::Kind::row && item->object.kind() != lab::Kind::run)) {
        bad_use(fmt::format("{}: neither a row nor a run", shorten(what)));
      }
      options.artifact.clear();
      linted.rows = lab::lint(*ledger, options, item);
    }
    results.push_back(std::move(linted));
  }
  size_t counts[3] = {}, rows = 0, bad_rows = 0;
  Json list = Json::array();
  for (const Linted& result : results) {
    for (const lab::LintedRow& row : result.rows) {
      ++rows;
      bool bad = false;
      Json rules = Json::array();
      for (size_t i = 0; i < lab::kRules.size(); ++i) {
        const lab::Finding& finding = row.findings[i];
        ++counts[static_cast<size_t>(finding.outcome)];
        bad |= finding.outcome == lab::Outcome::fails;
        rules.push_back({{"rule", lab::kRules[i].id},
                         {"name", lab::kRules[i].name},
                         {"outcome", lab::name_of(finding.outcome)},
                         {"sentence", finding.sentence},
                         {"do", finding.advice.empty() ? Json() : Json(finding.advice)}});
      }
      bad_rows += bad;
      list.push_back(
          {{"result", result.name}, {"row", row.id}, {"name", row.name}, {"rules", rules}});
    }
  }
  if (command.json) {
    print_json({{"schema", "lockstep.lab.lint/1"},
                {"rows", list},
                {"holds", counts[0]},
                {"fails", counts[1]},
                {"unknown", counts[2]},
                {"rows_that_fail", bad_rows}});
  } else {
    print(text_of(results) +
          fmt::format("{} rows: {} findings hold, {} fail, {} can't be judged{}\n", rows, counts[0],
                      counts[1], counts[2],
                      bad_rows ? fmt::format("; {} rows may not be quoted", bad_rows) : ""));
  }
  return bad_rows ? ExitCode::check_failed : ExitCode::ok;
}

}  // namespace

Runner set_up_lab_lint(Flags& flags) {
  const auto command = std::make_shared<LintCommand>();
  command->bind(flags);
  constexpr double kMax = std::numeric_limits<double>::max();
  flags.number("--bandwidth", command->bandwidth, 1e-3, kMax);
  flags.number("--bytes", command->bytes, 1, kMax);
  flags.text("--oracle", command->oracle);
  flags.text("--control", command->control);
  flags.text("--lane", command->lane);
  flags.positionals("RESULT", "result files, or ids of rows and runs in the ledger",
                    command->results);
  std::string rules;
  for (const lab::Rule& rule : lab::kRules) {
    rules += fmt::format("\n  {:<4} {:<9} {}", rule.id, rule.name, rule.text);
  }
  flags.describe(
      "Judges every row by the lab's rules: holds (+), fails (-), or can't be judged (?), "
      "with why and what to do. What is missing never counts as zero. Exit code 1 where a "
      "rule fails.\n" +
          rules,
      "lockstep lab lint run.json --oracle plain.json --bandwidth 60");
  return [command] { return run_lint(*command); };
}

}  // namespace lockstep::app
