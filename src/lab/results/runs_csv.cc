// A table of runs, one a line, as labs keep them by hand: batch,run,gpu,change,canary_pass,
// canary_total,fresh_tok_s,support_mean_tok_s,support_max_tok_s,wall_tok_s,ttft_s,verdict. What the
// table says is `reported`; what only a run's name says is `inferred`.
#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <set>

#include "lab/csv/csv.h"
#include "lab/results/fingerprint.h"
#include "lab/results/read_context.h"

namespace lockstep::lab {
namespace {

constexpr std::string_view kColumns[] = {"batch",
                                         "run",
                                         "gpu",
                                         "change",
                                         "canary_pass",
                                         "canary_total",
                                         "fresh_tok_s",
                                         "support_mean_tok_s",
                                         "support_max_tok_s",
                                         "wall_tok_s",
                                         "ttft_s",
                                         "verdict"};
constexpr std::string_view kNeeded[] = {"run", "change", "fresh_tok_s", "verdict"};

struct Line {
  int64_t number = 0;
  std::map<std::string, std::string, std::less<>> cells;

  std::string operator[](std::string_view column) const {
    const auto at = cells.find(column);
    return at == cells.end() ? "" : at->second;
  }
};

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return std::isdigit(static_cast<unsigned char>(c));
  });
}

std::vector<std::string> tokens_of(std::string_view name) {
  std::vector<std::string> tokens;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('-', begin), name.size());
    tokens.emplace_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return tokens;
}

// "20260624T173350Z", "20260626T0640Z", "20260624T2047": the minute, "2026-06-24T17:33Z".
std::optional<std::string> minute_of(std::string_view token) {
  const size_t t = token.find('T');
  if (t != 8 || token.size() < 13 || !all_digits(token.substr(0, 8)) ||
      !all_digits(token.substr(9, 4))) {
    return std::nullopt;
  }
  return fmt::format("{}-{}-{}T{}:{}Z", token.substr(0, 4), token.substr(4, 2), token.substr(6, 2),
                     token.substr(9, 2), token.substr(11, 2));
}

// What a run's name says beside its settings.
struct Name {
  std::string lane;    // before "-gpuN": model and target
  std::string recipe;  // the words that are neither settings nor a stage nor a time
  std::string stage;   // screen, full, smoke, …
  std::optional<std::string> minute;
};

Name read_name(const std::string& run) {
  static const std::set<std::string, std::less<>> stages = {"screen", "full",  "smoke", "exec",
                                                            "repeat", "retry", "rerun"};
  Name name;
  bool after_gpu = false;
  for (const std::string& token : tokens_of(run)) {
    if (!after_gpu && token.size() > 3 && token.starts_with("gpu") && all_digits(token.substr(3))) {
      after_gpu = true;
    } else if (!after_gpu) {
      name.lane += (name.lane.empty() ? "" : "-") + token;
    } else if (const auto minute = minute_of(token)) {
      name.minute = minute;
    } else if (stages.contains(token)) {
      name.stage = token;
    } else if (settings_of_run_name(token).empty()) {
      name.recipe += (name.recipe.empty() ? "" : "-") + token;
    }
  }
  if (!after_gpu) name.lane.clear();
  return name;
}

enum class Number : uint8_t { whole, real, thousandfold };

void copy_number(Object& object, const Origin& origin, const Line& line, std::string_view column,
                 std::string_view name, Number want, Reading& reading) {
  if (!line.cells.contains(column)) {
    object.absent(origin, name, fmt::format("the table has no column {}", column));
    return;
  }
  const std::string cell = line[column];
  if (cell.empty()) {
    object.absent(origin, name, "an empty cell");
    return;
  }
  const auto number = read_number(cell);
  const auto whole = read_integer(cell);
  if (want == Number::whole ? !whole : !number) {
    object.absent(origin, name, fmt::format("not a number: {}", shorten(cell)));
    add_note(reading,
             fmt::format("line {}: {} is not a number: {}", line.number, column, shorten(cell)));
  } else if (want == Number::whole) {
    object.integer(origin, name, *whole);
  } else {
    object.real(origin, name, want == Number::real ? *number : *number * 1000);
  }
}

