// Depth control against simulated machines and sources: what it reaches, what it loses.
#include "draft/auto_depth.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>

namespace lockstep::draft {
namespace {

using Cost = std::function<double(int)>;

struct Machine {
  const char* name;
  Cost pass;  // ms, of a width
};

Machine flat_then_steep() {
  return {"flat to 8, then steep",
          [](int w) { return w <= 8 ? 20.0 + 0.2 * (w - 1) : 21.4 + 6.0 * (w - 8); }};
}
Machine linear() {
  return {"linear", [](int w) { return 12.0 + 4.0 * w; }};
}
Machine step_at_nine() {
  return {"step at 9", [](int w) { return w <= 8 ? 25.0 : 36.0; }};
}
Machine proportional() {
  return {"no width is worth it", [](int w) { return 10.0 * w; }};
}

// Text is 0, 1, 2, …; a draft is right at each place with the probability given, whatever happened
// before, and proposed with some probability at all.
struct Drafter {
  double right = 0.8;
  double ms_a_token = 0.0;
  double proposes = 1.0;
  bool confident = false;  // says for each token how sure it is, and is right that often
};

struct Totals {
  double tokens = 0, ms = 0, steps = 0, drafted = 0, asked = 0, draft_ms = 0;
  double rate() const { return tokens / ms; }
};

class Simulation {
 public:
  Simulation(Machine machine, uint64_t seed) : machine_(std::move(machine)), rng_(seed) {}

  Machine machine_;
  AutoDepth control;

  Totals run(const Drafter& drafter, int steps) {
    Totals totals;
    for (int step = 0; step < steps; ++step) {
      const int asked = control.ask(1000);
      double draft_ms = 0;
      Proposal proposal;
      std::vector<bool> right;
      if (asked > 0) {
        draft_ms = drafter.ms_a_token * asked * noise();
        if (uniform() < drafter.proposes) {
          bool agrees = true;
          for (int i = 0; i < asked; ++i) {
            double p = drafter.right;
            if (drafter.confident) {
              p = uniform() < 0.5 ? 0.97 : 0.3;
              proposal.confidence.push_back(static_cast<float>(p));
            }
            agrees = agrees && uniform() < p;
            proposal.tokens.push_back(agrees ? position_ + i : -1);
          }
        }
        control.observe_draft(asked, draft_ms);
      }
      const int depth = control.choose(proposal, asked);
      EXPECT_GE(depth, 0);
      EXPECT_LE(depth, static_cast<int>(proposal.tokens.size()));
      const double pass_ms = machine_.pass(1 + depth) * noise();
      control.observe_pass(1 + depth, pass_ms);
      std::vector<int32_t> tokens;
      for (int i = 0; i < depth && proposal.tokens[static_cast<size_t>(i)] >= 0; ++i) {
        tokens.push_back(position_++);
      }
      tokens.push_back(position_++);
      control.observe_tokens(tokens);
      totals.tokens += static_cast<double>(tokens.size());
      totals.ms += draft_ms + pass_ms;
      totals.draft_ms += draft_ms;
      totals.drafted += depth;
      totals.asked += asked;
      ++totals.steps;
    }
    return totals;
  }

