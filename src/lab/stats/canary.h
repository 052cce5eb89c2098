// What clean canary rows prove. Rows must be independent exposures of the path: repeats of one
// request expose races and not inputs, so both counts are printed.
#pragma once

#include <cstdint>

#include "lab/stats/distributions.h"

namespace lockstep::lab::stats {

// Upper bound of the fault rate after n rows without a fault, at `level`: 1 - (1 - level)^(1/n),
// which is about 3/n at 95 % (Hanley and Lippman-Hand, "If nothing goes wrong, is everything all
// right?", JAMA 1983). 1 for n = 0.
double fault_rate_bound(int64_t clean_rows, double level = 0.95);
// Rows after which a fault of this rate has shown itself with probability `level`: 299 for 1 in
// 100, 2995 for 1 in 1000.
int64_t rows_to_see(double fault_rate, double level = 0.95);

// Interval for a rate from `events` among n: Clopper and Pearson, Biometrika 1934; each side alone
// holds with (1 + level)/2.
Interval clopper_pearson(int64_t events, int64_t n, double level);
// Its one-sided upper bound at `level`.
double clopper_pearson_upper(int64_t events, int64_t n, double level);

struct Canary {
  int64_t rows = 0, failed = 0, distinct_inputs = 0;
  double bound = 1;        // of the fault rate over all rows
  double input_bound = 1;  // of the share of inputs that fail always: over distinct inputs alone
};
Canary canary(int64_t rows, int64_t failed, int64_t distinct_inputs, double level = 0.95);

}  // namespace lockstep::lab::stats
