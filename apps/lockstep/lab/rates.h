#pragma once

#include <string>
#include <vector>

namespace lockstep::app {

// The rates of --reported, as in 101.4,102.0. Throws Error(bad_use).
std::vector<double> reported_values(const std::string& text);

}  // namespace lockstep::app
