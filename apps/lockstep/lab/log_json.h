// lockstep.lab.log/1, written piece by piece: a log of any size.
#pragma once

#include "lab/log/analysis.h"

namespace lockstep::app {

// Prints the object (docs/lab-log.md) to standard output.
void print_log_json(const lab::log::Analysis& analysis);

}  // namespace lockstep::app
