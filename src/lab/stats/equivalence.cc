#include "lab/stats/equivalence.h"

namespace lockstep::lab::stats {

std::string_view answer_name(Answer answer) {
  return answer == Answer::yes ? "yes" : answer == Answer::no ? "no" : "unknown";
}

Answer no_worse(Interval interval, double margin) {
  if (interval.low > -margin) return Answer::yes;
  return interval.high < -margin ? Answer::no : Answer::unknown;
}

Answer equivalent(Interval interval, double margin) {
  if (interval.low > -margin && interval.high < margin) return Answer::yes;
  return interval.high < -margin || interval.low > margin ? Answer::no : Answer::unknown;
}

}  // namespace lockstep::lab::stats
