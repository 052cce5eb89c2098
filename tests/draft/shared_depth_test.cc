// Depths of sequences that share a pass, against simulated machines and sources: what all of them
// together get a second.
#include "draft/shared_depth.h"

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
  Cost pass;  // ms, of the rows
};

const Machine kFlat{"flat to 64 rows",
                    [](int w) { return w <= 64 ? 30.0 + 0.02 * w : 30.0 + 2.0 * (w - 64); }};
const Machine kEights{"8 rows a tile", [](int w) { return 20.0 + 4.0 * ((w + 7) / 8); }};
const Machine kLinear{"linear", [](int w) { return 12.0 + 1.5 * w; }};
const Machine kProportional{"no row is worth it", [](int w) { return 10.0 * w; }};
const Machine kMachines[] = {kFlat, kEights, kLinear, kProportional};

// A stream's text is 0, 1, 2, …; its drafts are right at each place with the same probability.
struct Stream {
  double right = 0.8;
  double token_ms = 0.0;  // of drafting
  AutoDepth control = {};
  int32_t position = 0;
};

struct Totals {
  double tokens = 0, ms = 0, drafted = 0;
  double rate() const { return tokens / ms; }
};

class Simulation {
 public:
  Simulation(Machine machine, std::vector<Stream> streams, uint64_t seed)
      : machine_(std::move(machine)), streams_(std::move(streams)), rng_(seed) {}

  std::vector<Stream>& streams() { return streams_; }
  const SharedDepth& depth() const { return depth_; }

  Totals run(int steps) {
    Totals totals;
    for (int step = 0; step < steps; ++step) {
      const auto n = static_cast<int>(streams_.size());
      std::vector<AutoDepth::Prospect> prospects;
      for (Stream& s : streams_) prospects.push_back(s.control.begin_shared(1000));
      const std::vector<int> asked = depth_.ask(prospects, n);
      std::vector<Proposal> proposals(streams_.size());
      std::vector<std::vector<double>> right(streams_.size());
      double draft_ms = 0;
      for (size_t i = 0; i < streams_.size(); ++i) {
        Stream& s = streams_[i];
        EXPECT_LE(asked[i], AutoDepth::kMaxDepth);
        if (asked[i] < 1) continue;
        bool agrees = true;
        for (int k = 0; k < asked[i]; ++k) {
          agrees = agrees && uniform() < s.right;
          proposals[i].tokens.push_back(agrees ? s.position + k : -1);
        }
        const double ms = s.token_ms * asked[i] * noise();
        draft_ms += ms;
        s.control.observe_draft(asked[i], ms);
        right[i] = s.control.follow_shared(proposals[i], asked[i]);
      }
      const std::vector<int> depths = depth_.choose(right, n);
      int rows = n;
      for (const int depth : depths) rows += depth;
      const double pass_ms = machine_.pass(rows) * noise();
      int64_t tokens = 0;
      for (size_t i = 0; i < streams_.size(); ++i) {
        EXPECT_LE(depths[i], static_cast<int>(proposals[i].tokens.size()));
        std::vector<int32_t> committed;
        for (int k = 0; k < depths[i]; ++k) {
          if (proposals[i].tokens[static_cast<size_t>(k)] < 0) break;
          committed.push_back(streams_[i].position++);
        }
        committed.push_back(streams_[i].position++);
        streams_[i].control.observe_tokens(committed);
        tokens += std::ssize(committed);
        totals.drafted += depths[i];
      }
      depth_.observe(n, rows, pass_ms, draft_ms, tokens);
      totals.tokens += static_cast<double>(tokens);
      totals.ms += pass_ms + draft_ms;
    }
    return totals;
  }

 private:
  double uniform() { return static_cast<double>(rng_() >> 11) * 0x1p-53; }
  double noise() { return (rng_() % 50 == 0 ? 3.0 : 1.0) * (0.98 + 0.08 * uniform()); }

  Machine machine_;
  std::vector<Stream> streams_;
  SharedDepth depth_;
  std::mt19937_64 rng_;
};

