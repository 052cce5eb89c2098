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

// Logs, and what follows from them.
Runner set_up_lab_log(Flags& flags);
Runner set_up_lab_whatif(Flags& flags);
Runner set_up_lab_roof(Flags& flags);
Runner set_up_lab_trace(Flags& flags);
// Noise and verdicts.
Runner set_up_lab_noise(Flags& flags);
Runner set_up_lab_power(Flags& flags);
Runner set_up_lab_ab(Flags& flags);
// The ledger and what asks it.
Runner set_up_lab_lint(Flags& flags);
Runner set_up_lab_init(Flags& flags);
Runner set_up_lab_import(Flags& flags);
Runner set_up_lab_add(Flags& flags);
Runner set_up_lab_show(Flags& flags);
Runner set_up_lab_diff(Flags& flags);
Runner set_up_lab_tried(Flags& flags);
Runner set_up_lab_records(Flags& flags);
Runner set_up_lab_rejected(Flags& flags);
Runner set_up_lab_verify(Flags& flags);
// All of it on a page.
Runner set_up_lab_report(Flags& flags);

// The lab's rows of the flag table.
std::span<const Flag> lab_flags();

}  // namespace lockstep::app
