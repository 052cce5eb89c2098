#include "program.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/sha256.h"

namespace lockstep::app {
namespace {

// The file that was started, even where its name holds another one by now.
constexpr const char* kRunning = "/proc/self/exe";

std::string hash_of_running_binary() {
  try {
    const MappedFile binary(kRunning);
    Sha256 hash;
    constexpr size_t kPiece = size_t{1} << 20;  // held at once
    for (auto rest = binary.bytes(); !rest.empty();) {
      const auto piece = rest.first(std::min(kPiece, rest.size()));
      hash.update(piece);
      release_mapped(piece);
      rest = rest.subspan(piece.size());
    }
    return to_hex(hash.finish());
  } catch (const Error&) {
    return "";  // no /proc: results say null
  }
}

}  // namespace

std::string engine_name() {
  return fmt::format("lockstep {}", LOCKSTEP_VERSION);
}

const decode::Program& this_program() {
  static const decode::Program program{engine_name(), hash_of_running_binary()};
  return program;
}

}  // namespace lockstep::app
