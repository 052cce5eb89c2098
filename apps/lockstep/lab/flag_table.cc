#include "lab/lab.h"

namespace lockstep::app {
namespace {

constexpr FlagKind kUsed = FlagKind::used;

// One flag a line keeps the table readable as a table.
// clang-format off
constexpr Flag kFlags[] = {
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
};
// clang-format on

}  // namespace

std::span<const Flag> lab_flags() {
  return kFlags;
}

}  // namespace lockstep::app
