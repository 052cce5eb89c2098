#include "program.h"

#include <fmt/format.h>

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
    const std::string hash = to_hex(sha256(binary.bytes()));
    release_mapped(binary.bytes());  // what runs has its own pages of it
    return hash;
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
