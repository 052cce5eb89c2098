// Shared by the commands that read or write the ledger.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli.h"
#include "lab/ledger/history.h"
#include "lab/ledger/import.h"
#include "lab/ledger/ledger.h"
#include "output.h"

namespace lockstep::app {

struct LedgerOptions {
  std::optional<std::string> where;  // --ledger
  bool json = false;
  void bind(Flags& flags);
  // The place: --ledger, or ./.lockstep/ledger.db.
  std::string place() const;
  lab::Ledger open(lab::Database::Mode mode) const;
};

// The whole content of a file. Error(bad_file) with the reason, also above lab::kMaxResultBytes.
std::string read_result_file(const std::string& path);

// Rows of cells in columns, two blanks between; the first row is the header. Control characters are
// escaped. The last column is not padded, and cells are cut at `widest` characters.
std::string table_of(const std::vector<std::vector<std::string>>& rows, size_t widest = 60);

std::string short_id(std::string_view id);  // the first 12 digits
// "artifact 0123… line 4" with the hash cut short.
std::string short_source(std::string_view source);
std::string number_text(const std::optional<double>& value);  // 3 decimals, "-" where absent

// A fact as JSON: value by its type (null where absent, with `absent` saying why), provenance,
// source.
Json fact_json(const lab::Fact& fact);
Json object_json(std::string_view id, const lab::Object& object);
Json attempt_json(const lab::Attempt& attempt);
// A JSON number or null.
Json number_json(const std::optional<double>& value);

}  // namespace lockstep::app