 private:
  double uniform() { return static_cast<double>(rng_() >> 11) * 0x1p-53; }
  // A few per cent, and now and then something else wants the machine.
  double noise() { return (rng_() % 50 == 0 ? 3.0 : 1.0) * (0.98 + 0.08 * uniform()); }
  std::mt19937_64 rng_;
  int32_t position_ = 0;
};

// As much noise as the simulation has, on average.
constexpr double kMeanNoise = 1.02 * (1 + 2.0 / 50);

double fixed_rate(const Machine& machine, const Drafter& drafter, int depth) {
  double reach = 1, tokens = 1;
  for (int i = 0; i < depth; ++i) tokens += reach *= drafter.right;
  const double with = machine.pass(1 + depth), plain = machine.pass(1);
  const double p = drafter.proposes;
  return (p * tokens + (1 - p)) /
         (kMeanNoise * (p * with + (1 - p) * plain + drafter.ms_a_token * depth));
}

double best_fixed_rate(const Machine& machine, const Drafter& drafter) {
  double best = 0;
  for (int depth = 0; depth <= AutoDepth::kMaxDepth; ++depth) {
    best = std::max(best, fixed_rate(machine, drafter, depth));
  }
  return best;
}

TEST(AutoDepth, ReachesTheBestFixedDepth) {
  for (const Machine& machine : {flat_then_steep(), linear(), step_at_nine(), proportional()}) {
    for (const double right : {0.0, 0.3, 0.6, 0.8, 0.95}) {
      for (const double draft_share : {0.0, 0.03, 0.2}) {
        for (const double proposes : {1.0, 0.3}) {
          if (draft_share > 0 && proposes < 1) continue;
          const Drafter drafter{
              .right = right, .ms_a_token = draft_share * machine.pass(1), .proposes = proposes};
          const double best = best_fixed_rate(machine, drafter);
          double early = 0, late = 0;
          for (uint64_t seed = 1; seed <= 8; ++seed) {
            Simulation simulation(machine, seed);
            early += simulation.run(drafter, 150).rate() / best / 8;
            late += simulation.run(drafter, 2000).rate() / best / 8;
          }
          EXPECT_GT(late, 0.95) << machine.name << ", right " << right << ", a draft token costs "
                                << draft_share << ", proposes " << proposes;
          EXPECT_GT(early, 0.88) << machine.name << ", right " << right << ", a draft token costs "
                                 << draft_share << ", proposes " << proposes;
        }
      }
    }
  }
}

TEST(AutoDepth, AHopelessSourceCostsLittleAltogether) {
  for (const Machine& machine : {flat_then_steep(), linear(), step_at_nine(), proportional()}) {
    for (const double draft_share : {0.0, 0.02, 0.2}) {
      const Drafter drafter{.right = 0.0, .ms_a_token = draft_share * machine.pass(1)};
      Totals all;
      for (uint64_t seed = 1; seed <= 8; ++seed) {
        Simulation simulation(machine, seed);
        const Totals totals = simulation.run(drafter, 400);
        all.tokens += totals.tokens;
        all.ms += totals.ms;
      }
      EXPECT_GT(all.rate() * machine.pass(1) * kMeanNoise, 0.97)
          << machine.name << ", a draft token costs " << draft_share;
    }
  }
}

TEST(AutoDepth, LooksAgainAtABoundedPrice) {
  const Machine machine = linear();
  Simulation simulation(machine, 5);
  const Drafter drafter{.right = 0.0, .ms_a_token = 0.1 * machine.pass(1)};
  simulation.run(drafter, 1000);
  const Totals later = simulation.run(drafter, 5000);
  EXPECT_GT(later.asked, 0);
  EXPECT_LT(later.draft_ms, 0.01 * later.ms);
  EXPECT_LT(later.drafted, 5);
}

TEST(AutoDepth, FollowsASourceThatChanges) {
  for (const Machine& machine : {flat_then_steep(), linear(), step_at_nine()}) {
    for (const double draft_share : {0.0, 0.03}) {
      Simulation simulation(machine, 7);
      for (const double right : {0.9, 0.05, 0.9, 0.0, 0.85}) {
        const Drafter drafter{.right = right, .ms_a_token = draft_share * machine.pass(1)};
        const double best = best_fixed_rate(machine, drafter);
        // A source that costs nothing is watched all the time, one that does now and then.
        const double first = simulation.run(drafter, 600).rate();
        if (draft_share == 0) {
          EXPECT_GT(first, 0.88 * best) << machine.name << " " << right;
        }
        simulation.run(drafter, 600);
        EXPECT_GT(simulation.run(drafter, 1000).rate(), 0.95 * best)
            << machine.name << ", right " << right << ", a draft token costs " << draft_share;
      }
    }
  }
}

TEST(AutoDepth, FollowsAMachineThatChanges) {
  Simulation simulation(flat_then_steep(), 8);
  const Drafter drafter{.right = 0.8};
  simulation.run(drafter, 500);
  for (const Machine& machine : {proportional(), step_at_nine(), linear(), flat_then_steep()}) {
    simulation.machine_ = machine;
    simulation.run(drafter, 1500);
    EXPECT_GT(simulation.run(drafter, 1500).rate(), 0.95 * best_fixed_rate(machine, drafter))
        << machine.name;
  }
}

// The first pass with a draft was disturbed, so that all drafts look too dear to make: wider passes
// are tried again all the same.
TEST(AutoDepth, WidthsThatLookedDearOnceAreTriedAgain) {
  for (const double draft_share : {0.1, 0.4}) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      bool drafted = false;
      const Machine flat{"flat", [](int w) { return 30.0 + 0.02 * w; }};
      const Machine disturbed{"flat, the first pass with a draft disturbed", [&](int w) {
                                const bool first = w > 1 && !drafted;
                                drafted |= first;
                                return first ? 90.0 : flat.pass(w);
                              }};
      const Drafter drafter{.right = 0.8, .ms_a_token = draft_share * 30.0};
      Simulation simulation(disturbed, seed);
      simulation.run(drafter, 800);
      EXPECT_GT(simulation.run(drafter, 1000).rate(), 0.75 * best_fixed_rate(flat, drafter))
          << "seed " << seed << ", a draft token costs " << draft_share;
    }
  }
}