struct Judged {
  std::string_view said, verdict;
};
// A screen can only reject, and a table's word for a result says nothing of how many servers it
// rests on: a win of a screen is not known to be one.
constexpr Judged kVerdicts[] = {
    {"valid_loss", "not_better"}, {"promoted", "better"},    {"screen_win", "unknown"},
    {"control", "unknown"},       {"diagnostic", "unknown"}, {"other", "unknown"},
    {"invalid", "invalid"},       {"inexact", "inexact"},    {"fault", "fault"}};

Object candidate_of(const Reading& reading, const Line& line, const Name& name) {
  const Origin reported = origin_in(reading, Provenance::reported, "");
  const Origin inferred = origin_in(reading, Provenance::inferred, "run names");
  Object candidate(Kind::candidate);
  const std::string change = line["change"];
  if (change.empty()) {
    candidate.absent(reported, "change", "an empty cell");
  } else {
    candidate.text(reported, "change", change);
  }
  if (name.lane.empty()) {
    candidate.absent(inferred, "lane",
                     "the run's name has no -gpuN part before which a lane stands");
  } else {
    candidate.text(inferred, "lane", name.lane);
  }
  if (!name.recipe.empty()) candidate.text(inferred, "recipe", name.recipe);
  std::map<std::string, std::string> settings;
  for (const Setting& setting : settings_of_text(change)) {
    candidate.text(reported, "setting." + setting.key, setting.value);
    settings[setting.key] = setting.value;
  }
  for (const Setting& setting : settings_of_run_name(line["run"])) {
    if (settings.contains(setting.key)) continue;
    candidate.text(inferred, "setting." + setting.key, setting.value);
    settings[setting.key] = setting.value;
  }
  std::vector<Setting> list;
  for (const auto& [key, value] : settings) list.push_back({key, value});
  // Without a setting the words are all there is.
  if (list.empty()) list.push_back({"words", folded(change.empty() ? name.recipe : change)});
  candidate.text(inferred, "fingerprint", fingerprint(list));
  candidate.absent(reported, "retry", "the table says none");
  return candidate;
}

