// An analysis as text for people and as one HTML page.
#pragma once

#include <string>

#include "lab/log/analysis.h"

namespace lockstep::lab::log {

// Plain text of at most 100 columns or so; control characters of the log are escaped.
std::string text_report(const Analysis& analysis);

// One self-contained page: tables, and plots as SVG; no script, nothing fetched.
std::string html_report(const Analysis& analysis);

}  // namespace lockstep::lab::log
