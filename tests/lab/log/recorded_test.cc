// Figures of recorded logs (tests/data/lab/logs), checked against arithmetic done by hand.
#include <gtest/gtest.h>

#include <filesystem>
#include <span>

#include "lab/log/accounting.h"
#include "lab/log/analysis.h"
#include "lab/log/whatif.h"

namespace lockstep::lab::log {
namespace {

Analysis read(const char* name) {
  const std::filesystem::path path =
      std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/data/lab/logs" / name;
  return read_logs({&path, 1});
}

TEST(Recorded, Draft7) {
  // llama.cpp b11434, drafts of 7 asked for, -lv 4. By hand, from the lines of the file:
  //   row 1: 27 of 236, mean 1.75: 27/36 = 0.750 -> v = 36; 1 + 27 + 36 = 64 tokens, closes.
  //          36 * 7 = 252, 16 less: the last drafts were cut (at most 6+5+4+3+2+1 = 21).
  //          0.472 * 36 = 17, 0.222 * 36 = 8, 0.056 * 36 = 2: 17 + 8 + 2 = 27.
  //   row 2: 41 of 41, mean 7.83: 41/6 = 6.833 -> v = 6; 1 + 41 + 6 = 48, closes.
  //   row 3: 50 of 86, mean 4.85: 50/13 = 3.846 -> v = 13; 1 + 50 + 13 = 64.
  //   row 4: 29 of 64, mean 3.90: 29/10 -> v = 10; 40. Its prompt of 43 was there but for one
  //   token. row 5: one token, no draft line. row 6: 62 of 62, mean 7.89: 62/9 = 6.889 -> v =
  //   9; 72. Of 336 prompt tokens 42 came from the cache.
  const Analysis a = read("draft7-lv4.log");
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  ASSERT_EQ(a.requests.size(), 6u);
  const int64_t steps[] = {36, 6, 13, 10, 0, 9}, accepted[] = {27, 41, 50, 29, 0, 62},
                tokens[] = {64, 48, 64, 40, 1, 72};
  const int64_t prompt[] = {19, 42, 43, 43, 19, 336}, cached[] = {0, 0, 0, 42, 0, 42};
  for (size_t i = 0; i < 6; ++i) {
    const Request& r = a.requests[i];
    EXPECT_EQ(r.generated_tokens, tokens[i]) << i;
    EXPECT_EQ(r.prompt_tokens, prompt[i]) << i;
    EXPECT_EQ(r.cached_tokens, cached[i]) << i;
    EXPECT_EQ(r.cached_from, CachedFrom::log) << i;
    EXPECT_EQ(is_warm(r), cached[i] > 0) << i;
    EXPECT_EQ(r.other_slot, false) << i;
    EXPECT_EQ(r.ordinal, static_cast<int64_t>(i) + 1);
    if (steps[i] == 0) {
      EXPECT_FALSE(r.draft);
      continue;
    }
    ASSERT_TRUE(r.draft) << i;
    EXPECT_EQ(r.draft->line, DraftLine::gen3);
    EXPECT_EQ(r.draft->steps, (Range{steps[i], steps[i]})) << i;
    EXPECT_EQ(r.draft->counted_steps, steps[i]) << "the statistics lines count the same, row " << i;
    EXPECT_EQ(r.draft->accepted, accepted[i]);
    EXPECT_EQ(decode_steps(r), steps[i]);
    // Row 1: 63 and 64 tokens in 422.36 s are both 0.15 tok/s.
    EXPECT_EQ(r.denominator, i == 0 ? Denominator::either : Denominator::steps) << i;
    EXPECT_EQ(r.draft->per_position.size(), 7u);
    EXPECT_TRUE(r.draft_ms) << i;
  }
  // Similarity chose the slot of row 4; row 6's came from the cache in RAM, its slot by LRU.
  EXPECT_TRUE(a.requests[3].similarity);
  EXPECT_FALSE(a.requests[5].similarity);
  ASSERT_EQ(a.lives.size(), 1u);
  const Life& life = a.lives[0];
  EXPECT_TRUE(life.started_here);
  EXPECT_EQ(life.n_slots, 1);
  ASSERT_EQ(life.speculation.size(), 1u);
  EXPECT_EQ(life.speculation[0].type, "draft-simple");
  EXPECT_EQ(life.speculation[0].n_max, 7);
  EXPECT_EQ(life.draft_length, 7);
  EXPECT_TRUE(life.draft_length_proved) << life.draft_length_how;
  // 27+41+50+29+62 = 209 accepted of 236+41+86+64+62 = 489, in 36+6+13+10+9 = 74 verify steps.
  EXPECT_EQ(a.totals.accepted, 209);
  EXPECT_EQ(a.totals.drafted, 489);
  EXPECT_EQ(a.totals.verify_low, 74);
  EXPECT_NEAR(*a.totals.mean_accepted_len(), 1 + 209.0 / 74, 1e-12);
  EXPECT_EQ(a.totals.warm, 2);
  EXPECT_EQ(a.totals.cold, 4);
  // First place: 17 + 6 + 12 + 9 + 9 = 53 of 74.
  EXPECT_NEAR(a.totals.per_position().at(0), 53.0 / 74, 5e-4);
  // The log has what a prediction needs.
  const int64_t depths[] = {1, 7, 10};
  const Whatif w = predict(a, depths, {});
  EXPECT_TRUE(w.positions_known);
  EXPECT_EQ(w.log_depth, 7);
  EXPECT_EQ(w.verify_steps, 74);
}

TEST(Recorded, Draft5Restart) {
  // Two servers in one file, default verbosity. By hand:
  //   first: 21/119 mean 1.84: 21/25 -> v = 25; 5 * 25 = 125, 6 cut; 1 + 21 + 25 = 47 of 48 tokens:
  //   one
  //          step without a draft. 36/54, 4.27: v = 11, one cut; 48. 26/26, 5.33: v = 6, 4 cut; 33.
  //   second: 21/73, 1.84: v = 25, 2 cut of 75; 33/41, 3.36: v = 14; 15/45, 2.00: v = 15, none cut.
  const Analysis a = read("draft5-restart.log");
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  ASSERT_EQ(a.lives.size(), 2u);
  EXPECT_EQ(a.lives[0].draft_length, 5);
  EXPECT_EQ(a.lives[1].draft_length, 3);
  EXPECT_TRUE(a.lives[0].draft_length_proved && a.lives[1].draft_length_proved);
  ASSERT_EQ(a.requests.size(), 6u);
  const int64_t verify[] = {25, 11, 6, 25, 14, 15}, steps[] = {26, 11, 6, 26, 14, 16};
  for (size_t i = 0; i < 6; ++i) {
    const Request& r = a.requests[i];
    EXPECT_EQ(r.life, i < 3 ? 0 : 1);
    EXPECT_EQ(r.ordinal, static_cast<int64_t>(i % 3) + 1);
    EXPECT_EQ(r.draft->steps, (Range{verify[i], verify[i]})) << i;
    EXPECT_EQ(decode_steps(r), steps[i]) << i;
    // No line says it at this verbosity; the context's end does: 66 - 47 - 19 = 0 in row 1.
    if (i < 5) {
      EXPECT_EQ(r.cached_tokens, 0) << i;
    } else {
      // 18 tokens more at the end: more than a draft of 3 that was cut off, so that some were taken
      // over.
      EXPECT_FALSE(r.cached_tokens);
      EXPECT_EQ(is_warm(r), true);
    }
  }
  EXPECT_EQ(a.totals.position_requests, 0);
}

TEST(Recorded, FourSlots) {
  // One request alone, then four at once; no drafts, default verbosity. What was taken over follows
  // from the context's end: row 5 ended with 20 + 39 positions, evaluated 1, so that 19 came from
  // row 1.
  const Analysis a = read("plain-np4.log");
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  ASSERT_EQ(a.requests.size(), 5u);
  EXPECT_EQ(a.lives.at(0).n_slots, 4);
  EXPECT_EQ(a.requests[0].other_slot, false);
  const int64_t slots[] = {3, 1, 2, 0, 3}, cached[] = {0, 0, 0, 0, 19};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(a.requests[i].slot, slots[i]) << i;
    EXPECT_EQ(a.requests[i].cached_tokens, cached[i]) << i;
    EXPECT_EQ(a.requests[i].cached_from, CachedFrom::end) << i;
    EXPECT_FALSE(a.requests[i].draft) << i;
    if (i > 0) {
      EXPECT_EQ(a.requests[i].other_slot, true) << i;
    }
  }
  EXPECT_EQ(a.totals.beside_other_slots, 4);
}

TEST(Recorded, Ngram) {
  // 55 of 174 in 6 steps, mean 10.17; 96 tokens: 96 - 1 - 55 = 40 steps, 34 of them without a
  // draft.
  const Analysis a = read("ngram-lv4.log");
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  ASSERT_EQ(a.requests.size(), 3u);
  EXPECT_EQ(a.requests[0].draft->steps, (Range{6, 6}));
  EXPECT_EQ(decode_steps(a.requests[0]), 40);
  EXPECT_FALSE(a.requests[1].draft) << "no draft line is no draft";
  EXPECT_EQ(decode_steps(a.requests[1]), 95);
  EXPECT_EQ(a.lives.at(0).speculation.at(0).type, "ngram-simple");
  EXPECT_EQ(a.lives[0].speculation[0].n_max, 48);
  EXPECT_FALSE(a.lives[0].draft_length);
}

TEST(Recorded, NgramMod) {
  // The pool knows the text after the first row. 21 of 71, mean 11.50: 21/10.5 -> v = 2, so that of
  // the 96 - 1 - 21 = 74 steps 72 had no draft. 92 of 142, mean 31.67: 92/30.67 -> v = 3, and 1 +
  // 92
  // + 3 = 96 closes. The third row drafted nothing.
  const Analysis a = read("ngram-mod.log");
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  ASSERT_EQ(a.requests.size(), 3u);
  const int64_t verify[] = {2, 3}, steps[] = {74, 3, 31};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(decode_steps(a.requests[i]), steps[i]) << i;
    EXPECT_EQ(a.requests[i].draft.has_value(), i < 2) << i;
    EXPECT_EQ(a.requests[i].denominator, Denominator::steps) << i;
    if (i < 2) {
      EXPECT_EQ(a.requests[i].draft->line, DraftLine::gen3) << i;
      EXPECT_EQ(a.requests[i].draft->steps, (Range{verify[i], verify[i]})) << i;
    }
  }
  // 1 of its 129 prompt tokens was evaluated in row 2; no line of this verbosity says how many.
  EXPECT_EQ(is_warm(a.requests[0]), false);
  EXPECT_EQ(is_warm(a.requests[1]), true);
  EXPECT_EQ(is_warm(a.requests[2]), false);
  EXPECT_EQ(a.requests[1].evaluated_tokens, 1);
  EXPECT_DOUBLE_EQ(*a.requests[1].similarity, 1);
  EXPECT_FALSE(a.lives.at(0).draft_length_proved);
}