constexpr double kMeanNoise = 1.02 * (1 + 2.0 / 50);

double expected_rate(const Machine& machine, const std::vector<Stream>& streams,
                     const std::vector<int>& depths) {
  double tokens = 0, draft_ms = 0;
  int rows = 0;
  for (size_t i = 0; i < streams.size(); ++i) {
    double reach = 1;
    tokens += 1;
    for (int k = 0; k < depths[i]; ++k) tokens += reach *= streams[i].right;
    draft_ms += streams[i].token_ms * depths[i];
    rows += 1 + depths[i];
  }
  return tokens / (kMeanNoise * (machine.pass(rows) + draft_ms));
}

// Of all fixed depths, each stream its own: climbed to from each common depth.
double best_rate(const Machine& machine, const std::vector<Stream>& streams) {
  double best = 0;
  for (int start = 0; start <= AutoDepth::kMaxDepth; ++start) {
    std::vector<int> depths(streams.size(), start);
    double here = expected_rate(machine, streams, depths);
    for (bool better = true; better;) {
      better = false;
      for (size_t i = 0; i < depths.size(); ++i) {
        const int had = depths[i];
        for (int d = 0; d <= AutoDepth::kMaxDepth; ++d) {
          std::vector<int> other = depths;
          other[i] = d;
          const double rate = expected_rate(machine, streams, other);
          if (rate > here * (1 + 1e-9)) {
            here = rate;
            depths = other;
          }
        }
        better |= depths[i] != had;
      }
    }
    best = std::max(best, here);
  }
  return best;
}

std::vector<Stream> alike(size_t n, double right, double token_ms = 0) {
  std::vector<Stream> streams;
  for (size_t i = 0; i < n; ++i) streams.push_back({.right = right, .token_ms = token_ms});
  return streams;
}

std::vector<Stream> mixed(size_t n) {
  std::vector<Stream> streams;
  for (size_t i = 0; i < n; ++i) {
    streams.push_back({.right = i % 3 == 0 ? 0.95 : i % 3 == 1 ? 0.6 : 0.0});
  }
  return streams;
}

TEST(SharedDepth, AllTogetherGetWhatTheBestDepthsGive) {
  for (const Machine& machine : kMachines) {
    for (const size_t n : {2u, 4u, 8u}) {
      const std::vector<std::vector<Stream>> cases = {alike(n, 0.9),      alike(n, 0.5),
                                                      alike(n, 0.0),      alike(n, 0.8, 0.2),
                                                      alike(n, 0.8, 3.0), mixed(n)};
      for (size_t c = 0; c < cases.size(); ++c) {
        double early = 0, late = 0;
        for (uint64_t seed = 1; seed <= 2; ++seed) {
          Simulation simulation(machine, cases[c], seed);
          const double best = best_rate(machine, cases[c]);
          early += simulation.run(150).rate() / best / 2;
          late += simulation.run(1000).rate() / best / 2;
        }
        // What a source's drafts cost is paid before it is seen whether they are worth verifying.
        EXPECT_GT(early, cases[c][0].token_ms > 1 ? 0.82 : 0.86)
            << machine.name << ", " << n << " streams, case " << c;
        EXPECT_GT(late, cases[c][0].token_ms > 0 ? 0.93 : 0.96)
            << machine.name << ", " << n << " streams, case " << c;
      }
    }
  }
}

// What was the rule before: together no more rows than one stream alone may have.
TEST(SharedDepth, DraftsMoreThanOneAloneWouldWhereRowsAreCheap) {
  Simulation simulation(kFlat, alike(8, 0.9), 1);
  simulation.run(500);
  const Totals totals = simulation.run(1000);
  EXPECT_GT(totals.drafted / 1000, 30);
  const double before = expected_rate(kFlat, alike(8, 0.9), std::vector<int>(8, 1));
  EXPECT_GT(totals.rate(), 2.0 * before);
}

