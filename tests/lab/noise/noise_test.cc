#include "lab/noise/noise.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "lab/stats/random.h"

namespace lockstep::lab::noise {
namespace {

TableReport gemma() {
  const std::string text =
      runs::read_file(LOCKSTEP_SOURCE_DIR "/tests/data/lab/gemma4-b70-runs.csv");
  return study_table(read_run_table(runs::parse_csv(text, "runs.csv"), "runs.csv"),
                     {98.617, 101.428, 101.482, 101.602, 103.299}, {});
}

TEST(GemmaTable, NamedControls) {
  const TableReport report = gemma();
  EXPECT_EQ(report.table.total, 221);
  EXPECT_EQ(report.table.rows.size(), 216u);
  EXPECT_EQ(report.table.without_rate, 5);
  // 17 rows with a mean of 101.22, an SD of 0.79, from 99.69 to 102.31, and one more at 98.63,
  // which Tukey's fences flag.
  std::vector<double> kept;
  int flagged = 0;
  for (size_t i = 0; i < report.named.size(); ++i) {
    const double rate = report.table.rows[report.named[i]].tok_s;
    if (report.named_outliers[i] == stats::Outlier::none) {
      kept.push_back(rate);
    } else {
      ++flagged;
      EXPECT_NEAR(rate, 98.628, 1e-9);
    }
  }
  EXPECT_EQ(flagged, 1);
  ASSERT_EQ(kept.size(), 17u);
  EXPECT_NEAR(stats::mean(kept), 101.22, 0.005);
  EXPECT_NEAR(stats::standard_deviation(kept), 0.79, 0.005);
  EXPECT_NEAR(*std::min_element(kept.begin(), kept.end()), 99.69, 1e-9);
  EXPECT_NEAR(*std::max_element(kept.begin(), kept.end()), 102.313671, 1e-9);
}

TEST(GemmaTable, RecipesByHand) {
  const TableReport report = gemma();
  EXPECT_EQ(report.placed, 116);
  // The recipe that was promoted in batch 16: its re-runs, read off the table by eye.
  const std::vector<double> expected = {102.058, 101.602, 101.61,  101.104, 101.571, 101.335,
                                        101.401, 99.69,   101.218, 99.806,  101.498};
  const Group& largest = report.groups[0];
  ASSERT_EQ(largest.rates.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(largest.rates[i], expected[i], 0.0005);
  EXPECT_EQ(largest.recipe.substr(0, 12), "immediatecl1");
  EXPECT_EQ(largest.named_controls, 8);
  EXPECT_TRUE(largest.inferred);
  // The record's own re-runs, at p_min 0.136 and 8 threads: batch 8 is a later day than its number.
  const auto record = std::find_if(report.groups.begin(), report.groups.end(), [](const Group& g) {
    return g.recipe ==
           "selectedsoftmax-weightedsum, batch 1024, draft q4_0, n_max 7, p_min 0.136, "
           "threads 8, ubatch 1024";
  });
  ASSERT_NE(record, report.groups.end());
  const std::vector<double> reruns = {103.2992,   102.318668, 102.194763,
                                      100.417137, 102.313671, 102.136};
  ASSERT_EQ(record->rates.size(), reruns.size());
  for (size_t i = 0; i < reruns.size(); ++i) EXPECT_NEAR(record->rates[i], reruns[i], 1e-6);
  // A row that says control and names a change of its own stays out.
  int out_of_it = 0;
  for (const size_t i : report.named) {
    if (report.placements[i].placed) continue;
    ++out_of_it;
    EXPECT_EQ(report.placements[i].why_not, "sampled-map cleanup only");
  }
  EXPECT_EQ(out_of_it, 1);
}

TEST(GemmaTable, LadderCannotBeToldFromNoise) {
  const TableReport report = gemma();
  EXPECT_NEAR(report.pooled.sd, 0.924, 0.0005);
  EXPECT_EQ(report.pooled.df, 35);
  EXPECT_NEAR(report.limit.t, 2.0301, 1e-4);
  EXPECT_NEAR(report.limit.difference, 2.0301 * report.pooled.sd * std::sqrt(2.0), 1e-3);
  ASSERT_EQ(report.promoted.values.size(), 3u);
  EXPECT_NEAR(report.promoted.values[0], 101.602, 0.0005);
  EXPECT_NEAR(report.promoted.values[1], 102.031, 0.0005);
  EXPECT_NEAR(report.promoted.values[2], 103.299, 0.0005);
  for (const Step& step : report.promoted.steps) {
    EXPECT_FALSE(step.told);
    EXPECT_GT(*step.rows_between, 0);
  }
  // Luck alone over the rows between two records is more than the first step.
  EXPECT_GT(*report.promoted.steps[0].by_luck, report.promoted.steps[0].difference);
  ASSERT_EQ(report.reported.steps.size(), 4u);
  EXPECT_TRUE(report.reported.steps[0].told);  // 98.617 -> 101.428
  for (size_t i = 1; i < 4; ++i) EXPECT_FALSE(report.reported.steps[i].told);
  // A control of the verdict: a step that is large is told.
  EXPECT_TRUE(reported_ladder({100, 110}, report.limit).steps[0].told);
}

Table table_of(const std::string& rows) {
  return read_run_table(runs::parse_csv("batch,run,gpu,change,fresh_tok_s,verdict\n" + rows, "t"),
                        "t");
}

TEST(Grouping, TheRule) {
  const Table table = table_of(
      "1,a-gpu0-control-20260101T000000Z,0,control,100,control\n"  // nothing promoted yet
      "1,gemma4-q8-gpu0-immediatecl1-full-20260101T010000Z,0,THREADS=8,101,promoted\n"
      "2,gemma4-q8-gpu1-th16-screen-20260101T020000Z,1,THREADS=16,102,valid_loss\n"   // inferred
      "2,gemma4-q8-gpu2-fancy-screen-20260101T020000Z,2,a new idea,103,valid_loss\n"  // left over
      "3,gemma4-q8-gpu0-immediatecl1-control-20251231T000000Z,0,\"control, X=1\",99,control\n");
  const std::vector<Placement> placed = place_rows(table);
  EXPECT_TRUE(placed[0].named_control);
  EXPECT_FALSE(placed[0].placed);
  EXPECT_NE(placed[0].why_not.find("nothing promoted"), std::string::npos);
  EXPECT_TRUE(placed[1].placed);
  EXPECT_FALSE(placed[1].inferred);
  EXPECT_TRUE(placed[2].placed);
  EXPECT_TRUE(placed[2].inferred);
  EXPECT_EQ(placed[2].settings.at("threads"), "16");
  EXPECT_EQ(placed[3].why_not, "fancy a new idea");
  // An assignment that nobody knows makes a recipe of its own.
  EXPECT_EQ(placed[4].settings.at("x"), "1");
  EXPECT_EQ(in_time(table)[0], 4u);
  EXPECT_THROW(table_of("1,r,0,c,,x\n"), Error);
}

runs::Runs same_thing(int blocks, double sd, double slow_first, double drift, uint64_t seed,
                      bool one_arm = false) {
  runs::Runs out;
  stats::Random random(seed);
  for (int i = 0; i < 2 * blocks; ++i) {
    const double level =
        sd / 100 / std::sqrt(2.0) * random.normal() - drift / 100 * i / (2 * blocks);
    for (int r = 0; r < 4; ++r) {
      runs::Row row;
      row.block = std::to_string(i / 2);
      row.arm = one_arm || i % 2 == 0 ? "a" : "a again";
      row.start = "s" + std::to_string(i);
      row.prompt = std::to_string((i + r) % 4);  // every prompt is first somewhere
      row.order = r;
      row.tok_s =
          100 * std::exp(level + 0.0005 * random.normal() - (r == 0 ? slow_first / 100 : 0));
      out.rows.push_back(row);
    }
  }
  return out;
}

TEST(Noise, FloorOfRuns) {
  const runs::Runs quiet = same_thing(40, 0.9, 0, 0, 1);
  const Report report = study_runs(std::span(&quiet, 1), {});
  EXPECT_EQ(report.log_ratios.size(), 40u);
  EXPECT_NEAR(100 * report.sd, 0.9, 0.2);
  EXPECT_TRUE(report.sd_interval.contains(report.sd));
  EXPECT_TRUE(report.centre.interval.contains(0));
  EXPECT_FALSE(report.warm_up.warm_up.found);
  EXPECT_TRUE(report.controls.steps.empty());
  ASSERT_EQ(report.provable.size(), 9u);
  EXPECT_EQ(report.provable[0].blocks, 6);
  EXPECT_EQ(report.provable[8].blocks, 50);
  EXPECT_GT(report.provable[0].signed_rank, report.provable[8].signed_rank);
  EXPECT_GT(report.provable[0].at_upper_sd, report.provable[0].signed_rank);
  // One arm alone: its starts are paired in order.
  const runs::Runs alone = same_thing(40, 0.9, 0, 0, 1, true);
  EXPECT_NEAR(study_runs(std::span(&alone, 1), {}).sd, report.sd, 1e-12);
}

TEST(Noise, PlantedFaults) {
  const runs::Runs warm = same_thing(12, 0.5, 2, 0, 2);
  EXPECT_TRUE(study_runs(std::span(&warm, 1), {}).warm_up.warm_up.found);
  EXPECT_NEAR(study_runs(std::span(&warm, 1), {}).warm_up.warm_up.effect, -0.02, 0.004);
  const runs::Runs drifting = same_thing(12, 0.5, 0, 5, 3);
  const Report drift = study_runs(std::span(&drifting, 1), {});
  ASSERT_TRUE(drift.controls.drift);
  EXPECT_LT(drift.controls.drift->p, 0.01);
  EXPECT_LT(drift.controls.drift->slope, 0);
  // First rows with a prompt of their own prove nothing.
  runs::Runs confounded = warm;
  for (runs::Row& row : confounded.rows) row.prompt = std::to_string(row.order);
  EXPECT_FALSE(study_runs(std::span(&confounded, 1), {}).warm_up.why_not.empty());
}

TEST(Noise, Refusals) {
  runs::Runs one = same_thing(1, 0.5, 0, 0, 1);
  EXPECT_THROW(study_runs(std::span(&one, 1), {}), Error);
  runs::Runs three = same_thing(3, 0.5, 0, 0, 1);
  three.rows[0].arm = "third";
  EXPECT_THROW(study_runs(std::span(&three, 1), {}), Error);
  std::vector<runs::Runs> mixed = {same_thing(3, 0.5, 0, 0, 1), same_thing(3, 0.5, 0, 0, 2)};
  // Two sessions with the same names of blocks are six blocks.
  EXPECT_EQ(study_runs(mixed, {}).log_ratios.size(), 6u);
  mixed[1].metric = "wall";
  EXPECT_THROW(study_runs(mixed, {}), Error);
}

}  // namespace
}  // namespace lockstep::lab::noise
