// From files to a page.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "lab/report/page.h"

namespace lockstep::lab::report {

struct Options {
  double alpha = 0.05;           // two-sided
  double power = 0.8;            // of "can be proved"
  std::vector<double> reported;  // a ladder of claimed records in tok/s, judged by a table's noise
  uint64_t seed = 1;             // of permutations and bootstraps
};

struct Input {
  std::string name;   // for the page and for messages
  std::string bytes;  // the whole file
};

// Files of any of these kinds, in any mixture; a page has what they give:
//   lockstep.lab.runs/1 and its CSV   effects of each arm against the control, the control in time
//   a table of runs (batch,run,change,fresh_tok_s,verdict)   the noise of a row, effects of
//   recipes,
//                                     controls in time, the ladder of promoted rows
//   lockstep.lab.log/1 (lab log --json)   acceptance by position, contradictions
// Throws Error(bad_file), with the name, for anything else and for files that can't be used.
Page make_page(std::span<const Input> inputs, const Options& options);

}  // namespace lockstep::lab::report
