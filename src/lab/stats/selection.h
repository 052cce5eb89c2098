// The winner's curse: the best of many noisy candidates looks better than it is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lab/stats/distributions.h"

namespace lockstep::lab::stats {

// Expected largest of k independent standard normal values, by integrating x k phi(x) Phi(x)^(k-1)
// (Harter, "Expected values of normal order statistics", Biometrika 1961): 1.03 at 4, 2.25 at 50.
// Times the SD: what the best of k equal candidates gains from nothing. k >= 1.
double expected_largest(int64_t k);

// The candidates' true values as draws of N(mean, sd^2), estimated from what was measured: Robbins'
// empirical Bayes (1956) for normals (Efron and Morris, JASA 1973), by the moments of DerSimonian
// and Laird (Controlled Clinical Trials 1986), which allow a measuring error of each candidate's
// own.
struct NormalPrior {
  double mean = 0, sd = 0;
  int64_t candidates = 0;  // it was estimated from
  // What else the prior may be: the posterior of its SD under a flat density of its variance, on a
  // grid, each with the mean that belongs to it (Gelman et al., "Bayesian Data Analysis", 3rd
  // edition, section 5.4; the flat density as Morris and Tang, Statistical Science 2011, for the
  // coverage it gives).
  struct Possible {
    double sd = 0, probability = 0, mean = 0, mean_variance = 0;
  };
  std::vector<Possible> possible;
};
// errors: SD of each value's measuring error (from A/A data). At least two candidates. Every
// launched candidate belongs in: also the crashed ones' best guess, or the prior is too kind.
NormalPrior fit_normal_prior(std::span<const double> values, std::span<const double> errors);

// A value shrunk toward the prior: mean w value + (1 - w) prior mean with w = sd^2 / (sd^2 +
// error^2). Its interval counts in all that the prior may be. So it is not centred on the value
// where the prior's SD is estimated as 0: nothing was seen that sets the candidates apart, and yet
// something may.
struct Shrunk {
  double value = 0;   // expected on replication
  double weight = 0;  // w; 0: nothing tells the candidate from the others
  // Of the true value: a mixture of normals, one for each prior that is possible.
  struct Part {
    double probability = 0, mean = 0, sd = 0;
  };
  std::vector<Part> posterior;
  Interval interval(double level) const;
};
Shrunk shrink(double value, double error, const NormalPrior& prior);

// The three numbers of a record. The rows that selected it took no part in `confirmed` (sample
// splitting: Cox, "A note on data-splitting", Biometrika 1975), so that one is unbiased, whatever
// was selected from.
struct RecordValue {
  double selected = 0;          // what the screen showed: biased upward
  double by_luck = 0;           // expected_largest(launched) * error: what equal candidates gain
  double confirmed = 0;         // mean of the fresh values
  Interval confirmed_interval;  // Student's t; infinite for one value
  Shrunk replication;           // the confirmed mean shrunk toward the prior
};
// fresh: at least one confirming value; error: SD of one value; launched: candidates of the screen.
RecordValue record_value(double selected, int64_t launched, std::span<const double> fresh,
                         double error, const NormalPrior& prior, double level);

}  // namespace lockstep::lab::stats
