#pragma once

#include <cstdint>
#include <vector>

namespace lockstep::app {

// Throws Error(bad_use) unless the planned looks rise strictly.
void check_looks(const std::vector<int64_t>& looks);

}  // namespace lockstep::app
