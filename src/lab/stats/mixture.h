// Intervals that may be read after every value and still hold, all together, with 1 - alpha:
// Robbins, "Statistical methods related to the law of the iterated logarithm", Annals of
// Mathematical Statistics 1970; Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric,
// nonasymptotic confidence sequences", Annals of Statistics 2021.
#pragma once

#include <cstdint>
#include <span>

#include "lab/stats/distributions.h"

namespace lockstep::lab::stats {

// Variance known, or bounded from above by data that take no further part: the likelihood ratio
// against 0 mixed over effects N(0, (tau sigma)^2),
//   Lambda_n = (1 + n tau^2)^(-1/2) exp(n^2 tau^2 m^2 / (2 sigma^2 (1 + n tau^2))),  m the mean.
// tau is an effect in units of sigma, chosen before the data: the mixture is sharpest near it.
// Valid for any independent values that are sigma-sub-Gaussian, not only normal ones.
struct NormalMixture {
  double sigma = 1, tau = 1, alpha = 0.05;
  double log_e_value(int64_t n, double mean, double hypothesis = 0) const;
  Interval interval(int64_t n, double mean) const;
};

// Variance unknown. Putting the sample SD into the formula above is not valid: early SDs are often
// far too small. Here the ratio is of densities of what a change of scale leaves alone, mixed over
// effects N(0, (tau sigma)^2) for whatever sigma is:
//   E_n = (1 + n tau^2)^(-1/2) [(Q + n m^2) / (Q + n m^2 / (1 + n tau^2))]^(n/2),
// Q the squared deviations from the mean; a martingale under every N(0, sigma^2) (Lai, "On
// confidence sequences", Annals of Statistics 1976; Wang and Ramdas, "Anytime-valid t-tests and
// confidence sequences for Gaussian means with unknown variance", arXiv 2310.03722). Assumes normal
// values: the e-process of sign_betting.h does not.
struct TMixture {
  double tau = 1, alpha = 0.05;
  double log_e_value(int64_t n, double mean, double sd, double hypothesis = 0) const;
  // Infinite as long as n is too small for any interval at this level.
  Interval interval(int64_t n, double mean, double sd) const;
};

}  // namespace lockstep::lab::stats
