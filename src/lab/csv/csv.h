// RFC 4180: cells with commas between them, quotes around those that have commas or quotes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lab {

struct CsvRow {
  int64_t line = 0;  // where it starts, from 1
  std::vector<std::string> cells;
  std::string fault;  // why it cannot be used, or ""
};

// All rows of a text, the header too; empty lines are left out. A row has a fault where a quote is
// not closed or text follows one, and where it is longer than 1 MiB or has more than 1,000 cells.
std::vector<CsvRow> read_csv(std::string_view text);

}  // namespace lockstep::lab
