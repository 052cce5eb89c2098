// lockstep lab: the lab's commands, each in a file of this folder.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli.h"
#include "flag_table.h"

namespace lockstep::app {

// Finds the lab's command that the first argument names, and runs it with the others.
ExitCode run_lab(const std::vector<std::string>& arguments);

Runner set_up_lab_noise(Flags& flags);
Runner set_up_lab_power(Flags& flags);
Runner set_up_lab_ab(Flags& flags);

// The lab's rows of the flag table.
std::span<const Flag> lab_flags();

Runner set_up_lab_log(Flags& flags);
Runner set_up_lab_whatif(Flags& flags);
Runner set_up_lab_roof(Flags& flags);

}  // namespace lockstep::app
