// A table with a header, from comma-separated values (csv/csv.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lab::runs {

struct CsvRecord {
  int64_t line = 0;  // where it begins, from 1
  std::vector<std::string> fields;
};

struct Csv {
  std::vector<std::string> header;
  std::vector<CsvRecord> records;  // each as wide as the header
  int64_t skipped = 0;             // records of another width, or with a quote that never closes
  int64_t first_skipped_line = 0;

  // Index of a column, -1 where there is none.
  int column(std::string_view name) const;
};

// The header's names are trimmed and lower-cased. Empty lines are no records. Throws
// Error(bad_file) with `source` in it for UTF-16, NUL bytes, an empty text, or more than 64
// columns.
Csv parse_csv(std::string_view text, std::string_view source);

}  // namespace lockstep::lab::runs
