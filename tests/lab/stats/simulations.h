// The lab's methods on data whose truth is planted. The tests run them at a size that a build can
// bear, bench/lab_simulations at full size; both print and judge the same rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::lab::stats {

struct SimulationRow {
  std::string group, what;
  int64_t trials = 0;
  double measured = 0;  // a rate, a mean or a bias, as `what` says
  double bound = 0;     // what it is compared with
  std::string judged;   // the comparison in words, with its figures
  bool holds = false;
  bool control = false;  // a wrong method that must fail where the right ones hold
};

using SimulationRows = std::vector<SimulationRow>;

// trials: of each row; the same seed gives the same rows.
SimulationRows simulate_false_alarms(int64_t trials, uint64_t seed);
SimulationRows simulate_stopping_times(int64_t trials, uint64_t seed);
SimulationRows simulate_coverage(int64_t trials, uint64_t seed);
SimulationRows simulate_winners_curse(int64_t trials, uint64_t seed);
SimulationRows simulate_planted_faults(int64_t trials, uint64_t seed);
SimulationRows simulate_power(int64_t trials, uint64_t seed);

std::string simulation_table(const SimulationRows& rows);

}  // namespace lockstep::lab::stats
