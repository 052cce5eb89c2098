// The lab's statistics on planted truths at full size: one table, and exit code 1 where a row does
// not hold. The tests run the same rows with fewer trials. Usage: lab_simulations [trials] [seed]
#include <cstdio>
#include <cstdlib>
#include <string>

#include "simulations.h"

int main(int argc, char** argv) {
  using namespace lockstep::lab::stats;
  const long long trials = argc > 1 ? std::atoll(argv[1]) : 20000;
  const unsigned long long seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  if (trials < 1000) {
    std::fprintf(stderr, "lab_simulations: at least 1000 trials\n");
    return 2;
  }
  bool all = true;
  std::printf("%-66s %8s %9s\n", "", "trials", "measured");
  for (const auto simulate : {simulate_false_alarms, simulate_stopping_times, simulate_coverage,
                              simulate_power, simulate_winners_curse, simulate_planted_faults}) {
    const SimulationRows rows = simulate(trials, seed);
    std::fputs(simulation_table(rows).c_str(), stdout);
    std::fflush(stdout);
    for (const SimulationRow& row : rows) all &= row.holds;
  }
  std::printf("\n%s\n", all ? "all rows hold" : "SOME ROWS DO NOT HOLD");
  return all ? 0 : 1;
}
