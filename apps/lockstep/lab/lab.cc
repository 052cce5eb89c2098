#include "lab/lab.h"

#include <fmt/format.h>

#include "cli.h"
#include "output.h"

namespace lockstep::app {
namespace {

// In the order in which people meet them.
const std::vector<Command> kCommands = {
    {"lab log", "what a server's log shows, and what it does not", set_up_lab_log},
    {"lab whatif", "what other draft lengths would give", set_up_lab_whatif},
    {"lab roof", "the most tokens a second that a bandwidth allows", set_up_lab_roof},
    {"lab trace", "where the time of a trace went, nothing counted twice", set_up_lab_trace},
    {"lab lint", "say whether a result may be quoted: rules V1 to V12", set_up_lab_lint},
    {"lab noise", "the noise floor, from the same thing measured twice", set_up_lab_noise},
    {"lab power", "how many blocks a gain needs, and what a budget can prove", set_up_lab_power},
    {"lab ab", "is B better than A?", set_up_lab_ab},
    {"lab init", "make a ledger", set_up_lab_init},
    {"lab import", "read result files into the ledger", set_up_lab_import},
    {"lab add", "add one object to the ledger", set_up_lab_add},
    {"lab show", "what the ledger holds, or one entry", set_up_lab_show},
    {"lab diff", "in what two results differ", set_up_lab_diff},
    {"lab tried", "find earlier attempts by what they changed", set_up_lab_tried},
    {"lab records", "what was proved, and what is claimed", set_up_lab_records},
    {"lab rejected", "the dead ends", set_up_lab_rejected},
    {"lab verify", "check that nothing in the ledger was changed", set_up_lab_verify},
    {"lab report", "a page of what was measured, with plots", set_up_lab_report},
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
