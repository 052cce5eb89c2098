// What two lookup sources share.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep::draft {

// n tokens from tokens[from] on; past the end the sequence goes on with what was taken, so that a
// text which repeats itself is drafted as repeating on. 0 <= from < tokens.size().
inline std::vector<int32_t> continuation(std::span<const int32_t> tokens, int64_t from, int n) {
  std::vector<int32_t> taken;
  for (int64_t i = from; n > 0; ++i, --n) {
    const auto k = static_cast<size_t>(i);
    taken.push_back(k < tokens.size() ? tokens[k] : taken[k - tokens.size()]);
  }
  return taken;
}

}  // namespace lockstep::draft
