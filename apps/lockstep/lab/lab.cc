#include "lab/lab.h"

#include <fmt/format.h>

#include "cli.h"
#include "output.h"

namespace lockstep::app {
namespace {

// In the order in which people meet them.
const std::vector<Command> kCommands = {
    {"lab noise", "the noise floor, from the same thing measured twice", set_up_lab_noise},
    {"lab power", "how many blocks a gain needs, and what a budget can prove", set_up_lab_power},
    {"lab ab", "is B better than A?", set_up_lab_ab},
    {"lab log", "what a server's log shows, and what it does not", set_up_lab_log},
    {"lab whatif", "what other draft lengths would give", set_up_lab_whatif},
    {"lab roof", "the most tokens a second that a bandwidth allows", set_up_lab_roof},
};

std::string usage() {
  return "Reads, judges and remembers measurements of any engine.\n\n"
         "Usage: lockstep lab COMMAND [flags]\n\n" +
         list_commands(kCommands) +
         "\n  lockstep lab COMMAND --help    the command's flags and an example\n\n"
         "Example:\n  lockstep lab log server.log\n";
}

}  // namespace

ExitCode run_lab(const std::vector<std::string>& arguments) {
  if (arguments.empty()) bad_use("no command; see lockstep lab --help");
  const std::string& name = arguments[0];
  if (name == "--help" || name == "-h" || name == "help") {
    print(usage());
    return ExitCode::ok;
  }
  for (const Command& command : kCommands) {
    if ("lab " + name == command.name) {
      return run_command(command, {arguments.begin() + 1, arguments.end()});
    }
  }
  bad_use(fmt::format("lab {}: no such command; see lockstep lab --help", shorten(name)));
}

}  // namespace lockstep::app
