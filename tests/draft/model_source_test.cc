#include "draft/model_source.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "hooked_backend.h"
#include "synth/synth.h"

namespace lockstep::draft {
namespace {

using Tokens = std::vector<int32_t>;
constexpr int32_t kVocab = 300;

std::shared_ptr<const model::Model> make_model(const std::string& spec) {
  return model::Model::load(synth::make_in_memory(synth::parse_synth(spec)));
}

// Window 70: a page and some.
const char* const kSliding =
    "gemma3-tiny,layers=7,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=300,ctx=512,window="
    "70@"
    "q8_0";
const char* const kPlain =
    "llama-tiny,layers=2,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=128,vocab=300,ctx=512@q8_0";

// What the model says next, from nothing.
int32_t next_token(const std::shared_ptr<const model::Model>& model, const Tokens& history,
                   const sample::Parameters& parameters) {
  Lane lane(model, test::hooked_backend(),
            model->kv_spec(state::KvType::f16, state::KvType::f16, 512));
  const auto last = static_cast<int64_t>(history.size()) - 1;
  lane.run(history, last);
  lane.commit(last + 1);
  sample::Sampler sampler(parameters, kVocab);
  return sampler.choose(lane.logits(last), history, last + 1).token;
}

TEST(ModelSource, ProposesWhatTheModelWouldSayWhateverHappened) {
  for (const char* spec : {kPlain, kSliding}) {
    const auto model = make_model(spec);
    sample::Parameters parameters;
    parameters.temperature = 1.2f;
    parameters.presence_penalty = 0.3f;
    parameters.seed = 5;
    ModelSource source(model, test::hooked_backend(), kVocab);
    source.set_sampling(parameters);
    std::mt19937_64 rng(6);
    Tokens history;
    for (int step = 0; step < 40; ++step) {
      const int n_max = static_cast<int>(rng() % 6);
      if (history.empty() || rng() % 8 == 0) {
        history.resize(history.empty() ? 0 : rng() % history.size());
        source.truncate(static_cast<int64_t>(history.size()));
        const size_t more = 1 + rng() % 60;
        for (size_t i = 0; i < more; ++i) history.push_back(static_cast<int32_t>(rng() % kVocab));
      }
      const Proposal proposal = source.propose(history, n_max);
      ASSERT_EQ(proposal.tokens.size(), static_cast<size_t>(n_max));
      ASSERT_EQ(proposal.confidence.size(), static_cast<size_t>(n_max));
      Tokens sequence = history;
      for (size_t i = 0; i < proposal.tokens.size(); ++i) {
        ASSERT_EQ(proposal.tokens[i], next_token(model, sequence, parameters)) << step;
        ASSERT_GT(proposal.confidence[i], 0.0f);
        ASSERT_LE(proposal.confidence[i], 1.0f);
        sequence.push_back(proposal.tokens[i]);
      }
      // Some of it is accepted, then one token more.
      const size_t accepted = n_max > 0 ? rng() % static_cast<size_t>(n_max + 1) : 0;
      history.insert(history.end(), proposal.tokens.begin(),
                     proposal.tokens.begin() + static_cast<ptrdiff_t>(accepted));
      history.push_back(static_cast<int32_t>(rng() % kVocab));
      source.observe(history, static_cast<int>(accepted));
    }
  }
}

// A sliding layer gives back pages while the draft runs ahead; a rejection must not cost the whole
// history again.
TEST(ModelSource, ARejectionCostsAFewRowsOnSlidingLayersToo) {
  const auto model = make_model(kSliding);
  const auto backend = test::hooked_backend();
  ModelSource source(model, backend, kVocab);
  source.set_sampling({});
  std::mt19937_64 rng(7);
  Tokens history;
  for (int i = 0; i < 150; ++i) history.push_back(static_cast<int32_t>(rng() % kVocab));
  source.propose(history, 8);
  for (int step = 0; step < 100; ++step) {
    const int64_t before = backend->rows;
    history.push_back(static_cast<int32_t>(rng() % kVocab));
    const Proposal proposal = source.propose(history, 8);
    EXPECT_EQ(proposal.tokens.size(), 8u);
    EXPECT_LE(backend->rows - before, 8 + 9) << "at " << history.size();
    source.observe(history, 0);
    for (size_t i = 0; i < static_cast<size_t>(step % 4); ++i)
      history.push_back(proposal.tokens[i]);
  }
}

TEST(ModelSource, StopsWhenItIsUnsure) {
  const auto model = make_model(kPlain);
  ModelSource sure(model, test::hooked_backend(), kVocab),
      unsure(model, test::hooked_backend(), kVocab, {.p_min = 0.9f});
  for (ModelSource* source : {&sure, &unsure}) source->set_sampling({});
  const Proposal a = sure.propose(Tokens{1, 2, 3}, 6), b = unsure.propose(Tokens{1, 2, 3}, 6);
  ASSERT_EQ(a.tokens.size(), 6u);
  size_t first = 0;
  while (first < 6 && a.confidence[first] >= 0.9f) ++first;
  ASSERT_LT(first, 6u);  // a random model is never that sure
  EXPECT_EQ(b.tokens.size(), first + 1);
  EXPECT_TRUE(std::equal(b.tokens.begin(), b.tokens.end(), a.tokens.begin()));
}

TEST(ModelSource, EndsWhereItsContextEnds) {
  const auto model = make_model(kPlain);
  ModelSource source(model, test::hooked_backend(), kVocab, {.context = 20});
  source.set_sampling({});
  EXPECT_EQ(source.propose(Tokens(15, 3), 10).tokens.size(), 6u);  // rows at 14 … 19
  EXPECT_EQ(source.propose(Tokens(20, 3), 10).tokens.size(), 1u);
  EXPECT_TRUE(source.propose(Tokens(21, 3), 10).tokens.empty());
  source.truncate(10);
  EXPECT_EQ(source.propose(Tokens(10, 3), 4).tokens.size(), 4u);
}

TEST(ModelSource, ProposesNothingAfterAFault) {
  const auto model = make_model(kPlain);
  const auto backend = test::hooked_backend();
  fault_on_token(*backend, 77);
  ModelSource source(model, backend, kVocab);
  source.set_sampling({});
  EXPECT_EQ(source.take_fault(), "");
  EXPECT_TRUE(source.propose(Tokens{1, 77, 3}, 4).tokens.empty());
  EXPECT_NE(source.take_fault().find("at position 1"), std::string::npos);
  EXPECT_EQ(source.take_fault(), "");  // told once
  EXPECT_TRUE(source.propose(Tokens{1, 77, 3, 5}, 4).tokens.empty());
  EXPECT_TRUE(source.propose(Tokens{1, 2, 77}, 4).tokens.empty());
  source.truncate(1);
  EXPECT_EQ(source.propose(Tokens{1, 2, 3}, 4).tokens.size(), 4u);
}

TEST(ModelSource, TakesVocabulariesThatDifferByPadding) {
  const auto model = make_model(kPlain);  // 300
  EXPECT_THROW(ModelSource(model, test::hooked_backend(), 300 + 129), Error);
  EXPECT_THROW(ModelSource(model, test::hooked_backend(), 300 - 129), Error);
  sample::Parameters parameters;
  parameters.logit_bias = {{310, 5.0f}, {3, 1.0f}};
  parameters.temperature = 2.0f;
  ModelSource larger_target(model, test::hooked_backend(), 310 + 1);
  larger_target.set_sampling(parameters);
  EXPECT_EQ(larger_target.propose(Tokens{1, 2}, 3).tokens.size(), 3u);
  EXPECT_TRUE(larger_target.propose(Tokens{1, 305}, 3).tokens.empty());  // an id it lacks
  ModelSource smaller_target(model, test::hooked_backend(), 290);
  smaller_target.set_sampling({.temperature = 2.0f, .top_k = 0});
  for (int i = 0; i < 20; ++i) {
    for (const int32_t token : smaller_target.propose(Tokens{1, 2, i}, 8).tokens)
      EXPECT_LT(token, 290);
  }
}

}  // namespace
}  // namespace lockstep::draft
