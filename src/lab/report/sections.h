// The parts that make_page and ledger_page put together, one file a kind of source.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lab/noise/noise.h"
#include "lab/report/page.h"
#include "lab/report/sources.h"
#include "lab/runs/runs.h"

namespace lockstep::lab::report {

// Reads what the files hold and adds their sections and sources. Returns the noise of a row by the
// last table of runs among them.
std::optional<noise::Threshold> add_files(Page& page, std::span<const Input> inputs,
                                          const Options& options);

// Arms of one experiment: A is the arm called control, a or baseline, else the first; each other
// one is judged against it.
void add_runs(Page& page, const std::vector<runs::Runs>& files, const Options& options);

// Returns what the noise of a row is, for ladders from elsewhere.
noise::Threshold add_table(Page& page, std::string_view name, noise::Table table,
                           const Options& options);

// Results of lab log --json by their names.
struct Log {
  std::string name;
  nlohmann::json result;
};
void add_logs(Page& page, const std::vector<Log>& logs);

// A ladder with its steps; `others` and rung places are the caller's to fill in.
Section ladder_section(const noise::Ladder& ladder, const noise::Threshold& limit,
                       const std::vector<std::string>& labels);

// A series of log rates, in tok/s.
Section series_section(std::string heading, const noise::SeriesReport& series);

// Per cent and tok/s as the tables show them; "any" for an infinite end.
std::string percent_text(double percent);
std::string interval_text(stats::Interval percent);

}  // namespace lockstep::lab::report
