#include "lab/runs/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace lockstep::lab::runs {
namespace {

constexpr size_t kMostColumns = 64;
constexpr size_t kMostFieldBytes = 1 << 16;

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
  Csv out;
  int64_t line = 1;
  size_t at = 0;
  bool have_header = false;
  while (at < text.size()) {
    CsvRecord record;
    record.line = line;
    std::string field;
    bool quoted = false, broken = false, any = false;
    for (;; ++at) {
      if (at >= text.size()) {
        broken |= quoted;  // a quote that never closes
        break;
      }
      const char c = text[at];
      if (c == '\n') ++line;
      if (quoted) {
        if (c != '"') {
          field += c;
        } else if (at + 1 < text.size() && text[at + 1] == '"') {
          field += '"';
          ++at;
        } else {
          quoted = false;
        }
        broken |= field.size() > kMostFieldBytes;
        if (broken && field.size() > kMostFieldBytes) field.clear();
        continue;
      }
      any |= c != '\n' && c != '\r';
      if (c == '"' && field.empty()) {
        quoted = true;
      } else if (c == ',') {
        if (record.fields.size() < kMostColumns)
          record.fields.push_back(field);
        else
          broken = true;
        field.clear();
      } else if (c == '\n') {
        ++at;
        break;
      } else if (c != '\r' || (at + 1 < text.size() && text[at + 1] != '\n')) {
        field += c;
        if (field.size() > kMostFieldBytes) {
          broken = true;
          field.clear();
        }
      }
    }
    if (!any && record.fields.empty() && field.empty()) continue;  // an empty line
    record.fields.push_back(field);
    if (!have_header) {
      if (broken || record.fields.size() > kMostColumns) {
        throw Error(ExitCode::bad_file,
                    fmt::format("{}: its first line is no header of a table", shorten(source)));
      }
      for (const std::string& name : record.fields) out.header.push_back(trimmed_lower(name));
      have_header = true;
    } else if (broken || record.fields.size() != out.header.size()) {
      if (++out.skipped == 1) out.first_skipped_line = record.line;
    } else {
      out.records.push_back(std::move(record));
    }
  }
  if (!have_header) {
    throw Error(ExitCode::bad_file, fmt::format("{}: is empty", shorten(source)));
  }
  return out;
}

}  // namespace lockstep::lab::runs
