#include "text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/error.h"

namespace lockstep::text {
namespace {

struct Outcome {
  std::string text, stop;
  bool operator==(const Outcome&) const = default;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& parts) {
  StopStrings filter(stops);
  Outcome outcome;
  for (const std::string& part : parts) outcome.text += filter.push(part);
  outcome.stop = filter.stop();
  if (!filter.stopped()) outcome.text += filter.flush();
  return outcome;
}

// The definition: the first byte at which a stop string is complete, the longest one there.
Outcome expected(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::string best;
    for (const std::string& stop : stops) {
      if (text.substr(0, end).ends_with(stop) && stop.size() > best.size()) best = stop;
    }
    if (!best.empty()) return {text.substr(0, end - best.size()), best};
  }
  return {text, ""};
}

TEST(StopStrings, StopsAcrossTokenBorders) {
  EXPECT_EQ(run({"\nUser:"}, {"Hi.", "\n", "Us", "er", ":", " x"}), (Outcome{"Hi.", "\nUser:"}));
  EXPECT_EQ(run({"\nUser:"}, {"Hi.", "\n", "Us", "age"}), (Outcome{"Hi.\nUsage", ""}));
}

TEST(StopStrings, HoldsBackOnlyWhatMayBecomeAStop) {
  StopStrings filter({"END", "\n\n"});
  EXPECT_EQ(filter.push("abc"), "abc");
  EXPECT_EQ(filter.push("xE"), "x");
  EXPECT_EQ(filter.held_back(), 1u);
  EXPECT_EQ(filter.push("N"), "");
  EXPECT_EQ(filter.push("E"), "EN");
  EXPECT_EQ(filter.push("\n"), "E");
  EXPECT_EQ(filter.push("a"), "\na");
  EXPECT_EQ(filter.held_back(), 0u);
}

TEST(StopStrings, NothingComesAfterAStop) {
  StopStrings filter({"stop"});
  EXPECT_EQ(filter.push("a stop b"), "a ");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.push("c"), "");
  EXPECT_EQ(filter.flush(), "");
  EXPECT_EQ(filter.push("again"), "again");
}

TEST(StopStrings, WithoutStopsTextPasses) {
  StopStrings filter;
  EXPECT_EQ(filter.push("a"), "a");
  EXPECT_FALSE(filter.stopped());
}

TEST(StopStrings, AnEmptyStopIsAnError) {
  EXPECT_THROW(StopStrings({"a", ""}), Error);
}

TEST(StopStrings, EveryCutGivesTheSame) {
  std::mt19937 random(1);
  const std::vector<std::vector<std::string>> sets = {
      {"ab"},         {"aab", "ab"}, {"abc", "b"},         {"aaa"},
      {"abab", "ba"}, {"a", "aa"},   {"cab", "abca", "bb"}};
  for (int round = 0; round < 2000; ++round) {
    const auto& stops = sets[random() % sets.size()];
    std::string text(random() % 12, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 3);
    const Outcome want = expected(stops, text);
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      EXPECT_EQ(run(stops, {text.substr(0, cut), text.substr(cut)}), want)
          << text << " cut at " << cut;
    }
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    EXPECT_EQ(run(stops, bytes), want) << text;
  }
}

TEST(StopStrings, LinearWithALongStopAndManySmallPushes) {
  StopStrings filter({std::string(200000, 'a') + "b"});
  size_t out = 0;
  for (int i = 0; i < 1000000; ++i) out += filter.push("a").size();
  EXPECT_EQ(out + filter.held_back(), 1000000u);
  EXPECT_EQ(filter.held_back(), 200000u);
}

}  // namespace
}  // namespace lockstep::text
