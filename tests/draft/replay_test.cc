#include "draft/replay.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "draft/factory.h"
#include "draft/priority.h"

namespace lockstep::draft {
namespace {

using Tokens = std::vector<int32_t>;

ReplayOptions options_of(double rate, size_t length = 4000) {
  ReplayOptions options;
  for (size_t i = 0; i < length; ++i)
    options.recording.push_back(static_cast<int32_t>(i * 37 % 50));
  options.rates = {rate};
  options.seed = 9;
  options.n_vocab = 50;
  return options;
}

// Decodes the recording: accepted drafts, then the recorded token. Returns the places of the
// misses.
std::vector<size_t> misses(ReplaySource& source, const Tokens& recording, int depth) {
  std::vector<size_t> missed;
  Tokens history(recording.begin(), recording.begin() + 10);
  while (history.size() < recording.size()) {
    const Proposal proposal = source.propose(history, depth);
    int accepted = 0;
    for (const int32_t token : proposal.tokens) {
      EXPECT_GE(token, 0);
      EXPECT_LT(token, 50);
      if (token != recording[history.size()]) {
        missed.push_back(history.size());
        break;
      }
      history.push_back(token);
      ++accepted;
    }
    if (history.size() < recording.size()) history.push_back(recording[history.size()]);
    source.observe(history, accepted);
  }
  return missed;
}

TEST(Replay, IsRightAsOftenAsAsked) {
  for (const double rate : {0.0, 0.5, 0.8, 1.0}) {
    const ReplayOptions options = options_of(rate);
    ReplaySource source(options);
    int64_t right = 0, all = 0;
    for (size_t size = 10; size < options.recording.size(); ++size) {
      const Tokens history(options.recording.begin(),
                           options.recording.begin() + static_cast<ptrdiff_t>(size));
      const Proposal proposal = source.propose(history, 1);
      ASSERT_EQ(proposal.tokens.size(), 1u);
      right += proposal.tokens[0] == options.recording[size];
      ++all;
    }
    const double share = static_cast<double>(right) / static_cast<double>(all);
    if (rate == 0.0 || rate == 1.0) {
      EXPECT_EQ(share, rate);
    } else {
      EXPECT_NEAR(share, rate, 0.03);
    }
  }
}

TEST(Replay, MissesAtTheSamePlacesWhateverTheDepth) {
  // A position that no draft reaches, because the token before ended one, misses nothing; so
  // compare with the depth that looks at every position.
  const ReplayOptions options = options_of(0.7);
  std::vector<bool> wrong(options.recording.size());
  for (size_t size = 10; size < options.recording.size(); ++size) {
    ReplaySource source(options);
    const Tokens history(options.recording.begin(),
                         options.recording.begin() + static_cast<ptrdiff_t>(size));
    wrong[size] = source.propose(history, 1).tokens.at(0) != options.recording[size];
  }
  for (const int depth : {1, 3, 8, 15}) {
    ReplaySource source(options);
    const std::vector<size_t> missed = misses(source, options.recording, depth);
    EXPECT_GT(missed.size(), 100u);
    for (const size_t position : missed) EXPECT_TRUE(wrong[position]);
  }
}

TEST(Replay, AllIsWrongAfterTheFirstMiss) {
  const ReplayOptions options = options_of(0.5);
  ReplaySource source(options);
  for (size_t size = 10; size < 500; ++size) {
    const Tokens history(options.recording.begin(),
                         options.recording.begin() + static_cast<ptrdiff_t>(size));
    const Proposal proposal = source.propose(history, 15);
    bool missed = false;
    for (size_t i = 0; i < proposal.tokens.size(); ++i) {
      const bool right = proposal.tokens[i] == options.recording[size + i];
      EXPECT_FALSE(missed && right);
      missed = missed || !right;
    }
  }
}

TEST(Replay, RatesMayDifferByPlaceInTheDraft) {
  ReplayOptions options = options_of(1.0);
  options.rates = {1.0, 1.0, 0.0};
  ReplaySource source(options);
  const Tokens history(options.recording.begin(), options.recording.begin() + 20);
  const Proposal proposal = source.propose(history, 5);
  EXPECT_EQ(proposal.tokens[0], options.recording[20]);
  EXPECT_EQ(proposal.tokens[1], options.recording[21]);
  EXPECT_NE(proposal.tokens[2], options.recording[22]);
}

TEST(Replay, StopsWhereTheHistoryLeavesTheRecording) {
  const ReplayOptions options = options_of(1.0, 30);
  ReplaySource source(options);
  Tokens history(options.recording.begin(), options.recording.begin() + 20);
  EXPECT_EQ(source.propose(history, 50).tokens.size(), 10u);
  history.push_back((options.recording[20] + 1) % 50);
  EXPECT_TRUE(source.propose(history, 4).tokens.empty());
  history.pop_back();
  source.truncate(20);
  EXPECT_EQ(source.propose(history, 4).tokens.size(), 4u);
  EXPECT_TRUE(source.propose(options.recording, 4).tokens.empty());
  EXPECT_TRUE(source.synthetic());
}

TEST(Replay, RefusesWhatMakesNoSense) {
  EXPECT_THROW(ReplaySource(options_of(1.5)), Error);
  EXPECT_THROW(ReplaySource(options_of(-0.1)), Error);
  ReplayOptions options = options_of(0.5);
  options.rates.clear();
  EXPECT_THROW(ReplaySource{options}, Error);
  options = options_of(0.5);
  options.n_vocab = 1;
  EXPECT_THROW(ReplaySource{options}, Error);
  options = options_of(0.5);
  options.recording[3] = 50;
  EXPECT_THROW(ReplaySource{options}, Error);
}

TEST(SpecTypes, TakeBothSetsOfNames) {
  using Chains = std::vector<SourceChain>;
  EXPECT_EQ(parse_spec_types(""), Chains{});
  EXPECT_EQ(parse_spec_types("none"), Chains{});
  EXPECT_EQ(parse_spec_types("ngram"), (Chains{{SourceKind::ngram}}));
  EXPECT_EQ(parse_spec_types("ngram-simple"), (Chains{{SourceKind::ngram}}));
  EXPECT_EQ(parse_spec_types("draft-simple"), (Chains{{SourceKind::model}}));
  EXPECT_EQ(parse_spec_types("suffix,model,replay"),
            (Chains{{SourceKind::suffix}, {SourceKind::model}, {SourceKind::replay}}));
  EXPECT_EQ(parse_spec_types("chain:ngram+draft-simple,suffix"),
            (Chains{{SourceKind::ngram, SourceKind::model}, {SourceKind::suffix}}));
}

void expect_refused(std::string_view text, const std::string& words) {
  try {
    parse_spec_types(text);
    ADD_FAILURE() << "accepted: " << text;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_use);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(SpecTypes, SayWhatToUseInsteadOfWhatIsNotThere) {
  for (const char* name :
       {"ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache", "draft-eagle3", "draft-mtp",
        "draft-dflash", "draft-dspark", "mtp", "dflash"}) {
    expect_refused(name, std::string(name) + " is not supported yet; use ");
    expect_refused(std::string("ngram,") + name, "not supported yet");
  }
  expect_refused("chain:ngram", "a chain of ngram alone");
  expect_refused("chain:", "\"\" is not");
  expect_refused("chain:ngram+", "\"\" is not");
  expect_refused("ngram+model", "\"ngram+model\" is not");
  expect_refused("chain:ngram+none", "none stands alone");
  expect_refused("chain:ngram+ngram", "ngram is given twice");
  expect_refused("ngram,chain:suffix+ngram", "ngram is given twice");
  expect_refused("chain:ngram+mtp", "mtp is not supported yet");
  expect_refused("ngrams", "\"ngrams\" is not a draft source");
  expect_refused("ngram,", "\"\" is not");
  expect_refused("ngram,none", "none stands alone");
  expect_refused("ngram,ngram-simple", "ngram is given twice");
}

TEST(Factory, MakesWhatIsAskedAndRefusesWhatLacksItsPart) {
  EXPECT_EQ(make_source({}, {}), nullptr);
  EXPECT_EQ(make_source({{SourceKind::suffix}}, {})->name(), "suffix");
  EXPECT_EQ(make_source({{SourceKind::suffix}, {SourceKind::ngram}}, {})->name(), "suffix,ngram");
  const auto chain = make_source({{SourceKind::suffix, SourceKind::ngram}}, {});
  EXPECT_EQ(chain->name(), "chain:suffix+ngram");
  EXPECT_EQ(chain->parts(), (std::vector<std::string>{"suffix", "ngram"}));
  EXPECT_THROW(make_source({{SourceKind::model}}, {}), Error);
  EXPECT_THROW(make_source({{SourceKind::replay}}, {}), Error);
  SourceConfig config;
  config.replay = options_of(0.5);
  config.replay->recording_sha256 = "abc";
  const auto source = make_source({{SourceKind::ngram}, {SourceKind::replay}}, config);
  EXPECT_TRUE(source->synthetic());
  EXPECT_EQ(source->file_sha256(), "abc");
  EXPECT_FALSE(make_source({{SourceKind::ngram}}, {})->synthetic());
}

// What a source was told.
class Fixed final : public Source {
 public:
  Fixed(Tokens tokens) : tokens_(std::move(tokens)) {}
  std::string name() const override { return "fixed"; }
  Proposal extend(std::span<const int32_t>, std::span<const int32_t>, int) override {
    ++asked;
    return {.tokens = tokens_};
  }
  void observe(std::span<const int32_t>, int n) override { accepted = n; }
  void truncate(int64_t n) override { common = n; }
  void set_sampling(const sample::Parameters& parameters) override { seed = parameters.seed; }
  int asked = 0, accepted = -1;
  int64_t common = -1;
  uint64_t seed = 0;

 private:
  Tokens tokens_;
};

TEST(Priority, TheFirstThatProposesWinsAndAllAreTold) {
  const auto a = std::make_shared<Fixed>(Tokens{}), b = std::make_shared<Fixed>(Tokens{4, 5}),
             c = std::make_shared<Fixed>(Tokens{6});
  PrioritySource source({a, b, c});
  sample::Parameters parameters;
  parameters.seed = 77;
  source.set_sampling(parameters);
  EXPECT_EQ(source.propose(Tokens{1}, 3).tokens, (Tokens{4, 5}));
  source.observe(Tokens{1, 4, 9}, 1);
  source.truncate(2);
  EXPECT_EQ(a->asked, 1);
  EXPECT_EQ(b->asked, 1);
  EXPECT_EQ(c->asked, 0);
  EXPECT_EQ(a->accepted, 0);
  EXPECT_EQ(b->accepted, 1);
  EXPECT_EQ(c->accepted, 0);
  for (const auto& f : {a, b, c}) {
    EXPECT_EQ(f->common, 2);
    EXPECT_EQ(f->seed, 77u);
  }
}

}  // namespace
}  // namespace lockstep::draft
