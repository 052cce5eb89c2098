// Plots as lines of characters, for Markdown: an interval a line, a value a column.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/report/page.h"

namespace lockstep::lab::report {

// Lines without labels from files, so that they can stand in a fenced block: effects are numbered
// as in their table. Empty where there is nothing to draw.
std::vector<std::string> text_plot(const Plot& plot);

}  // namespace lockstep::lab::report
