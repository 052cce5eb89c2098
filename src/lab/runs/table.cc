#include "lab/runs/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"
#include "lab/csv/csv.h"

namespace lockstep::lab::runs {
namespace {

constexpr size_t kMostColumns = 64;

std::string trimmed_lower(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())))
    text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())))
    text.remove_suffix(1);
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

}  // namespace

int Csv::column(std::string_view name) const {
  const auto at = std::find(header.begin(), header.end(), name);
  return at == header.end() ? -1 : static_cast<int>(at - header.begin());
}

Csv parse_csv(std::string_view text, std::string_view source) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: is UTF-16; save it as UTF-8", shorten(source)));
  }
  if (text.find('\0') != std::string_view::npos) {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: holds NUL bytes, so it is no table of text", shorten(source)));
  }
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<CsvRow> rows = read_csv(text);
  if (rows.empty()) throw Error(ExitCode::bad_file, fmt::format("{}: is empty", shorten(source)));
  if (!rows[0].fault.empty() || rows[0].cells.size() > kMostColumns) {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: its first line is no header of a table", shorten(source)));
  }
  Csv out;
  for (const std::string& name : rows[0].cells) out.header.push_back(trimmed_lower(name));
  for (size_t i = 1; i < rows.size(); ++i) {
    CsvRow& row = rows[i];
    if (row.fault.empty() && row.cells.size() == out.header.size()) {
      out.records.push_back({row.line, std::move(row.cells)});
    } else if (++out.skipped == 1) {
      out.first_skipped_line = row.line;
    }
  }
  return out;
}

}  // namespace lockstep::lab::runs
