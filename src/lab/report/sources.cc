#include "lab/report/sources.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/sha256.h"
#include "lab/report/sections.h"
#include "lab/runs/table.h"

namespace lockstep::lab::report {
namespace {

constexpr std::string_view kUsable =
    "lab report reads lockstep.lab.runs/1 (JSON or CSV), a table of runs (batch,run,change,"
    "fresh_tok_s,verdict) and lab log --json";

std::string schema_of(const nlohmann::json& object) {
  if (!object.is_object()) return "";
  const auto found = object.find("schema");
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

std::optional<noise::Threshold> add_files(Page& page, std::span<const Input> inputs,
                                          const Options& options) {
  std::vector<runs::Runs> all_runs;
  std::vector<Log> logs;
  std::optional<noise::Threshold> limit;
  for (const Input& input : inputs) {
    Source source{input.name, "", to_hex(sha256(std::as_bytes(std::span(input.bytes)))),
                  static_cast<int64_t>(input.bytes.size())};
    const size_t first = input.bytes.find_first_not_of(" \t\r\n");
    const bool json =
        first != std::string::npos && (input.bytes[first] == '{' || input.bytes[first] == '[');
    if (json) {
      nlohmann::json object = nlohmann::json::parse(input.bytes, nullptr, false);
      const std::string schema = schema_of(object);
      if (schema == "lockstep.lab.runs/1") {
        source.kind = schema;
        all_runs.push_back(runs::parse_runs_json(input.bytes, input.name));
      } else if (schema == "lockstep.lab.log/1") {
        source.kind = schema;
        logs.push_back({input.name, std::move(object)});
      } else {
        throw Error(ExitCode::bad_file,
                    fmt::format("{}: {}; {}", shorten(input.name),
                                object.is_discarded() ? "not JSON"
                                : schema.empty()      ? "JSON without a schema"
                                                      : "its schema is " + shorten(schema),
                                kUsable));
      }
    } else {
      const runs::Csv csv = runs::parse_csv(input.bytes, input.name);
      if (noise::is_run_table(csv)) {
        source.kind = "table of runs";
        limit = add_table(page, input.name, noise::read_run_table(csv, input.name), options);
      } else {
        source.kind = "runs, CSV";
        all_runs.push_back(runs::parse_runs_csv(input.bytes, input.name));
      }
    }
    page.sources.push_back(std::move(source));
  }
  if (!options.reported.empty() && !limit) {
    throw Error(
        ExitCode::bad_use,
        "--reported: a reported ladder is held against the noise of a table of runs; give one");
  }
  if (!all_runs.empty()) add_runs(page, all_runs, options);
  for (const runs::Runs& file : all_runs) {
    if (file.skipped > 0) {
      page.findings.push_back(fmt::format("{}: {} rows could not be read; first: {}", file.source,
                                          file.skipped, file.first_skipped));
    }
  }
  if (!logs.empty()) add_logs(page, logs);
  return limit;
}

Page make_page(std::span<const Input> inputs, const Options& options) {
  Page page;
  page.title = "Lockstep lab report";
  add_files(page, inputs, options);
  return page;
}

}  // namespace lockstep::lab::report
