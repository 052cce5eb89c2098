#include "lab/lab.h"

namespace lockstep::app {
namespace {

constexpr FlagKind kUsed = FlagKind::used;

// One flag a line keeps the table readable as a table.
// clang-format off
constexpr Flag kFlags[] = {
    {"--json", "", "", kUsed, "lab-log",
     "print one JSON object (docs/json.md) instead of text"},

    // The ledger and lint.
    {"--ledger", "PATH|URL", "LOCKSTEP_LEDGER", kUsed,
     "lab-init lab-import lab-add lab-show lab-diff lab-tried lab-records lab-rejected lab-verify lab-lint",
     "the ledger: a file, or postgresql://… (default: .lockstep/ledger.db)"},
    {"--json", "", "", kUsed,
     "lab-init lab-import lab-add lab-show lab-diff lab-tried lab-records lab-rejected lab-verify lab-lint",
     "print one JSON object (docs/lab-ledger.md) instead of text"},
    {"--file", "FILE", "", kUsed, "lab-add", "read fields from a JSON object, too"},
    {"--artifact", "FILE", "", kUsed, "lab-add", "keep this file, the log that says it, with the object"},
    {"--provenance", "WHERE", "", kUsed, "lab-add",
     "where it comes from: logged (with --artifact), reported (default), inferred"},
    {"--source", "TEXT", "", kUsed, "lab-add", "who says it and where"},
    {"--supersedes", "ID", "", kUsed, "lab-add", "the object that this one takes the place of"},
    {"--raw", "", "", kUsed, "lab-show", "write an artifact's bytes"},
    {"--all", "", "", kUsed, "lab-diff", "list what is the same, too"},
    {"--head", "ENTRY:HASH", "", kUsed, "lab-verify",
     "a head that an earlier verify printed: has to be in the chain still"},
    {"--bandwidth", "GB/S", "", kUsed, "lab-lint",
     "memory bandwidth in 1e9 bytes a second, for V11 (default: the result's own)"},
    {"--bytes", "N", "", kUsed, "lab-lint",
     "bytes that a pass of one row has to read, for V11 (default: the result's own)"},
    {"--oracle", "FILE", "", kUsed, "lab-lint",
     "a result of the same prompt with drafting off, for V5"},
    {"--control", "FILE|ID", "", kUsed, "lab-lint",
     "the run it is compared with: V4 names what differs"},
    {"--lane", "NAME", "", kUsed, "lab-lint", "the lane for V12 (default: the result's own)"},
};
// clang-format on

}  // namespace

std::span<const Flag> lab_flags() {
  return kFlags;
}

}  // namespace lockstep::app
