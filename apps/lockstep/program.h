// This program, as its results name it.
#pragma once

#include <string>

#include "decode/program.h"

namespace lockstep::app {

std::string engine_name();  // "lockstep 0.1.0"

// The same with the hash of the running executable's file, which the first call reads (a few
// milliseconds). Two builds of one version differ in it; the libraries it loads are not in it.
const decode::Program& this_program();

}  // namespace lockstep::app