TEST(Recorded, PlainCold) {
  // cache_prompt off, no cache in RAM: 118 - 99 - 19 = 142 - 99 - 43 = 50 - 31 - 19 = 0 taken over,
  // though the third prompt is the first one's.
  const Analysis a = read("plain-cold.log");
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  ASSERT_EQ(a.requests.size(), 3u);
  const int64_t tokens[] = {100, 100, 32}, ends[] = {118, 142, 50};
  for (size_t i = 0; i < 3; ++i) {
    const Request& r = a.requests[i];
    EXPECT_EQ(r.generated_tokens, tokens[i]) << i;
    EXPECT_EQ(r.end_tokens, ends[i]) << i;
    EXPECT_EQ(r.cached_tokens, 0) << i;
    EXPECT_EQ(r.cached_from, CachedFrom::end) << i;
    EXPECT_EQ(is_warm(r), false) << i;
    EXPECT_EQ(r.denominator, Denominator::steps) << i;
    EXPECT_FALSE(r.draft) << i;
  }
  EXPECT_EQ(a.totals.cold, 3);
}

TEST(Recorded, JsonLines) {
  // --log-jsonl -lv 4, drafts of 4. 11 of 44, mean 1.92: 11/12 -> v = 12; 1 + 11 + 12 = 24; 48 - 44
  // = 4 cut; 7 + 3 + 1 accepted by position. 17 of 23, mean 3.83: 17/6 -> v = 6; 24; one cut; 6 + 5
  // + 4 + 2. The statistics lines: 12 and 18 - 12 steps, 882.169 and 1394.843 - 882.169 ms.
  const Analysis a = read("jsonl.log");
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  EXPECT_EQ(a.files[0].garbled, 0);
  ASSERT_EQ(a.requests.size(), 2u);
  const int64_t verify[] = {12, 6}, accepted[] = {11, 17}, drafted[] = {44, 23},
                prompt[] = {19, 43};
  const double draft_ms[] = {882.169, 512.674};
  for (size_t i = 0; i < 2; ++i) {
    const Request& r = a.requests[i];
    ASSERT_TRUE(r.draft) << i;
    EXPECT_EQ(r.draft->line, DraftLine::gen3);
    EXPECT_EQ(r.draft->steps, (Range{verify[i], verify[i]})) << i;
    EXPECT_EQ(r.draft->counted_steps, verify[i]) << i;
    EXPECT_EQ(r.draft->accepted, accepted[i]) << i;
    EXPECT_EQ(r.draft->drafted, drafted[i]) << i;
    EXPECT_EQ(r.draft->per_position.size(), 4u) << i;
    EXPECT_NEAR(*r.draft_ms, draft_ms[i], 1e-9) << i;
    EXPECT_EQ(r.prompt_tokens, prompt[i]) << i;
    EXPECT_EQ(r.cached_tokens, 0) << i;
    EXPECT_EQ(r.cached_from, CachedFrom::log) << i;
  }
  EXPECT_EQ(a.lives.at(0).draft_length, 4);
  EXPECT_FALSE(a.lives[0].draft_length_proved) << "two rows are too few";
  EXPECT_EQ(a.lives[0].speculation.at(0).n_max, 4);
}

