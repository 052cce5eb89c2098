#include "lab/lab.h"

namespace lockstep::app {
namespace {

constexpr FlagKind kUsed = FlagKind::used;

// One flag a line keeps the table readable as a table.
// clang-format off
constexpr Flag kFlags[] = {
    // lab noise, lab power, lab ab.
    {"--json", "", "", kUsed, "lab-noise lab-power lab-ab",
     "print one JSON object (docs/lab-statistics.md) instead of text"},
    {"--alpha", "P", "", kUsed, "lab-noise lab-power lab-ab", "two-sided error (default: 0.05)"},
    {"--power", "P", "", kUsed, "lab-noise lab-power", "chance to find a gain that is there (default: 0.8)"},
    {"--reported", "R,R...", "", kUsed, "lab-noise",
     "a ladder of claimed records in tok/s, shown beside that of a table's promoted rows"},
    {"--sd", "PERCENT", "", kUsed, "lab-power", "SD of a block's log ratio, as lab noise measures it"},
    {"--sd", "PERCENT", "", kUsed, "lab-ab", "with --always-valid and --gain: the SD of a block that is expected"},
    {"--gain", "PERCENT", "", kUsed, "lab-power", "the gain to plan for (default: a table)"},
    {"--gain", "PERCENT", "", kUsed, "lab-ab",
     "the gain hoped for: with --looks stop when it has become improbable, with --always-valid aim at it"},
    {"--blocks", "N", "", kUsed, "lab-power", "the budget in blocks (default: a table)"},
    {"--looks", "N,N...", "", kUsed, "lab-power lab-ab",
     "look after these numbers of blocks and no others, and stop when it is decided"},
    {"--always-valid", "", "", kUsed, "lab-power lab-ab", "look after every block, and stop when it is decided"},
    {"--min-effect", "PERCENT", "", kUsed, "lab-ab", "better means the whole interval lies above it (default: 0)"},
    {"--no-worse", "PERCENT", "", kUsed, "lab-ab", "margin of the line \"no worse than\" (default: 0.5; 0: no such line)"},
    {"-s --seed", "N", "", kUsed, "lab-ab", "seed of the bootstrap (default: 1)"},
    // What a log says, and what follows from it: log, whatif, roof.
    {"--json", "", "", kUsed, "lab-log lab-whatif lab-roof",
     "print one JSON object (docs/lab-log.md) instead of text"},
    {"--html", "FILE", "", kUsed, "lab-log", "write the report as one self-contained page, too"},
    {"--compare", "", "", kUsed, "lab-log",
     "split the change of tok/s between two logs into acceptance, context and the rest"},
    {"--depth", "LIST", "", kUsed, "lab-whatif",
     "draft lengths, as 1..16 or 1,2,4 (default: 1..16)"},
    {"--draft-ms", "MS", "", kUsed, "lab-whatif",
     "milliseconds that drafting one token takes (default: from the log, if it says)"},
    {"--verify-ms", "MS", "", kUsed, "lab-whatif",
     "milliseconds of a pass of one row (default: what the log's step leaves after drafting)"},
    {"--row-ms", "MS", "", kUsed, "lab-whatif",
     "milliseconds that each further row adds to a pass (default: none)"},
    {"--bandwidth", "GB/S", "", kUsed, "lab-roof", "memory bandwidth, 1e9 bytes a second"},
    {"--depth", "LIST", "", kUsed, "lab-roof",
     "remembered positions (default: 0,4096,32768)"},
    {"--width", "LIST", "", kUsed, "lab-roof", "rows of a pass (default: 1,2,4,8)"},
    {"--kv-types", "LIST", "", kUsed, "lab-roof", "KV types (default: f16,q8_0,q4_0)"},
    {"--unique", "N", "", kUsed, "lab-roof",
     "measured number of different experts a layer that a pass meets (default: random routing)"},
    // A trace.
    {"--json", "", "", kUsed, "lab-trace", "print one JSON object (docs/lab-log.md) instead of text"},
    {"--rows", "N", "", kUsed, "lab-trace", "only passes of so many rows, and what is inside them"},
    {"--has", "NAME,NAME...", "", kUsed, "lab-trace",
     "fail (exit code 1) unless each of these ops, by name or kind, ran in it"},
    // The ledger and lint.
    {"--ledger", "PATH|URL", "LOCKSTEP_LEDGER", kUsed,
     "lab-init lab-import lab-add lab-show lab-diff lab-tried lab-records lab-rejected lab-verify lab-lint lab-report",
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
    // The report.
    {"--html", "FILE", "", kUsed, "lab-report", "write the page"},
    {"--md", "FILE", "", kUsed, "lab-report", "write it as Markdown; without --html, --md and --json it is printed"},
    {"--json", "", "", kUsed, "lab-report", "print one JSON object (docs/lab-report.md)"},
    {"--title", "TEXT", "", kUsed, "lab-report", "the page's title"},
    {"--reported", "R,R...", "", kUsed, "lab-report",
     "a ladder of claimed records in tok/s, held against the noise of a table of runs"},
    {"--alpha", "P", "", kUsed, "lab-report", "two-sided error (default: 0.05)"},
};
// clang-format on

}  // namespace

std::span<const Flag> lab_flags() {
  return kFlags;
}

}  // namespace lockstep::app
