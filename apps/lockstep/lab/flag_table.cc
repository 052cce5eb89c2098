#include "lab/lab.h"

namespace lockstep::app {
namespace {

constexpr FlagKind kUsed = FlagKind::used;

// One flag a line keeps the table readable as a table.
// clang-format off
constexpr Flag kFlags[] = {
    {"--json", "", "", kUsed, "lab-log",
     "print one JSON object (docs/json.md) instead of text"},
};
// clang-format on

}  // namespace

std::span<const Flag> lab_flags() {
  return kFlags;
}

}  // namespace lockstep::app
