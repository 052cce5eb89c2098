#include "program.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/mapped_hash.h"

namespace lockstep::app {
namespace {

// The file that was started, even where its name holds another one by now.
constexpr const char* kRunning = "/proc/self/exe";

std::string hash_of_running_binary() {
  try {
    const MappedFile binary(kRunning);
    Sha256 hash;
    update_mapped(hash, binary.bytes());
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
