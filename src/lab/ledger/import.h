// Result files into the ledger.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lab/ledger/ledger.h"
#include "lab/results/catalog.h"

namespace lockstep::lab {

struct Imported {
  std::string file, artifact, format;
  bool already = false;                  // the same bytes were imported before: nothing was added
  int64_t added = 0, known = 0;          // objects that are new, and that were there
  std::map<std::string, int64_t> kinds;  // the new ones
  int64_t skipped = 0;
  std::vector<std::string> notes;
};

// Reads a result file (lab/results/reader.h) and writes all of it in one transaction: the bytes as
// an artifact, what was made of them, and that it was done. The same bytes a second time change
// nothing.
Imported import_result(Ledger& ledger, std::string_view file, std::string_view bytes);

// All that the ledger holds, but imports and artifacts.
Catalog load_catalog(Ledger& ledger);

}  // namespace lockstep::lab
