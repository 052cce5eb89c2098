// Sections of lab log --json.
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "lab/report/sections.h"

namespace lockstep::lab::report {
namespace {

using nlohmann::json;

constexpr size_t kMostPositions = 256, kMostListed = 100;

// The value at keys, or null; objects that are none count as empty.
const json& at(const json& from, std::initializer_list<const char*> keys) {
  static const json kNull;
  const json* here = &from;
  for (const char* key : keys) {
    if (!here->is_object()) return kNull;
    const auto found = here->find(key);
    if (found == here->end()) return kNull;
    here = &*found;
  }
  return *here;
}

std::string text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_null()) return "-";
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}
std::string number(const json& value, int digits) {
  if (value.is_number_integer()) return fmt::format("{}", value.get<int64_t>());
  if (!value.is_number() || !std::isfinite(value.get<double>())) return "-";
  return fmt::format("{:.{}f}", value.get<double>(), digits);
}

std::vector<double> shares_of(const Log& log) {
  const json& list = at(log.result, {"totals", "draft", "per_position"});
  std::vector<double> out;
  if (!list.is_array()) return out;
  for (const json& share : list) {
    if (!share.is_number() || !(share.get<double>() >= 0 && share.get<double>() <= 1) ||
        out.size() == kMostPositions) {
      throw Error(
          ExitCode::bad_file,
          fmt::format("{}: totals.draft.per_position: not a list of at most {} shares from 0 to 1",
                      shorten(log.name), kMostPositions));
    }
    out.push_back(share.get<double>());
  }
  return out;
}

Table totals_table(const std::vector<Log>& logs) {
  Table table;
  table.columns = {{"log", false},          {"generation", false},    {"requests", true},
                   {"warm", true},          {"tok/s over n-1", true}, {"acceptance", true},
                   {"tokens a step", true}, {"ms a step", true},      {"contradictions", true}};
  for (const Log& log : logs) {
    const json& totals = at(log.result, {"totals"});
    table.rows.push_back(
        {log.name, text(at(log.result, {"generation", "text"})),
         number(at(totals, {"requests"}), 0), number(at(totals, {"warm"}), 0),
         number(at(totals, {"decode_tok_s"}), 2), number(at(totals, {"draft", "acceptance"}), 4),
         number(at(totals, {"tokens_per_step"}), 3), number(at(totals, {"ms_per_step"}), 3),
         number(at(log.result, {"contradictions_total"}), 0)});
  }
  return table;
}

// What the log contradicts itself in.
Table contradictions_table(const std::vector<Log>& logs) {
  Table table;
  table.caption = "Contradictions";
  table.columns = {{"log", false}, {"line", true}, {"id", false}, {"what", false}};
  for (const Log& log : logs) {
    const json& list = at(log.result, {"contradictions"});
    if (!list.is_array()) continue;
    for (const json& one : list) {
      if (table.rows.size() == kMostListed) {
        ++table.left_out;
        continue;
      }
      table.rows.push_back(
          {log.name, number(at(one, {"line"}), 0), text(at(one, {"id"})), text(at(one, {"text"}))});
    }
  }
  return table;
}

}  // namespace

void add_logs(Page& page, const std::vector<Log>& logs) {
  Section section;
  section.heading = "Acceptance by position";
  PositionPlot plot;
  Table table;
  table.columns = {{"log", false}, {"place", true}, {"share", true}};
  for (const Log& log : logs) {
    PositionPlot::Trace trace{log.name, shares_of(log)};
    const json& totals = at(log.result, {"totals"});
    page.findings.push_back(fmt::format(
        "{}: {} requests, {} tok/s over n-1, {} tokens a step, {} ms a step, {} contradictions",
        log.name, number(at(totals, {"requests"}), 0), number(at(totals, {"decode_tok_s"}), 2),
        number(at(totals, {"tokens_per_step"}), 3), number(at(totals, {"ms_per_step"}), 3),
        number(at(log.result, {"contradictions_total"}), 0)));
    if (trace.shares.empty()) {
      section.notes.push_back(
          at(totals, {"draft"}).is_null()
              ? fmt::format("{}: nothing was drafted.", log.name)
              : fmt::format(
                    "{}: the log says how many tokens were accepted, and not at which place.",
                    log.name));
      continue;
    }
    for (size_t i = 0; i < trace.shares.size(); ++i) {
      table.rows.push_back(
          {log.name, fmt::format("{}", i + 1), fmt::format("{:.4f}", trace.shares[i])});
    }
    plot.traces.push_back(std::move(trace));
  }
  if (!plot.traces.empty()) {
    section.plot = std::move(plot);
    section.plot_caption =
        "How often the token at that place of a draft was accepted, of all verify steps. Their sum "
        "is the "
        "accepted tokens a step.";
    section.tables.push_back(std::move(table));
  }
  section.tables.push_back(totals_table(logs));
  Table contradictions = contradictions_table(logs);
  if (!contradictions.rows.empty()) section.tables.push_back(std::move(contradictions));
  page.sections.push_back(std::move(section));
}

}  // namespace lockstep::lab::report
