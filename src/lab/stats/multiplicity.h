// Many arms at once. Every launched arm counts, also those that crashed (p = 1).
#pragma once

#include <span>
#include <vector>

namespace lockstep::lab::stats {

// Adjusted p values, in the order of p: below alpha means rejected with the error named.
// Chance of any false rejection at most alpha: Holm, Scandinavian Journal of Statistics 1979.
std::vector<double> holm(std::span<const double> p);
// Expected share of false ones among the rejected at most alpha (independent or positively
// dependent tests): Benjamini and Hochberg, JRSS B 1995.
std::vector<double> benjamini_hochberg(std::span<const double> p);

}  // namespace lockstep::lab::stats
