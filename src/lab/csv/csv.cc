#include "lab/csv/csv.h"

#include <algorithm>

namespace lockstep::lab {
namespace {

constexpr size_t kMaxRow = size_t{1} << 20, kMaxCells = 1000;

}  // namespace

std::vector<CsvRow> read_csv(std::string_view text) {
  std::vector<CsvRow> rows;
  int64_t line = 1;
  for (size_t i = 0; i < text.size();) {
    CsvRow row;
    row.line = line;
    const size_t start = i;
    bool end_of_row = false;
    while (!end_of_row) {
      std::string cell;
      if (i < text.size() && text[i] == '"') {
        ++i;
        bool closed = false;
        while (i < text.size()) {
          if (text[i] == '"') {
            if (i + 1 < text.size() && text[i + 1] == '"') {
              cell += '"', i += 2;
              continue;
            }
            closed = true, ++i;
            break;
          }
          line += text[i] == '\n';
          cell += text[i++];
        }
        if (!closed) row.fault = "a quote that is not closed";
        if (closed && i < text.size() && text[i] != ',' && text[i] != '\n' && text[i] != '\r') {
          row.fault = "text after a closing quote";
        }
      }
      const size_t end = std::min(text.find_first_of(",\n", i), text.size());
      cell += text.substr(i, end - i);
      i = end;
      end_of_row = i >= text.size() || text[i] == '\n';
      if (end_of_row && !cell.empty() && cell.back() == '\r') cell.pop_back();
      if (row.cells.size() < kMaxCells) {
        row.cells.push_back(std::move(cell));
      } else {
        row.fault = "more than 1000 cells";
      }
      if (i < text.size()) {
        line += text[i] == '\n';
        ++i;
        // A comma at the very end opens one more cell, which is empty.
        if (!end_of_row && i >= text.size()) {
          row.cells.emplace_back();
          end_of_row = true;
        }
      }
    }
    if (i - start > kMaxRow) {
      row.fault = "longer than 1 MiB";
      row.cells.clear();
    }
    if (row.cells.size() == 1 && row.cells[0].empty() && row.fault.empty()) continue;
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace lockstep::lab