// A source that knows when it is right does better than any fixed depth.
TEST(AutoDepth, UsesConfidence) {
  const Machine machine = linear();
  const Drafter drafter{.confident = true};
  Simulation simulation(machine, 9);
  simulation.run(drafter, 500);
  const double rate = simulation.run(drafter, 3000).rate();
  const Drafter blind{.right = 0.5 * (0.97 + 0.3)};
  EXPECT_GT(rate, 1.1 * best_fixed_rate(machine, blind));
}

TEST(AutoDepth, TakesAnyTime) {
  std::mt19937_64 rng(10);
  AutoDepth control;
  const double times[] = {0.0,   -1.0, 1e-300, 1e300, 5.0, std::numeric_limits<double>::infinity(),
                          1e308, NAN,  -1e300, 20.0};
  const auto time = [&] { return times[rng() % std::size(times)]; };
  for (int step = 0; step < 3000; ++step) {
    const int room = static_cast<int>(rng() % 20);
    const int asked = control.ask(room);
    ASSERT_GE(asked, 0);
    ASSERT_LE(asked, std::min(room, AutoDepth::kMaxDepth));
    Proposal proposal;
    proposal.tokens.assign(rng() % 30, 3);
    if (rng() % 2 == 0) proposal.match.assign(proposal.tokens.size(), static_cast<int>(rng() % 50));
    control.observe_draft(asked, time());
    const int depth = control.choose(proposal, asked);
    ASSERT_GE(depth, 0);
    ASSERT_LE(depth, asked);
    ASSERT_LE(depth, static_cast<int>(proposal.tokens.size()));
    control.observe_pass(1 + depth, time());
    control.observe_tokens(std::vector<int32_t>(1 + rng() % 16, rng() % 2 == 0 ? 3 : 4));
    if (rng() % 100 == 0) control.forget_text();
  }
}

TEST(CostCurve, NeverFallsAndKeepsWhatItSaw) {
  CostCurve curve(17, 1, 0.1);
  EXPECT_FALSE(curve.known());
  curve.observe(1, 10);
  EXPECT_TRUE(curve.known());
  EXPECT_DOUBLE_EQ(curve.at(1), 10);
  EXPECT_DOUBLE_EQ(curve.at(3), 12);
  curve.observe(5, 18);
  EXPECT_DOUBLE_EQ(curve.at(3), 14);
  EXPECT_DOUBLE_EQ(curve.at(7), 22);
  // Seen again and again, one of them with a disturbance: the median.
  for (const double ms : {10.2, 50.0, 10.1, 9.9}) curve.observe(1, ms);
  EXPECT_DOUBLE_EQ(curve.at(1), 10.1);
  // A width that seems to cost less than a narrower one: both are in doubt.
  curve.observe(3, 9.0);
  for (int width = 1; width < 16; ++width) EXPECT_LE(curve.at(width), curve.at(width + 1));
  EXPECT_TRUE(curve.uncertain(3));
  EXPECT_FALSE(curve.uncertain(1));
  EXPECT_LE(curve.at_least(4), curve.at(4));
}

TEST(AcceptanceTable, SaysHowOftenOfLate) {
  AcceptanceTable table;
  Proposal sure, unsure;
  sure.tokens = unsure.tokens = {1, 2, 3};
  sure.confidence = {0.99f, 0.99f, 0.99f};
  unsure.confidence = {0.1f, NAN, 0.1f};
  unsure.match = {0, 20, 0};
  const auto key = [](const Proposal& p, size_t i) { return AcceptanceTable::key_of(p, i); };
  EXPECT_NE(key(sure, 0).bucket, key(unsure, 0).bucket);
  EXPECT_NE(key(unsure, 1).bucket, key(unsure, 0).bucket);
  for (int step = 0; step < 400; ++step) {
    table.observe(key(sure, 0), step % 10 != 0, step);
    table.observe(key(unsure, 0), step % 10 == 0, step);
  }
  EXPECT_NEAR(table.probability(key(sure, 0)), 0.9, 0.06);
  EXPECT_NEAR(table.probability(key(unsure, 0)), 0.1, 0.06);
  // A place not seen yet leans on its bucket, a bucket on its part, a part on the prior.
  EXPECT_GT(table.probability(key(sure, 2)), 0.8);
  EXPECT_NEAR(table.probability(key(unsure, 1)), 0.5, 0.1);
  EXPECT_NEAR(table.probability({.part = 1}), 0.6, 1e-9);
  for (int step = 400; step < 500; ++step) table.observe(key(sure, 0), false, step);
  EXPECT_LT(table.probability(key(sure, 0)), 0.15);
}

}  // namespace
}  // namespace lockstep::draft