void read_line(Reading& reading, const Line& line, int lanes_beside) {
  const std::string place = fmt::format("line {}", line.number);
  const Origin reported = origin_in(reading, Provenance::reported, place);
  const Origin inferred = origin_in(reading, Provenance::inferred, place + ", run name");
  const std::string run_name = line["run"], said = line["verdict"];
  const Name name = read_name(run_name);

  Object candidate = candidate_of(reading, line, name);
  const std::string candidate_id = candidate.id();

  Object run(Kind::run);
  set_place(run, reading, place);
  run.text(reported, "name", run_name);
  run.ref(inferred, "candidate", candidate_id);
  if (!line["batch"].empty()) run.text(reported, "batch", line["batch"]);
  if (!line["gpu"].empty()) run.text(reported, "device", "gpu" + line["gpu"]);
  if (!name.lane.empty()) run.text(inferred, "lane", name.lane);
  if (!name.stage.empty()) run.text(inferred, "stage", name.stage);
  if (name.minute) {
    run.text(inferred, "started_at", *name.minute);
  } else {
    run.absent(inferred, "started_at", "the run's name has no time");
  }
  if (lanes_beside > 0) run.integer(inferred, "lanes_beside", lanes_beside);
  copy_number(run, reported, line, "canary_pass", "canary.passed", Number::whole, reading);
  copy_number(run, reported, line, "canary_total", "canary.total", Number::whole, reading);
  copy_number(run, reported, line, "support_mean_tok_s", "support.mean_tok_s", Number::real,
              reading);
  copy_number(run, reported, line, "support_max_tok_s", "support.max_tok_s", Number::real, reading);
  run.absent(reported, "identity", "the table has none");
  const std::string run_id = run.id();

  Object row(Kind::row);
  set_place(row, reading, place);
  row.ref(reported, "run", run_id);
  row.text(reported, "name", run_name);
  copy_number(row, reported, line, "fresh_tok_s", "decode_tok_s", Number::real, reading);
  row.integer(reported, "index", 0);  // "fresh": the first after the server's start
  copy_number(row, reported, line, "wall_tok_s", "wall_tok_s", Number::real, reading);
  copy_number(row, reported, line, "ttft_s", "ttft_ms", Number::thousandfold, reading);
  for (const std::string_view unknown :
       {"prompt_tokens", "cached_tokens", "generated_tokens", "decode_ms", "token_sha256",
        "draft.drafted", "draft.accepted", "finish_reason"}) {
    row.absent(reported, unknown, "the table has no such column");
  }
  const std::string row_id = row.id();

  Object verdict(Kind::verdict);
  verdict.ref(inferred, "candidate", candidate_id);
  verdict.ref(inferred, "run", run_id);
  if (!name.lane.empty()) verdict.text(inferred, "lane", name.lane);
  if (!name.stage.empty()) verdict.text(inferred, "stage", name.stage);
  const auto* judged = std::find_if(std::begin(kVerdicts), std::end(kVerdicts),
                                    [&](const Judged& j) { return j.said == said; });
  if (judged == std::end(kVerdicts)) {
    verdict.text(reported, "verdict", "unknown");
    add_note(reading, fmt::format("line {}: the verdict {} is not known, kept as unknown",
                                  line.number, shorten(said)));
  } else {
    verdict.text(reported, "verdict", judged->verdict);
  }
  verdict.text(reported, "said", said);
  verdict.absent(reported, "retry", "the table says none");

  reading.objects.push_back(std::move(candidate));
  reading.objects.push_back(std::move(run));
  reading.objects.push_back(std::move(row));
  reading.objects.push_back(std::move(verdict));
  if (said != "promoted") return;
  Object claim(Kind::claim);
  claim.text(reported, "said", said);
  claim.text(reported, "metric", "decode_tok_s of the first row");
  claim.text(reported, "unit", "tok/s");
  copy_number(claim, reported, line, "fresh_tok_s", "value", Number::real, reading);
  claim.ref(inferred, "candidate", candidate_id);
  claim.ref(inferred, "run", run_id);
  claim.ref(inferred, "row", row_id);
  if (!name.lane.empty()) claim.text(inferred, "lane", name.lane);
  if (name.minute) claim.text(inferred, "started_at", *name.minute);
  // A claim of nothing is none.
  if (claim.find("value")->known()) reading.objects.push_back(std::move(claim));
}

}  // namespace

void read_runs_csv(Reading& reading, std::string_view bytes) {
  const std::vector<CsvRow> rows = read_csv(bytes);
  const std::vector<std::string>& header = rows.front().cells;
  for (const std::string_view needed : kNeeded) {
    if (std::find(header.begin(), header.end(), needed) == header.end()) {
      add_note(reading, fmt::format("a CSV without the column {}", needed));
      return;
    }
  }
  for (const std::string& column : header) {
    if (std::find(std::begin(kColumns), std::end(kColumns), column) == std::end(kColumns)) {
      add_note(reading,
               fmt::format("the column {} is kept in the artifact alone", shorten(column)));
    }
  }
  std::vector<Line> lines;
  std::map<std::string, std::set<std::string>> together;  // batch and minute: the cards
  const auto when = [](const Line& line) {
    const auto minute = read_name(line["run"]).minute;
    return minute ? line["batch"] + " " + *minute : "";
  };
  for (size_t i = 1; i < rows.size(); ++i) {
    const CsvRow& row = rows[i];
    Line line;
    line.number = row.line;
    if (!row.fault.empty() || row.cells.size() != header.size()) {
      skip(reading, fmt::format("line {}: {}", row.line,
                                !row.fault.empty() ? row.fault
                                                   : fmt::format("{} cells where the header has {}",
                                                                 row.cells.size(), header.size())));
      continue;
    }
    for (size_t k = 0; k < header.size(); ++k) line.cells[header[k]] = clean_text(row.cells[k]);
    if (line["run"].empty()) {
      skip(reading, fmt::format("line {}: no name of a run", row.line));
      continue;
    }
    if (const std::string key = when(line); !key.empty()) together[key].insert(line["gpu"]);
    lines.push_back(std::move(line));
  }
  for (const Line& line : lines) {
    const std::string key = when(line);
    const int beside = key.empty() ? 0 : static_cast<int>(together[key].size()) - 1;
    read_line(reading, line, beside);
  }
}

}  // namespace lockstep::lab
