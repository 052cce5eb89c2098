// Which rows of a table of runs are controls, and of which recipe, where the table has no column
// that says so: only names of runs and texts of changes. The words below are those of the Gemma
// table (batch,run,gpu,change,…,fresh_tok_s,…,verdict); the rule is printed with the groups, so
// that a reader can redo it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/runs/table.h"

namespace lockstep::lab::noise {

struct TableRow {
  int64_t line = 0;  // of the file
  std::string batch, run, gpu, change, verdict;
  double tok_s = 0;  // fresh_tok_s: the first row after the server's start
  std::string time;  // YYYYMMDDHHMMSS from the run's name; that of the row above where it has none
};

struct Table {
  std::vector<TableRow> rows;  // with a rate, in the file's order
  int64_t total = 0;           // rows of the file
  int64_t without_rate = 0;    // or with a verdict of invalid or diagnostic: not used
  int64_t skipped = 0;         // not as wide as the header
};

// Whether the columns are those of such a table.
bool is_run_table(const runs::Csv& csv);
// Throws Error(bad_file) where no row has a rate.
Table read_run_table(const runs::Csv& csv, std::string_view source);

// How a row was placed.
struct Placement {
  bool named_control = false;  // "control" in the run's name or the change's text
  bool placed = false;
  bool inferred = false;  // the family is that of the last promoted row before it
  std::string family;
  std::map<std::string, std::string> settings;
  std::string why_not;  // what is left over, where it was not placed

  std::string recipe()
      const;  // "immediatecl1, p_min 0.14, threads 8"; settings at their defaults too
};

// One for each row. The rule, in short: the family is the one whose words the run's name has, else
// that of the last promoted row before it in time; settings are read from name (pmin0136, th8,
// b768u768, dtb36, unroll7, …) and change (THREADS=8, MTP_P_MIN=0.136, …), else taken as the last
// promoted row had them; a row is placed when nothing is left over but words that change nothing.
// In a control's name other words are no change; in its text they are, unless the item says
// control, repeat, unset or off.
std::vector<Placement> place_rows(const Table& table);
// The same rule as text, for people.
std::string_view grouping_rule();

struct Group {
  std::string recipe;
  bool inferred = false;        // some member was placed by the last promotion
  std::vector<size_t> members;  // indices of rows
  std::vector<double> rates;    // in time
  int64_t named_controls = 0;
  bool is_control =
      false;  // has a named control, or a promoted row: a recipe somebody compared with
};
// Groups of placed rows with one recipe, largest first.
std::vector<Group> group_rows(const Table& table, const std::vector<Placement>& placements);

// Indices of the rows in time; rows of one time in the file's order.
std::vector<size_t> in_time(const Table& table);

}  // namespace lockstep::lab::noise
