// What `prove` says of runs that differ, and of configurations that exercised nothing.
#include <gtest/gtest.h>

#include "prove/prover.h"
#include "prove/trace.h"

namespace lockstep::app {
namespace {

Digest digest(uint8_t value) {
  Digest out{};
  out.fill(value);
  return out;
}

Trace some_trace() {
  Trace trace;
  for (int64_t p = 10; p < 14; ++p) {
    trace.tokens[p] = static_cast<int32_t>(100 + p);
    trace.rows[p] = digest(static_cast<uint8_t>(p));
    trace.states[p] = digest(static_cast<uint8_t>(50 + p));
  }
  return trace;
}

TEST(Compare, EqualRunsAreEqualAndCounted) {
  const Compared compared = compare(some_trace(), some_trace());
  EXPECT_FALSE(compared.first);
  EXPECT_EQ(compared.tokens, 4);
  EXPECT_EQ(compared.rows, 4);
  EXPECT_EQ(compared.states, 4);
}

TEST(Compare, OnlyWhatBothHaveCounts) {
  Trace other = some_trace();
  other.tokens.erase(10);
  other.states.erase(11);
  other.states[99] = digest(1);
  const Compared compared = compare(some_trace(), other);
  EXPECT_FALSE(compared.first);
  EXPECT_EQ(compared.tokens, 3);
  EXPECT_EQ(compared.states, 3);
}

TEST(Compare, ATokenIsNamedWithBothValues) {
  Trace other = some_trace();
  other.tokens[12] = 7;
  const Compared compared = compare(some_trace(), other);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->kind, Difference::Kind::token);
  EXPECT_EQ(compared.first->position, 12);
  EXPECT_EQ(compared.first->plain, "112");
  EXPECT_EQ(compared.first->other, "7");
}

TEST(Compare, TheEarliestPositionCountsAndTheRowBeforeItsToken) {
  Trace other = some_trace();
  other.tokens[12] = 7;
  other.rows[12] = digest(99);
  other.states[14] = digest(99);
  EXPECT_EQ(compare(some_trace(), other).first->kind, Difference::Kind::logits);
  other.states[12] = digest(99);  // written at position 11
  const Compared compared = compare(some_trace(), other);
  EXPECT_EQ(compared.first->kind, Difference::Kind::kv);
  EXPECT_EQ(compared.first->position, 11);
}

TEST(Compare, ARowIsNamedDownToItsElement) {
  Trace plain, other;
  Recorder(plain).on_logits(5, std::vector<float>{1.0f, 2.0f, -0.0f});
  Recorder(other, &plain).on_logits(5, std::vector<float>{1.0f, 2.0f, 0.0f});
  const Compared compared = compare(plain, other);
  ASSERT_TRUE(compared.first);
  EXPECT_NE(compared.first->plain.find("element 2: -0 (80000000)"), std::string::npos)
      << compared.first->plain;
  EXPECT_NE(compared.first->other.find("element 2: 0 (00000000)"), std::string::npos);
}

TEST(Compare, AFaultOnOneSideAloneIsADifference) {
  Trace other = some_trace();
  other.fault = "op x of layer 1 at position 14";
  const Compared compared = compare(some_trace(), other);
  ASSERT_TRUE(compared.first);
  EXPECT_EQ(compared.first->kind, Difference::Kind::fault);
}

Line exercised() {
  Line line;
  line.rows = line.states = line.tokens = 3;
  line.proposed = 5;
  line.accepted = 2;
  line.pages_reused = 1;
  line.widths = {{1, 2}, {8, 1}};
  return line;
}

TEST(Needs, WhatWasDoneIsEnough) {
  Line line = exercised();
  check_needs(line, Needs().accept().reject().reuse().width(8));
  EXPECT_EQ(line.unexercised, "");
  EXPECT_TRUE(line.identical());
}

TEST(Needs, WhatWasNotDoneFailsTheLine) {
  const auto expect = [](Line line, const Needs& needs, std::string_view says) {
    check_needs(line, needs);
    EXPECT_NE(line.unexercised.find(says), std::string::npos) << line.unexercised;
    EXPECT_FALSE(line.identical());
  };
  Line line = exercised();
  line.accepted = 0;
  expect(line, Needs().accept(), "no draft token was accepted");
  line.accepted = line.proposed;
  expect(line, Needs().reject(), "no draft token was rejected");
  line = exercised();
  line.proposed = line.accepted = 0;
  expect(line, Needs().accept(), "accepted");
  expect(line, Needs().reject(), "rejected");
  line = exercised();
  line.pages_reused = 0;
  expect(line, Needs().reuse(), "no page was reused");
  expect(exercised(), Needs().width(7), "no pass of 7 rows");
  line = exercised();
  line.rows = 0;
  expect(line, Needs(), "no logits row compared");
  line = exercised();
  line.states = 0;
  expect(line, Needs(), "no KV state compared");
}

}  // namespace
}  // namespace lockstep::app