// What every log of ik_llama.cpp 8337e4cd3 has. `prompt`, `cached`, `tokens` and `ends` by row.
struct IkRow {
  int64_t slot, task, prompt, cached, tokens, end;
};
void check_ik(const Analysis& a, std::span<const IkRow> rows) {
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  EXPECT_EQ(a.files[0].garbled, 0);
  EXPECT_EQ(a.without_timing, 0);
  ASSERT_EQ(a.lives.size(), 1u);
  EXPECT_EQ(a.lives[0].engine, "ik_llama.cpp");
  EXPECT_TRUE(a.lives[0].started_here);
  ASSERT_EQ(a.requests.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const Request& r = a.requests[i];
    EXPECT_EQ(r.slot, rows[i].slot) << i;
    EXPECT_EQ(r.task, rows[i].task) << i;
    EXPECT_EQ(r.ordinal, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(r.prompt_tokens, rows[i].prompt) << i;
    EXPECT_EQ(r.cached_tokens, rows[i].cached) << i;
    EXPECT_EQ(r.cached_from, CachedFrom::log) << i;
    EXPECT_EQ(is_warm(r), rows[i].cached > 0) << i;
    EXPECT_EQ(r.evaluated_tokens, rows[i].prompt - rows[i].cached) << i;
    EXPECT_EQ(r.generated_tokens, rows[i].tokens) << i;
    EXPECT_EQ(r.end_tokens, rows[i].end) << i;
    EXPECT_EQ(r.truncated, false) << i;
    EXPECT_EQ(r.denominator, Denominator::all) << i;
  }
}

TEST(Recorded, IkDraft) {
  // Drafts of 6. Its statistics lines count 21, 32 - 21 = 11 and 40 - 32 = 8 verify steps, and 126,
  // 66 and 48 drafted tokens, all of them multiples of 6. What was left to generate cut 1 + 3 + 4 =
  // 8 of the first row's, 2 + 3 + 4 + 5 = 14 of the second's: 118 and 52, as its draft lines say.
  //   row 1: 1 + 26 + 21 = 48 closes; rows 2 and 3: 1 + 35 + 11 = 47 of 48 and 1 + 22 + 8 = 31 of
  //   32, one step without a draft each: a single token was left.
  // The third prompt is the second: all but one of its 43 tokens were there.
  const Analysis a = read("ik-draft.log");
  constexpr IkRow kRows[] = {
      {0, 1, 19, 0, 48, 66}, {0, 24, 43, 0, 48, 90}, {0, 38, 43, 42, 32, 74}};
  check_ik(a, kRows);
  const int64_t verify[] = {21, 11, 8}, steps[] = {21, 12, 9}, accepted[] = {26, 35, 22},
                drafted[] = {118, 52, 48};
  const double draft_ms[] = {2442.282, 3826.044 - 2442.282, 4503.479 - 3826.044};
  for (size_t i = 0; i < 3; ++i) {
    const Request& r = a.requests[i];
    ASSERT_TRUE(r.draft) << i;
    EXPECT_EQ(r.draft->line, DraftLine::gen1) << i;
    EXPECT_EQ(r.draft->accepted, accepted[i]) << i;
    EXPECT_EQ(r.draft->drafted, drafted[i]) << i;
    EXPECT_EQ(r.draft->counted_steps, verify[i]) << i;
    EXPECT_EQ(r.draft->steps, (Range{verify[i], verify[i]})) << i;
    EXPECT_EQ(decode_steps(r), steps[i]) << i;
    EXPECT_NEAR(*r.draft_ms, draft_ms[i], 1e-9) << i;
    EXPECT_EQ(r.other_slot, false) << i;
  }
  // No other length explains all three: 118 in 21 steps needs 6, of 7 each too many would be
  // missing.
  EXPECT_EQ(a.lives[0].draft_length, 6);
  EXPECT_TRUE(a.lives[0].draft_length_proved) << a.lives[0].draft_length_how;
  EXPECT_EQ(a.lives[0].n_slots, 1);
  EXPECT_EQ(a.totals.verify_low, 40);
  EXPECT_NEAR(*a.totals.mean_accepted_len(), 1 + 83.0 / 40, 1e-12);
}

TEST(Recorded, IkTwoSlots) {
  // One request alone, two at once, one alone; the first slot's last prompt is the first one's, and
  // what was in between made it cold.
  const Analysis a = read("ik-plain-np2.log");
  constexpr IkRow kRows[] = {{0, 1, 19, 0, 32, 50},
                             {0, 35, 43, 0, 32, 74},
                             {1, 34, 42, 0, 32, 73},
                             {0, 68, 19, 0, 16, 34}};
  check_ik(a, kRows);
  EXPECT_EQ(a.lives[0].n_slots, 2);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(a.requests[i].other_slot, i == 1 || i == 2) << i;
    EXPECT_FALSE(a.requests[i].draft) << i;
  }
}

TEST(Recorded, IkJson) {
  // --log-format json: the timings stand between the objects as text, after a release or before it.
  const Analysis a = read("ik-json.log");
  constexpr IkRow kRows[] = {{0, 1, 19, 0, 24, 42}, {0, 26, 43, 0, 24, 66}, {0, 51, 19, 0, 16, 34}};
  check_ik(a, kRows);
  EXPECT_EQ(a.lives[0].n_slots, 1);
}

TEST(Recorded, IkQueued) {
  // Six at once for one slot: some timings come after the launch of the next request, and its p0.
  const Analysis a = read("ik-queued.log");
  constexpr IkRow kRows[] = {{0, 1, 19, 0, 24, 42},  {0, 2, 43, 0, 24, 66}, {0, 3, 42, 0, 24, 65},
                             {0, 29, 43, 0, 16, 58}, {0, 54, 1, 0, 20, 20}, {0, 79, 19, 0, 12, 30}};
  check_ik(a, kRows);
  for (const Request& r : a.requests) EXPECT_EQ(r.other_slot, false) << r.task;
}

}  // namespace
}  // namespace lockstep::lab::log
