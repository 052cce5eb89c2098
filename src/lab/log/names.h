// The words that reports and JSON use for what was read.
#pragma once

#include <string>
#include <string_view>

#include "lab/log/analysis.h"

namespace lockstep::lab::log {

std::string_view name_of(DraftLine line);           // "1", "2", "2b", "3", "none"
std::string_view name_of(Denominator denominator);  // "n", "n-1", "either", "neither", "unknown"
std::string_view name_of(CachedFrom from);          // "log", "prompt", "end", ""
std::string_view name_of(Witness witness);

// One sentence: which servers, draft lines and denominators the log holds.
std::string generation_text(const Analysis& analysis);

}  // namespace lockstep::lab::log
