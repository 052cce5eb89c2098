// Failures that no catch sees.
#pragma once

namespace lockstep::app {

// From here on, a mapped file that shrinks (SIGBUS) and memory that runs out where nothing may be
// thrown end the program with one line on standard error and a documented exit code.
void install_failure_handlers();

}  // namespace lockstep::app
