// Planted truths at a size that a build can bear; LOCKSTEP_FULL=1 runs the full size.
#include <gtest/gtest.h>

#include <cstdlib>

#include "simulations.h"

namespace lockstep::lab::stats {
namespace {

int64_t trials() {
  const char* full = std::getenv("LOCKSTEP_FULL");
  return full != nullptr && full[0] == '1' ? 20000 : 4000;
}

void check(const SimulationRows& rows, int at_least_controls) {
  std::fputs(simulation_table(rows).c_str(), stdout);
  int controls = 0;
  for (const SimulationRow& row : rows) {
    EXPECT_TRUE(row.holds) << row.group << ": " << row.what << ": " << row.measured << "; "
                           << row.judged;
    controls += row.control;
  }
  EXPECT_GE(controls, at_least_controls);
}

TEST(Simulation, FalseAlarmsStayBelowFivePerCentWithEarlyStopping) {
  check(simulate_false_alarms(trials(), 1), 3);
}
TEST(Simulation, AGainIsFoundAfterAsManyPairsAsPredicted) {
  check(simulate_stopping_times(trials(), 1), 0);
}
TEST(Simulation, IntervalsCover) {
  check(simulate_coverage(trials(), 1), 2);
}
TEST(Simulation, TheSmallestProvableEffectIsProved) {
  check(simulate_power(trials(), 1), 0);
}
TEST(Simulation, TheWinnersCurseIsTakenBack) {
  check(simulate_winners_curse(trials(), 1), 1);
}
TEST(Simulation, PlantedFaultsAreFlagged) {
  check(simulate_planted_faults(trials(), 1), 0);
}

}  // namespace
}  // namespace lockstep::lab::stats
