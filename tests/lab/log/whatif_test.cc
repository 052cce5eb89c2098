// Predictions against arithmetic done by hand, and the answers that are refused.
#include "lab/log/whatif.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"

namespace lockstep::lab::log {
namespace {

// A row with v verify steps of n drafted tokens, accepted by position as `counts` says, no step
// without a draft, and ms_per_step each.
std::string row(int task, int v, int n, const std::vector<int>& counts, double ms_per_step,
                bool positions) {
  int accepted = 0;
  for (const int count : counts) accepted += count;
  const int tokens = 1 + accepted + v;
  const double ms = v * ms_per_step;
  const std::string head = fmt::format("slot print_timing: id  0 | task {} | ", task);
  std::string out =
      fmt::format("slot launch_slot_: id  0 | task {} | processing task, is_child = 0\n", task);
  out += head +
         "prompt eval time =     400.00 ms /    40 tokens (   10.00 ms per token,   100.00 tokens "
         "per second)\n";
  out += head + fmt::format(
                    "       eval time = {:10.2f} ms / {:5d} tokens ({:8.2f} ms per token, {:8.2f} "
                    "tokens per second)\n",
                    ms, tokens, ms / (tokens - 1), (tokens - 1) * 1000 / ms);
  out += head +
         fmt::format(
             "draft acceptance = {:0.5f} ({:5d} accepted / {:5d} generated), mean len = {:5.2f}\n",
             accepted / static_cast<double>(v * n), accepted, v * n,
             1 + accepted / static_cast<double>(v));
  if (positions) {
    out += head + "     acc per pos = (";
    for (size_t i = 0; i < counts.size(); ++i)
      out += fmt::format("{}{:.3f}", i ? ", " : "", counts[i] / static_cast<double>(v));
    out += ")\n";
  }
  return out;
}

const std::vector<int64_t> kDepths{1, 2, 3, 4, 6};

TEST(Whatif, ByPosition) {
  // 100 steps; 80, 60, 40 accepted: 0.8, 0.6, 0.4. Drafting 1 ms a token, a pass 10 ms.
  std::string text;
  for (int i = 0; i < 10; ++i) text += row(i, 100, 3, {80, 60, 40}, 13, true);
  const Analysis a = read_log_text(text);
  ASSERT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  const Whatif w = predict(a, kDepths, {10, 1, {}});
  EXPECT_TRUE(w.positions_known);
  EXPECT_EQ(w.log_depth, 3);
  ASSERT_EQ(w.predictions.size(), 6u);
  EXPECT_NEAR(w.predictions[0].tok_s, 100, 1e-9);          // no drafts: 1 token in 10 ms
  EXPECT_NEAR(w.predictions[1].tok_s, 1.8 / 0.011, 1e-9);  // 163.6
  EXPECT_NEAR(w.predictions[2].tok_s, 2.4 / 0.012, 1e-9);  // 200
  EXPECT_NEAR(w.predictions[3].tok_s, 2.8 / 0.013, 1e-9);  // 215.4
  // Beyond: 0.4 x 0.4/0.6 = 0.2667; none to 0.4.
  EXPECT_NEAR(w.predictions[4].tok_s, (2.8 + 0.4 * 2 / 3) / 0.014, 1e-6);
  EXPECT_TRUE(w.predictions[4].beyond);
  EXPECT_NEAR(w.predictions[4].tok_s_low, 2.8 / 0.014, 1e-6);
  EXPECT_NEAR(w.predictions[4].tok_s_high, 3.2 / 0.014, 1e-6);
  EXPECT_NEAR(w.measured_tok_s, 2.8 / 0.013, 1e-6);
  EXPECT_FALSE(w.assumptions.empty());
}

TEST(Whatif, IntervalsFromRows) {
  std::string text;
  for (int i = 0; i < 12; ++i) text += row(i, 100, 2, {60 + 3 * i, 30 + 3 * i}, 12, true);
  const Whatif w = predict(read_log_text(text), kDepths, {10, 1, {}});
  for (const Prediction& p : w.predictions) {
    EXPECT_LE(p.tok_s_low, p.tok_s);
    EXPECT_GE(p.tok_s_high, p.tok_s);
    if (p.depth == 2) {
      // Mean 1 + 0.765 + 0.465; a row's tokens vary by 2 x 3 x sd(0..11) = 0.216, its mean's error
      // 0.062.
      EXPECT_NEAR(p.tok_s, 2.23 / 0.012, 0.01);
      EXPECT_NEAR((p.tok_s_high - p.tok_s_low) * 0.012 / 2, 1.96 * 0.0596, 0.02);
    }
  }
  // The same at every run.
  const Whatif again = predict(read_log_text(text), kDepths, {10, 1, {}});
  EXPECT_EQ(w.predictions[2].tok_s_low, again.predictions[2].tok_s_low);
}

TEST(Whatif, GeometricRatio) {
  EXPECT_NEAR(geometric_ratio(0.5 + 0.25 + 0.125, 3), 0.5, 1e-12);
  EXPECT_NEAR(geometric_ratio(0, 5), 0, 1e-12);
  EXPECT_NEAR(geometric_ratio(5, 5), 1, 1e-12);
}

TEST(Whatif, RefusesWherePositionsDecide) {
  // Mean 1.8 of 3: if it falls geometrically a short draft is best when drafting is dear; if all or
  // nothing, longer drafts pay.
  std::string text;
  for (int i = 0; i < 10; ++i) text += row(i, 100, 3, {80, 60, 40}, 13, false);
  const Analysis a = read_log_text(text);
  ASSERT_EQ(a.lives.at(0).draft_length, 3);
  EXPECT_THROW(predict(a, std::vector<int64_t>{1, 3, 8}, {10, 3, {}}), Error);
  // Where drafting costs nothing the longest is best either way: no refusal.
  const Whatif w = predict(a, std::vector<int64_t>{1, 2, 3}, {10, 0, {}});
  EXPECT_FALSE(w.positions_known);
  EXPECT_EQ(w.best, 3);
}

TEST(Whatif, RefusesWithoutCosts) {
  std::string text;
  for (int i = 0; i < 10; ++i) text += row(i, 100, 3, {80, 60, 40}, 13, true);
  EXPECT_THROW(predict(read_log_text(text), kDepths, {}), Error);
  EXPECT_THROW(predict(read_log_text(text), kDepths, {{}, 20, {}}), Error)
      << "three drafted tokens of 20 ms in 13 ms";
  EXPECT_NEAR(predict(read_log_text(text), kDepths, {{}, 1, {}}).verify_ms, 10, 1e-6);
  EXPECT_THROW(predict(read_log_text("nothing\n"), kDepths, {10, 1, {}}), Error);
}

TEST(Whatif, CostsFromSeveralLengths) {
  // Steps of 10 + 1.5 n ms at n = 2 and n = 6, in two lives.
  std::string text;
  for (const int n : {2, 6}) {
    text += fmt::format("0.00.10{0}.000 I srv    load_model: loading model 'x'\n", n) +
            "0.00.500.000 I srv  llama_server: model loaded\n";
    std::vector<int> counts;
    for (int i = 0; i < n; ++i) counts.push_back(90 - 10 * i);
    for (int i = 0; i < 5; ++i) text += row(i, 100, n, counts, 10 + 1.5 * n, true);
  }
  std::string restarted = text;
  const Whatif w = predict(read_log_text(restarted), kDepths, {});
  EXPECT_NEAR(w.draft_ms, 1.5, 1e-3);
  EXPECT_NEAR(w.verify_ms, 10, 1e-2);
}

}  // namespace
}  // namespace lockstep::lab::log
