// Sources that draft on from where another stopped.
#include "draft/chain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "draft/model_source.h"
#include "draft/ngram.h"
#include "draft/priority.h"
#include "draft/replay.h"
#include "draft/suffix.h"
#include "hooked_backend.h"
#include "synth/synth.h"

namespace lockstep::draft {
namespace {

using Tokens = std::vector<int32_t>;
constexpr int32_t kVocab = 300;

Tokens with(Tokens tokens, std::span<const int32_t> more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

Tokens random_tokens(std::mt19937_64& rng, size_t n, int32_t alphabet) {
  Tokens tokens(n);
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(rng() % static_cast<uint64_t>(alphabet));
  return tokens;
}

std::shared_ptr<const model::Model> make_model(const std::string& spec) {
  return model::Model::load(synth::make_in_memory(synth::parse_synth(spec)));
}
const char* const kPlain =
    "llama-tiny,layers=2,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=128,vocab=300,ctx=512@q8_0";
const char* const kSliding =
    "gemma3-tiny,layers=7,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=300,ctx=512,window="
    "70@"
    "q8_0";

// After a draft a source says what it would say if the draft were the text, and forgets it: the
// next proposals are those of a source that never saw it.
TEST(Extend, IsTheProposalOfTheLongerTextAndLeavesNothing) {
  std::mt19937_64 rng(1);
  NgramSource source({.longest = 3, .shortest = 1}), untouched({.longest = 3, .shortest = 1});
  Tokens history;
  for (int step = 0; step < 300; ++step) {
    history = with(history, random_tokens(rng, 1 + rng() % 3, 5));
    if (step % 40 == 39) {
      history.resize(history.size() / 2);
      source.truncate(std::ssize(history));
      untouched.truncate(std::ssize(history));
    }
    const Tokens draft = random_tokens(rng, rng() % 6, 5);
    NgramSource fresh({.longest = 3, .shortest = 1});
    const Proposal proposal = source.extend(history, draft, 7);
    const Proposal expected = fresh.propose(with(history, draft), 7);
    ASSERT_EQ(proposal.tokens, expected.tokens);
    ASSERT_EQ(proposal.match, expected.match);
    ASSERT_EQ(source.propose(history, 7).tokens, untouched.propose(history, 7).tokens);
  }
}

// The longest end of history and draft that stands in the history.
int64_t brute_repeat(const Tokens& history, const Tokens& draft) {
  const Tokens all = with(history, draft);
  int64_t longest = 0;
  for (size_t end = 0; end < history.size(); ++end) {
    size_t n = 0;
    while (n <= end && all[end - n] == all[all.size() - 1 - n]) ++n;
    longest = std::max(longest, static_cast<int64_t>(n));
  }
  return longest;
}

TEST(Extend, SuffixFindsTheLongestRepeatInTheHistory) {
  std::mt19937_64 rng(2);
  SuffixSource source({.shortest = 1, .factor = 100}), untouched({.shortest = 1, .factor = 100});
  Tokens history;
  for (int step = 0; step < 300; ++step) {
    history = with(history, random_tokens(rng, 1 + rng() % 3, 4));
    const Tokens draft = random_tokens(rng, 1 + rng() % 5, 5);
    const Proposal proposal = source.extend(history, draft, 6);
    const int64_t longest = brute_repeat(history, draft);
    if (longest == 0) {
      ASSERT_TRUE(proposal.tokens.empty());
    } else {
      ASSERT_EQ(proposal.match, Tokens(6, static_cast<int32_t>(longest)));
      // What it drafts follows the repeat somewhere, as far as the history goes.
      const Tokens all = with(history, draft);
      const Tokens repeat(all.end() - longest, all.end());
      bool found = false;
      for (int64_t at = 0; at + longest <= std::ssize(history) && !found; ++at) {
        if (!std::equal(repeat.begin(), repeat.end(), history.begin() + at)) continue;
        Tokens follows(history.begin() + at + longest, history.end());
        follows = with(follows, draft);
        found = true;
        for (size_t i = 0; i < 6; ++i) {
          found =
              found && proposal.tokens[i] ==
                           (i < follows.size() ? follows[i] : proposal.tokens[i - follows.size()]);
        }
      }
      ASSERT_TRUE(found);
    }
    ASSERT_EQ(source.propose(history, 7).tokens, untouched.propose(history, 7).tokens);
  }
}

TEST(Extend, AModelSaysWhatItWouldSayOfTheLongerText) {
  for (const char* spec : {kPlain, kSliding}) {
    const auto model = make_model(spec);
    std::mt19937_64 rng(3);
    ModelSource source(model, test::hooked_backend(), kVocab),
        untouched(model, test::hooked_backend(), kVocab);
    sample::Parameters parameters;
    parameters.temperature = 1.1f;
    for (ModelSource* s : {&source, &untouched}) s->set_sampling(parameters);
    Tokens history = random_tokens(rng, 80, kVocab);
    for (int step = 0; step < 25; ++step) {
      const Tokens draft = random_tokens(rng, rng() % 5, kVocab);
      ModelSource fresh(model, test::hooked_backend(), kVocab);
      fresh.set_sampling(parameters);
      ASSERT_EQ(source.extend(history, draft, 3).tokens,
                fresh.propose(with(history, draft), 3).tokens);
      const Tokens proposal = source.propose(history, 3).tokens;
      ASSERT_EQ(proposal, untouched.propose(history, 3).tokens);
      // The draft is accepted, in part or whole, or nothing of it is.
      history = with(history, std::span(draft).first(rng() % (draft.size() + 1)));
      history.push_back(static_cast<int32_t>(rng() % kVocab));
    }
    EXPECT_TRUE(source.extend(history, Tokens{kVocab}, 3).tokens.empty());
    EXPECT_TRUE(source.extend(history, Tokens{-1}, 3).tokens.empty());
    EXPECT_TRUE(source.extend(history, Tokens(500, 1), 3).tokens.empty());  // past its context
    EXPECT_EQ(source.propose(history, 3).tokens, untouched.propose(history, 3).tokens);
    EXPECT_EQ(source.take_fault(), "");
  }
}

TEST(Extend, ReplayGoesOnWhereTheDraftIsAsRecorded) {
  ReplayOptions options;
  for (int32_t i = 0; i < 40; ++i) options.recording.push_back(i);
  options.n_vocab = 50;
  ReplaySource source(options);
  EXPECT_EQ(source.extend(Tokens{0, 1, 2}, Tokens{3, 4}, 3).tokens, (Tokens{5, 6, 7}));
  EXPECT_TRUE(source.extend(Tokens{0, 1, 2}, Tokens{3, 5}, 3).tokens.empty());
  EXPECT_EQ(source.propose(Tokens{0, 1, 2}, 2).tokens, (Tokens{3, 4}));
}

// Gives up to so many tokens, counted up from the last one before.
class Counter final : public Source {
 public:
  Counter(int most, float confidence, int extra = 0)
      : most_(most), confidence_(confidence), extra_(extra) {}
  std::string name() const override { return "counter"; }
  Proposal extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                  int n_max) override {
    asked = n_max;
    Proposal proposal;
    const int32_t last = draft.empty() ? history.back() : draft.back();
    for (int i = 0; i < std::min(most_, n_max) + extra_; ++i) {
      proposal.tokens.push_back(last + 1 + i);
      if (confidence_ >= 0) proposal.confidence.push_back(confidence_);
    }
    return proposal;
  }
  void observe(std::span<const int32_t>, int n) override { accepted = n; }
  void truncate(int64_t n) override { common = n; }
  int asked = -1, accepted = -1;
  int64_t common = -1;

 private:
  int most_;
  float confidence_;
  int extra_;
};

TEST(Chain, EachDraftsOnFromTheOneBefore) {
  const auto a = std::make_shared<Counter>(2, -1.0f), b = std::make_shared<Counter>(0, -1.0f),
             c = std::make_shared<Counter>(9, 0.5f);
  ChainSource chain({a, b, c});
  const Proposal proposal = chain.propose(Tokens{7}, 6);
  EXPECT_EQ(proposal.tokens, (Tokens{8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(proposal.part, (std::vector<uint8_t>{0, 0, 2, 2, 2, 2}));
  ASSERT_EQ(proposal.confidence.size(), 6u);
  EXPECT_TRUE(std::isnan(proposal.confidence[1]));
  EXPECT_EQ(proposal.confidence[2], 0.5f);
  EXPECT_EQ(a->asked, 6);
  EXPECT_EQ(b->asked, 4);
  EXPECT_EQ(c->asked, 4);
  chain.observe(Tokens{7}, 4);
  EXPECT_EQ(a->accepted, 2);
  EXPECT_EQ(b->accepted, 0);
  EXPECT_EQ(c->accepted, 2);
  chain.truncate(1);
  for (const auto& source : {a, b, c}) EXPECT_EQ(source->common, 1);
}

TEST(Chain, NeverProposesMoreThanAsked) {
  for (int n = 0; n <= 12; ++n) {
    // The first breaks the rule.
    const auto a = std::make_shared<Counter>(3, -1.0f, 2), b = std::make_shared<Counter>(4, 0.9f);
    ChainSource chain({a, b});
    const Proposal proposal = chain.propose(Tokens{7}, n);
    EXPECT_LE(proposal.tokens.size(), static_cast<size_t>(n));
    EXPECT_EQ(proposal.part.size(), proposal.tokens.size());
    if (!proposal.confidence.empty()) {
      EXPECT_EQ(proposal.confidence.size(), proposal.tokens.size());
    }
  }
}

TEST(Chain, PartsAreNumberedThroughAListToo) {
  const auto silent = std::make_shared<Counter>(0, -1.0f);
  const auto chain = std::make_shared<ChainSource>(
      Sources{std::make_shared<Counter>(1, -1.0f), std::make_shared<Counter>(2, -1.0f)});
  PrioritySource list({silent, chain});
  EXPECT_EQ(list.name(), "counter,chain:counter+counter");
  EXPECT_EQ(list.parts().size(), 3u);
  EXPECT_EQ(list.propose(Tokens{1}, 5).part, (std::vector<uint8_t>{1, 2, 2}));
}

}  // namespace
}  // namespace lockstep::draft
