// ngram and suffix against searches that look at everything.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "draft/continuation.h"
#include "draft/ngram.h"
#include "draft/suffix.h"

namespace lockstep::draft {
namespace {

using Tokens = std::vector<int32_t>;

bool same(const Tokens& tokens, int64_t end_a, int64_t end_b, int64_t n) {
  if (end_a - n + 1 < 0 || end_b - n + 1 < 0) return false;
  for (int64_t i = 0; i < n; ++i) {
    if (tokens[static_cast<size_t>(end_a - i)] != tokens[static_cast<size_t>(end_b - i)])
      return false;
  }
  return true;
}

// What follows, written out by hand: copy, and go on copying what was copied.
Tokens follow(Tokens tokens, int64_t from, int n) {
  const auto size = tokens.size();
  for (int i = 0; i < n; ++i) tokens.push_back(tokens[static_cast<size_t>(from + i)]);
  return {tokens.begin() + static_cast<ptrdiff_t>(size), tokens.end()};
}

Tokens brute_ngram(const Tokens& tokens, NgramOptions options, int n_max) {
  const auto last = static_cast<int64_t>(tokens.size()) - 1;
  for (int n = options.longest; n >= options.shortest; --n) {
    for (int64_t end = last - 1; end >= n - 1; --end) {
      if (same(tokens, end, last, n)) return follow(tokens, end + 1, n_max);
    }
  }
  return {};
}

// Text-like: random tokens with copied pieces.
Tokens random_text(std::mt19937& rng, size_t length, int32_t alphabet) {
  Tokens tokens;
  while (tokens.size() < length) {
    if (tokens.size() > 4 && rng() % 3 == 0) {
      const size_t from = rng() % tokens.size();
      const size_t n = std::min<size_t>(1 + rng() % 12, tokens.size() - from);
      for (size_t i = 0; i < n; ++i) tokens.push_back(tokens[from + i]);
    } else {
      tokens.push_back(static_cast<int32_t>(rng() % static_cast<uint32_t>(alphabet)));
    }
  }
  tokens.resize(length);
  return tokens;
}

// Grows, sometimes by several tokens, and is sometimes cut.
template <typename SourceType, typename Check>
void grow_and_cut(std::mt19937& rng, SourceType& source, int steps, int32_t alphabet, Check check) {
  Tokens tokens;
  for (int step = 0; step < steps; ++step) {
    if (!tokens.empty() && rng() % 12 == 0) {
      tokens.resize(rng() % tokens.size());
      source.truncate(static_cast<int64_t>(tokens.size()));
    }
    const Tokens more = random_text(rng, 1 + rng() % 5, alphabet);
    if (tokens.size() > 6 && rng() % 2 == 0) {
      const size_t from = rng() % (tokens.size() - 5);
      for (size_t i = 0; i < 5; ++i) tokens.push_back(tokens[from + i]);
    }
    tokens.insert(tokens.end(), more.begin(), more.end());
    const int n_max = static_cast<int>(rng() % 17);
    check(tokens, source.propose(tokens, n_max), n_max);
    source.observe(tokens, 0);
  }
}

TEST(Continuation, GoesOnWithWhatItTook) {
  const Tokens tokens = {1, 2, 3, 4};
  EXPECT_EQ(continuation(tokens, 1, 2), (Tokens{2, 3}));
  EXPECT_EQ(continuation(tokens, 2, 7), (Tokens{3, 4, 3, 4, 3, 4, 3}));
  EXPECT_EQ(continuation(tokens, 3, 0), Tokens{});
}

TEST(Ngram, EqualsASearchOfTheWholeHistory) {
  std::mt19937 rng(1);
  for (int round = 0; round < 60; ++round) {
    const int32_t alphabet = 1 + static_cast<int32_t>(rng() % 12);
    NgramOptions options;
    options.shortest = 1 + static_cast<int>(rng() % 3);
    options.longest = options.shortest + static_cast<int>(rng() % 4);
    NgramSource source(options);
    grow_and_cut(rng, source, 80, alphabet,
                 [&](const Tokens& tokens, const Proposal& proposal, int n_max) {
                   ASSERT_EQ(proposal.tokens, brute_ngram(tokens, options, n_max));
                   ASSERT_TRUE(proposal.confidence.empty());
                 });
  }
}

TEST(Ngram, FindsNothingInAShortHistory) {
  NgramSource source({.longest = 3, .shortest = 3});
  EXPECT_TRUE(source.propose(Tokens{}, 4).tokens.empty());
  EXPECT_TRUE(source.propose(Tokens{7}, 4).tokens.empty());
  EXPECT_TRUE(source.propose(Tokens{7, 7, 7}, 4).tokens.empty());
  EXPECT_EQ(source.propose(Tokens{7, 7, 7, 7}, 4).tokens, (Tokens{7, 7, 7, 7}));
}

// A cut history that is asked about as it is: its end must not be found as its own earlier place.
TEST(Ngram, ACutHistoryDoesNotFindItsOwnEnd) {
  NgramSource source({.longest = 2, .shortest = 1});
  const Tokens text = {1, 2, 3, 4, 5, 6};
  source.propose(text, 4);
  source.truncate(3);
  EXPECT_TRUE(source.propose(std::span(text).first(3), 4).tokens.empty());
}

TEST(Ngram, RefusesLengthsThatMakeNoSense) {
  EXPECT_THROW(NgramSource({.longest = 2, .shortest = 3}), Error);
  EXPECT_THROW(NgramSource({.longest = 2, .shortest = 0}), Error);
  EXPECT_THROW(NgramSource({.longest = 65, .shortest = 1}), Error);
}

int64_t brute_longest(const Tokens& tokens) {
  const auto last = static_cast<int64_t>(tokens.size()) - 1;
  int64_t longest = 0;
  for (int64_t end = 0; end < last; ++end) {
    int64_t n = 0;
    while (same(tokens, end, last, n + 1)) ++n;
    longest = std::max(longest, n);
  }
  return longest;
}

int64_t brute_latest(const Tokens& tokens, int64_t n) {
  const auto last = static_cast<int64_t>(tokens.size()) - 1;
  for (int64_t end = last - 1; end >= 0; --end) {
    if (same(tokens, end, last, n)) return end;
  }
  return -1;
}

TEST(SuffixAutomaton, FindsTheLongestRepeatAndItsLatestPlace) {
  std::mt19937 rng(2);
  for (int round = 0; round < 60; ++round) {
    const int32_t alphabet = 1 + static_cast<int32_t>(rng() % 20);
    const Tokens text = random_text(rng, 50 + rng() % 150, alphabet);
    SuffixAutomaton automaton;
    Tokens tokens;
    for (const int32_t token : text) {
      tokens.push_back(token);
      automaton.append(token);
      const auto repeat = automaton.longest_repeat();
      ASSERT_EQ(repeat.length, brute_longest(tokens));
      if (repeat.length == 0) {
        ASSERT_EQ(repeat.end, -1);
        continue;
      }
      ASSERT_TRUE(same(tokens, repeat.end, static_cast<int64_t>(tokens.size()) - 1, repeat.length));
      // Exact as long as no token stands in 64 nested repeats.
      if (alphabet > 1) {
        ASSERT_EQ(repeat.end, brute_latest(tokens, repeat.length));
      }
    }
    ASSERT_LE(automaton.states(), 2 * automaton.size());
  }
}

TEST(SuffixAutomaton, TakesAVeryLongRun) {
  SuffixAutomaton automaton;
  for (int64_t i = 0; i < 20000; ++i) {
    automaton.append(5);
    ASSERT_EQ(automaton.longest_repeat().length, i);
    ASSERT_EQ(automaton.longest_repeat().end, i - 1);
  }
}

TEST(Suffix, EqualsASearchOfTheWholeHistory) {
  std::mt19937 rng(3);
  for (int round = 0; round < 40; ++round) {
    SuffixOptions options;
    options.shortest = 1 + static_cast<int64_t>(rng() % 4);
    options.factor = 1 + static_cast<int>(rng() % 4);
    SuffixSource source(options);
    grow_and_cut(rng, source, 60, 2 + static_cast<int32_t>(rng() % 12),
                 [&](const Tokens& tokens, const Proposal& proposal, int n_max) {
                   const int64_t length = brute_longest(tokens);
                   Tokens expected;
                   if (length >= options.shortest) {
                     expected = follow(
                         tokens, brute_latest(tokens, length) + 1,
                         static_cast<int>(std::min<int64_t>(n_max, length * options.factor)));
                   }
                   ASSERT_EQ(proposal.tokens, expected);
                 });
  }
}

TEST(Suffix, RefusesOptionsThatMakeNoSense) {
  EXPECT_THROW(SuffixSource({.shortest = 0}), Error);
  EXPECT_THROW(SuffixSource({.shortest = 1, .factor = 0}), Error);
}

// Steps of a source over a text: the most operations that one step took, and all of them.
template <typename SourceType>
std::pair<int64_t, int64_t> operations_of(SourceType& source, const Tokens& text, size_t prompt,
                                          size_t step, const Tokens& draft) {
  const std::span all(text);
  source.propose(all.first(prompt), 15);
  const int64_t begin = source.operations();
  int64_t most = 0;
  for (size_t size = prompt + step; size <= text.size(); size += step) {
    const int64_t before = source.operations();
    source.propose(all.first(size), 15);
    if (!draft.empty()) source.extend(all.first(size), draft, 15);
    most = std::max(most, source.operations() - before);
  }
  return {most, source.operations() - begin};
}

// What a step costs does not grow with the history: the second half of 100,000 tokens takes no more
// than a few times what is drafted, in text, in a loop, and in one token without end.
TEST(Lookup, AStepCostsNoMoreOverALongHistory) {
  constexpr size_t kLength = 100'000;
  std::mt19937 rng(4);
  Tokens loop;
  while (loop.size() < kLength) loop.push_back(static_cast<int32_t>(loop.size() % 50));
  // A run that nothing breaks but the very end: the longest chain of suffix links there is.
  Tokens run(kLength, 7);
  run.back() = 8;
  const std::pair<const char*, Tokens> texts[] = {{"text", random_text(rng, kLength, 5000)},
                                                  {"narrow", random_text(rng, kLength, 3)},
                                                  {"loop", loop},
                                                  {"one token", run}};
  for (const auto& [name, text] : texts) {
    for (const Tokens& draft : {Tokens{}, Tokens{1, 7, 2, 9, 7, 7, 9}}) {
      NgramSource ngram;
      const auto [ngram_most, ngram_all] = operations_of(ngram, text, kLength / 2, 1, draft);
      EXPECT_LE(ngram_most, draft.empty() ? 100 : 300) << name;
      SuffixSource suffix;
      const auto [suffix_most, suffix_all] = operations_of(suffix, text, kLength / 2, 1, draft);
      // The automaton's appends are constant amortised, not each.
      EXPECT_LE(suffix_all, static_cast<int64_t>(kLength / 2) * (draft.empty() ? 80 : 600)) << name;
    }
  }
}

}  // namespace
}  // namespace lockstep::draft
