// Whether a ledger is what was written: every digest, the chain, every artifact, the schema, and
// for SQLite the file's own structure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lab/ledger/ledger.h"

namespace lockstep::lab {

struct LedgerFault {
  int64_t seq = 0;    // the entry, or 0
  std::string id;     // its id where it could be read
  std::string field;  // the fact or column, or ""
  std::string text;   // a sentence
};

struct Verification {
  int64_t entries = 0, facts = 0, artifacts = 0, bytes = 0;
  Head head;                        // as the chain gives it
  std::vector<LedgerFault> faults;  // the first kMaxFaults
  int64_t fault_count = 0;
  static constexpr size_t kMaxFaults = 1000;
};

// Reads all of the ledger in one transaction. A damaged database is a fault of the list and no
// exception, as far as it can be read. progress: entries and artifacts done so far.
Verification verify_ledger(Ledger& ledger,
                           const std::function<void(int64_t done, int64_t of)>& progress = nullptr);

}  // namespace lockstep::lab
