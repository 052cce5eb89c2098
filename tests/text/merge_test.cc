#include "text/merge.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>
#include <vector>

namespace lockstep::text {
namespace {

using Priorities = std::map<std::string, uint32_t>;  // by the text of the merged pair

std::vector<std::string> merged(const std::string& text, const Priorities& priorities) {
  std::vector<Symbol> symbols;
  for (uint32_t i = 0; i < text.size(); ++i) symbols.push_back({i, i + 1, 0});
  std::vector<uint64_t> heap;
  merge_pairs(symbols, heap, [&](const Symbol& left, const Symbol& right) -> PairMerge {
    const auto it = priorities.find(text.substr(left.begin, right.end - left.begin));
    return it == priorities.end() ? PairMerge{} : PairMerge{it->second, 0};
  });
  std::vector<std::string> pieces;
  if (symbols.empty()) return pieces;
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    const Symbol& s = symbols[static_cast<size_t>(i)];
    pieces.push_back(text.substr(s.begin, s.end - s.begin));
  }
  return pieces;
}

// The definition, in quadratic time.
std::vector<std::string> by_definition(const std::string& text, const Priorities& priorities) {
  std::vector<std::string> pieces;
  for (const char c : text) pieces.emplace_back(1, c);
  for (;;) {
    size_t best = pieces.size();
    uint32_t best_priority = PairMerge::kNever;
    for (size_t i = 0; i + 1 < pieces.size(); ++i) {
      const auto it = priorities.find(pieces[i] + pieces[i + 1]);
      if (it != priorities.end() && it->second < best_priority) {
        best = i;
        best_priority = it->second;
      }
    }
    if (best == pieces.size()) return pieces;
    pieces[best] += pieces[best + 1];
    pieces.erase(pieces.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(MergePairs, LowestPriorityFirstThenLeftmost) {
  EXPECT_EQ(merged("", {}), std::vector<std::string>());
  EXPECT_EQ(merged("abc", {{"ab", 2}, {"bc", 1}}), (std::vector<std::string>{"a", "bc"}));
  EXPECT_EQ(merged("aaaaa", {{"aa", 0}}), (std::vector<std::string>{"aa", "aa", "a"}));
  EXPECT_EQ(merged("aaaa", {{"aa", 0}, {"aaaa", 0}}), (std::vector<std::string>{"aaaa"}));
}

TEST(MergePairs, EqualToTheDefinitionOnRandomTexts) {
  std::mt19937 random(3);
  for (int round = 0; round < 5000; ++round) {
    Priorities priorities;
    for (size_t i = 0; i < 2 + random() % 20; ++i) {
      std::string pair(2 + random() % 4, ' ');
      for (char& c : pair) c = static_cast<char>('a' + random() % 2);
      priorities.emplace(pair, random() % 6);  // with ties
    }
    std::string text(random() % 30, ' ');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    EXPECT_EQ(merged(text, priorities), by_definition(text, priorities)) << text;
  }
}

}  // namespace
}  // namespace lockstep::text
