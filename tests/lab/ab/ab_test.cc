#include "lab/ab/ab.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "lab/ab/units.h"
#include "lab/stats/effect.h"
#include "lab/stats/random.h"

namespace lockstep::lab::ab {
namespace {

using runs::Row;
using runs::Runs;

// Blocks of one start and three prompts an arm; B's rates are `gain` per cent above, with noise of
// SD `noise` per cent a start.
std::pair<Runs, Runs> experiment(int blocks, double gain, double noise, uint64_t seed = 1) {
  Runs a, b;
  stats::Random random(seed);
  for (int i = 0; i < blocks; ++i) {
    for (const bool second : {false, true}) {
      const double level = noise / 100 * random.normal() / std::sqrt(2.0);
      for (int p = 0; p < 3; ++p) {
        Row row;
        row.block = std::to_string(i);
        row.arm = second ? "candidate" : "control";
        row.start = fmt::format("{} {}", row.arm, i);
        row.prompt = std::to_string(p);
        row.order = p;
        row.tok_s = (100 + 10 * p) * std::exp(level) * (second ? 1 + gain / 100 : 1);
        row.steps = 66;
        row.generated_tokens = 512;
        row.decode_ms = 511 / row.tok_s * 1000;
        row.prompt_tokens = 40;
        row.cached_tokens = 0;
        row.token_sha256 = "h" + row.prompt;
        (second ? b : a).rows.push_back(row);
      }
    }
  }
  a.metric = b.metric = "after-first";
  return {a, b};
}

Verdict verdict(const Runs& a, const Runs& b, const Options& options = {}) {
  return judge(a, b, options).verdict;
}

TEST(Ab, ThreeOutcomes) {
  const auto [a, b] = experiment(10, 3, 0.5);
  const Result better = judge(a, b, {});
  EXPECT_EQ(better.verdict, Verdict::better);
  EXPECT_NEAR(stats::percent(better.estimate), 3, 0.6);
  EXPECT_TRUE(better.interval.low > 0);
  EXPECT_TRUE(better.same_tokens_per_step);
  EXPECT_NEAR(*better.ms_per_step, -better.estimate, 0.003);
  EXPECT_EQ(verdict(b, a), Verdict::not_better);
  const auto [c, d] = experiment(10, 0, 0.5, 4);
  EXPECT_EQ(verdict(c, d), Verdict::unknown);
  // A gain that is there and not large enough.
  Options options;
  options.min_effect = stats::log_of_percent(5);
  EXPECT_EQ(verdict(a, b, options), Verdict::not_better);
  options.min_effect = stats::log_of_percent(3);
  EXPECT_EQ(verdict(a, b, options), Verdict::unknown);
}

TEST(Ab, FiveBlocksCannotDecide) {
  const auto [a, b] = experiment(5, 20, 0.1);
  const Result result = judge(a, b, {});
  EXPECT_EQ(result.verdict, Verdict::unknown);
  EXPECT_NEAR(result.level, 0.9375, 1e-12);
  ASSERT_FALSE(result.reasons.empty());
  EXPECT_NE(result.reasons[0].text.find("it takes 6 blocks"), std::string::npos);
  const auto [c, d] = experiment(6, 20, 0.1);
  EXPECT_EQ(verdict(c, d), Verdict::better);
}

TEST(Ab, OneServerStartIsNeverAVerdict) {
  // Many rows and blocks, all of one server: nothing is known of the next start.
  auto [a, b] = experiment(20, 10, 0.1);
  for (Row& row : b.rows) row.start = "the same";
  const Result one = judge(a, b, {});
  EXPECT_EQ(one.verdict, Verdict::unknown);
  EXPECT_FALSE(one.has_effect);
  EXPECT_EQ(one.reasons[0].rule, "server starts");
  // Two servers over twenty blocks are two units, not twenty.
  auto [c, d] = experiment(20, 10, 0.1);
  for (Row& row : d.rows) row.start = std::stoi(row.block) < 10 ? "first" : "second";
  const Result two = judge(c, d, {});
  EXPECT_EQ(two.verdict, Verdict::unknown);
  EXPECT_EQ(two.units.size(), 2u);
}

TEST(Ab, InexactComesBeforeStatistics) {
  auto [a, b] = experiment(10, 30, 0.1);
  b.rows[4].token_sha256 = "other";
  const Result result = judge(a, b, {});
  EXPECT_EQ(result.verdict, Verdict::inexact);
  EXPECT_FALSE(result.has_effect);
  EXPECT_TRUE(result.units.empty());
  EXPECT_EQ(result.exactness.different, 1);
  EXPECT_NE(result.reasons[0].text.find("other"), std::string::npos);
  // Where the output may change, hashes say nothing; within one arm repeats must still agree.
  a.exactness = b.exactness = "quality";
  EXPECT_EQ(verdict(a, b), Verdict::better);
  a.exactness = b.exactness = "repeatable";
  EXPECT_EQ(verdict(a, b), Verdict::inexact);
  for (Row& row : b.rows) row.token_sha256 = "b" + row.prompt;
  EXPECT_EQ(verdict(a, b), Verdict::better);
  b.exactness = "bits";
  EXPECT_EQ(verdict(a, b), Verdict::invalid);
}

TEST(Ab, Refusals) {
  const auto rule_of = [](const Runs& a, const Runs& b) {
    const Result result = judge(a, b, {});
    EXPECT_EQ(result.verdict, Verdict::invalid);
    return result.reasons.empty() ? std::string() : result.reasons[0].rule;
  };
  const auto [a, b] = experiment(8, 1, 0.5);
  Runs c = b;
  c.metric = "wall";
  EXPECT_EQ(rule_of(a, c), "V7 metric");
  c = b;
  for (Row& row : c.rows) row.tok_s *= 512.0 / 511;  // counts the first token too
  EXPECT_EQ(rule_of(a, c), "V7 metric");
  c = b;
  c.rows[5].cached_tokens = 39;
  EXPECT_EQ(rule_of(a, c), "V2 fresh");
  c = b;
  c.rows[5].prompt = "another";
  EXPECT_EQ(rule_of(a, c), "V8 whole");
  c = b;
  for (Row& row : c.rows) row.prompt_tokens = 41;
  EXPECT_EQ(rule_of(a, c), "V8 whole");
  c = b;
  for (Row& row : c.rows) row.block += " of another day";
  EXPECT_EQ(rule_of(a, c), "blocks");
  EXPECT_NE(verdict(a, b), Verdict::invalid);  // the same without the fault
}

TEST(Ab, LooksStopEarlyAndForFutility) {
  Options options;
  options.method = Method::group_sequential;
  options.looks = {6, 12, 18, 24};
  const auto [a, b] = experiment(24, 6, 0.9);
  const Result early = judge(a, b, options);
  EXPECT_EQ(early.verdict, Verdict::better);
  EXPECT_LT(early.units.size(), 24u);
  EXPECT_EQ(early.units_given, 24);
  EXPECT_EQ(early.looks.back().n, static_cast<int64_t>(early.units.size()));
  const auto [c, d] = experiment(24, 0, 0.9, 3);
  options.gain = stats::log_of_percent(3);
  const Result futile = judge(c, d, options);
  EXPECT_EQ(futile.verdict, Verdict::unknown);
  EXPECT_EQ(futile.reasons[0].rule, "futility");
  const auto [e, f] = experiment(4, 6, 0.1);
  const Result none = judge(e, f, options);
  EXPECT_EQ(none.verdict, Verdict::unknown);
  EXPECT_FALSE(none.has_effect);
}

TEST(Ab, AlwaysValid) {
  Options options;
  options.method = Method::always_valid;
  const auto [a, b] = experiment(40, 2, 0.9);
  const Result found = judge(a, b, options);
  EXPECT_EQ(found.verdict, Verdict::better);
  EXPECT_LT(found.units.size(), 40u);
  EXPECT_GT(*found.sign_e_value, 1);
  const auto [c, d] = experiment(8, 0, 0.9);
  EXPECT_EQ(verdict(c, d, options), Verdict::unknown);
}

TEST(Ab, NoWorseThan) {
  Options options;
  options.no_worse_margin = stats::log_of_percent(0.5);
  const auto [a, b] = experiment(12, 0, 0.2);
  EXPECT_EQ(*judge(a, b, options).no_worse, stats::Answer::yes);
  const auto [c, d] = experiment(12, -2, 0.2);
  EXPECT_EQ(*judge(c, d, options).no_worse, stats::Answer::no);
  const auto [e, f] = experiment(6, 0, 3);
  EXPECT_EQ(*judge(e, f, options).no_worse, stats::Answer::unknown);
}

TEST(Units, AbbaBlocksAndClasses) {
  // A B B A: two starts an arm in a block; the middle of each prompt's starts, then of the classes.
  Runs a, b;
  const auto add = [](Runs& arm, const char* start, const char* prompt, const char* cls,
                      double rate) {
    Row row;
    row.block = "1", row.start = start, row.prompt = prompt, row.prompt_class = cls;
    row.tok_s = rate;
    arm.rows.push_back(row);
  };
  for (const auto& [start, factor] : {std::pair{"1", 1.0}, {"4", 1.21}}) {
    add(a, start, "p", "code", 100 * factor);
    add(a, start, "q", "code", 100 * factor);
    add(a, start, "r", "prose", 100 * factor);
  }
  for (const char* start : {"2", "3"}) {
    add(b, start, "p", "code", 110);
    add(b, start, "q", "code", 110);
    add(b, start, "r", "prose", 121);
  }
  const Paired paired = pair_blocks(a, b);
  ASSERT_EQ(paired.units.size(), 1u);
  // A's middle is 110 on the log scale: code 0, prose log 1.1; their middle half of that.
  EXPECT_NEAR(paired.units[0].log_ratio, 0.5 * std::log(1.1), 1e-12);
  b.rows.pop_back();
  EXPECT_EQ(pair_blocks(a, b).unequal_prompts, "");  // start 2 still has it
  b.rows.erase(b.rows.begin() + 2);
  EXPECT_EQ(pair_blocks(a, b).unequal_prompts, "1");
}

TEST(Units, ArmsOfOneFile) {
  const auto [a, b] = experiment(3, 1, 0.1);
  Runs both = b;
  both.rows.insert(both.rows.end(), a.rows.begin(), a.rows.end());
  const auto [first, second] = split_arms(both);
  EXPECT_EQ(first.rows[0].arm, "control");
  EXPECT_EQ(second.rows.size(), b.rows.size());
  EXPECT_THROW(split_arms(a), Error);
}

}  // namespace
}  // namespace lockstep::lab::ab
