// The built-in texts of `prove`.
#pragma once

#include <string_view>

namespace lockstep::app {

// Says everything twice or more, so that a draft source that looks back finds something, and
// crosses the first page of 64 positions while it is decoded.
inline constexpr std::string_view kRepetitive =
    "The cat sat on the mat. The dog sat on the log. The bird sat on the branch.\n"
    "The cat sat on the mat. The dog sat on the log. The bird sat on the branch.\n"
    "The cat sat on the mat. The dog sat on the";

// Says nothing twice.
inline constexpr std::string_view kProse =
    "Nobody in the harbour could say when the lighthouse had last been painted, but every morning "
    "its keeper";

inline constexpr std::string_view kCode =
    "def mean(values):\n    total = 0.0\n    for value in values:\n        total += value\n"
    "    return total / len(values)\n\n\ndef variance(values):\n";

}  // namespace lockstep::app
