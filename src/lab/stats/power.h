// What a number of blocks can prove, and how many an effect needs. Effects and SDs are in the same
// unit (log ratios, or per cent of small ones); alpha is two-sided.
#pragma once

#include <cstdint>

namespace lockstep::lab::stats {

// Fewest values whose exact signed-rank interval reaches 1 - alpha: 2^(1-n) <= alpha. 6 at 5 %.
int64_t signed_rank_floor(double alpha);

// The textbook's count, n = ((z_{1-alpha/2} + z_power) sd / effect)^2 rounded up (for instance
// Julious, "Sample sizes for clinical trials with normal data", Statistics in Medicine 2004), and
// no fewer than signed_rank_floor(alpha). Takes the SD as known: an optimist for fewer than
// about 20.
int64_t blocks_normal(double sd, double effect, double alpha, double power);
// The effect for which blocks_normal's formula gives n. Infinite below the floor.
double smallest_effect_normal(int64_t n, double sd, double alpha, double power);

// Power of the exact signed-rank interval to exclude 0 for normal values. Where only the sums of
// one sign alone exclude it (6 values at 5 %): Phi(d)^n + Phi(-d)^n with d = effect/sd, exactly.
// Otherwise that of the t test at the level which n values attain (noncentral t), with n lowered by
// the test's efficiency 3/pi (Lehmann, "Nonparametrics", 1975, section 4.2): within 2 % of the
// truth, as the simulations show. 0 below the floor.
double power_signed_rank(int64_t n, double sd, double effect, double alpha);
// Fewest values with that power; -1 where more than a million would be needed.
int64_t blocks_signed_rank(double sd, double effect, double alpha, double power);
double smallest_effect_signed_rank(int64_t n, double sd, double alpha, double power);

}  // namespace lockstep::lab::stats
