// "No worse than": two one-sided tests, Schuirmann, Journal of Pharmacokinetics and
// Biopharmaceutics 1987, on an interval of level 1 - 2 alpha.
#pragma once

#include <string_view>

#include "lab/stats/distributions.h"

namespace lockstep::lab::stats {

enum class Answer { yes, no, unknown };
std::string_view answer_name(Answer answer);

// Is the effect above -margin? yes: the interval lies above it; no: below; margin > 0. With an
// interval of level 1 - 2 alpha a wrong yes has probability alpha at most.
Answer no_worse(Interval interval, double margin);
// Is the effect within (-margin, margin)?
Answer equivalent(Interval interval, double margin);

}  // namespace lockstep::lab::stats