// Where the first pass with drafts was disturbed, and drafts cost a tenth of a pass: wider passes
// are tried again, though all look too dear to draft for.
TEST(SharedDepth, WidthsThatLookedDearOnceAreTriedAgain) {
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    bool drafted = false;
    const Machine disturbed{"flat, the first pass with drafts disturbed", [&](int w) {
                              const bool first = w > 4 && !drafted;
                              drafted |= first;
                              return first ? 90.0 : kFlat.pass(w);
                            }};
    Simulation simulation(disturbed, alike(4, 0.9, 3.0), seed);
    simulation.run(800);
    EXPECT_GT(simulation.run(1000).rate(), 0.9 * best_rate(kFlat, alike(4, 0.9, 3.0))) << seed;
  }
}

// The rows that are worth having go to the streams whose drafts are right.
TEST(SharedDepth, RowsGoToThoseWhoseDraftsAreRight) {
  const Machine machine{"flat to 16 rows, then steep",
                        [](int w) { return w <= 16 ? 20.0 : 20.0 + 4.0 * (w - 16); }};
  std::vector<Stream> streams = alike(8, 0.0);
  streams[3].right = 0.97;
  Simulation simulation(machine, streams, 2);
  simulation.run(500);
  const Totals totals = simulation.run(1000);
  EXPECT_GT(totals.rate(), 0.93 * best_rate(machine, streams));
  EXPECT_LT(totals.drafted / 1000, 9);
}

TEST(SharedDepth, FollowsStreamsThatComeAndGo) {
  Simulation simulation(kEights, alike(8, 0.8), 3);
  simulation.run(400);
  for (const size_t n : {2u, 6u, 3u}) {
    simulation.streams() = alike(n, 0.8);
    simulation.run(200);
    const double best = best_rate(kEights, alike(n, 0.8));
    EXPECT_GT(simulation.run(1000).rate(), 0.94 * best) << n;
  }
}

// Negative control for the figures above: depths that are not chosen for the total miss them.
TEST(SharedDepth, FixedDepthsMissTheBest) {
  EXPECT_LT(expected_rate(kFlat, alike(8, 0.9), std::vector<int>(8, 1)),
            0.5 * best_rate(kFlat, alike(8, 0.9)));
  EXPECT_LT(expected_rate(kProportional, alike(8, 0.5), std::vector<int>(8, 1)),
            0.8 * best_rate(kProportional, alike(8, 0.5)));
}

TEST(SharedDepth, TakesAnyTime) {
  std::mt19937_64 rng(4);
  SharedDepth depth;
  const double times[] = {0.0,   -1.0, 1e-300, 1e300, 5.0, std::numeric_limits<double>::infinity(),
                          1e308, NAN,  20.0};
  const auto time = [&] { return times[rng() % std::size(times)]; };
  for (int step = 0; step < 2000; ++step) {
    const size_t n = rng() % 70;
    const int plain = static_cast<int>(n + rng() % 3 * 100);
    std::vector<AutoDepth::Prospect> prospects(n);
    std::vector<std::vector<double>> right(n);
    for (size_t i = 0; i < n; ++i) {
      prospects[i] = {
          .known = rng() % 4 != 0, .draft_token_ms = static_cast<double>(rng() % 100), .right = {}};
      prospects[i].right.assign(rng() % 16, 0.7);
      right[i].assign(rng() % 16, 0.5);
    }
    const std::vector<int> asked = depth.ask(prospects, plain);
    const std::vector<int> depths = depth.choose(right, plain);
    int rows = plain;
    for (size_t i = 0; i < n; ++i) {
      ASSERT_GE(asked[i], 0);
      ASSERT_LE(asked[i], std::ssize(prospects[i].right));
      ASSERT_GE(depths[i], 0);
      ASSERT_LE(depths[i], std::ssize(right[i]));
      rows += depths[i];
    }
    ASSERT_LE(rows, std::max(plain, SharedDepth::kMostRows));
    depth.observe(plain, rows, time(), time(), static_cast<int64_t>(rng() % 100));
  }
}

}  // namespace
}  // namespace lockstep::draft
