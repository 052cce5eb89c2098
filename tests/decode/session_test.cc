#include "decode/session.h"

#include <gtest/gtest.h>

#include <cmath>

#include "arms.h"
#include "base/error.h"

namespace lockstep::decode::test {
namespace {

using lockstep::test::hooked_backend;

SessionOptions options_of(int64_t max_tokens = 20) {
  SessionOptions options;
  options.max_tokens = max_tokens;
  options.sampling.seed = 7;
  return options;
}

Tokens prompt_of(size_t length, uint64_t seed = 1) {
  std::mt19937_64 rng(seed);
  return random_prompt(rng, length);
}

Trace plain_run(const Tokens& prompt, SessionOptions options, const char* model = kLlama) {
  options.source = nullptr;
  options.chunk = 1;
  Session session(tiny_model(model), hooked_backend(), options);
  return run(session, prompt);
}

void expect_error(const std::function<void()>& act, ExitCode code, const std::string& words) {
  try {
    act();
    ADD_FAILURE() << "no error: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
  }
}

TEST(Session, RefusesHistoriesThatCannotBeRun) {
  SessionOptions options = options_of();
  options.context = 50;
  Session session(tiny_model(kLlama), hooked_backend(), options);
  const Tokens prompt = prompt_of(10);
  session.begin(prompt);
  expect_error([&] { session.begin({}); }, ExitCode::bad_use, "no tokens");
  expect_error([&] { session.begin(prompt_of(51)); }, ExitCode::bad_use, "the context 50");
  expect_error(
      [&] {
        session.begin(Tokens{1, 300});
      },
      ExitCode::bad_use, "token 300 at position 1");
  expect_error([&] { session.begin(Tokens{-1}); }, ExitCode::bad_use, "token -1");
  // As if not asked.
  EXPECT_EQ(session.history().size(), 10u);
  EXPECT_FALSE(session.finished());
  EXPECT_EQ(session.step().tokens.size(), 1u);
}

TEST(Session, RefusesOptionsThatMakeNoSense) {
  const auto make = [](const std::function<void(SessionOptions&)>& change) {
    SessionOptions options = options_of();
    change(options);
    Session session(tiny_model(kLlama), hooked_backend(), options);
  };
  expect_error([&] { make([](auto& o) { o.chunk = 0; }); }, ExitCode::bad_use, "0 rows");
  expect_error([&] { make([](auto& o) { o.depth.n_max = -1; }); }, ExitCode::bad_use, "negative");
  expect_error([&] { make([](auto& o) { o.sampling.top_p = NAN; }); }, ExitCode::bad_use, "top_p");
  expect_error([&] { make([](auto& o) { o.context = int64_t{1} << 40; }); }, ExitCode::bad_use, "");
  Session session(tiny_model(kLlama), hooked_backend(), options_of());
  expect_error([&] { session.set_chunk(0); }, ExitCode::bad_use, "at least 1");
  sample::Parameters bad;
  bad.repeat_penalty = 0.0f;
  expect_error([&] { session.set_sampling(bad); }, ExitCode::bad_use, "repeat_penalty");
}

TEST(Session, NothingIsBegunAtFirst) {
  Session session(tiny_model(kLlama), hooked_backend(), options_of());
  EXPECT_TRUE(session.finished());
  EXPECT_TRUE(session.step().tokens.empty());
  EXPECT_EQ(session.options().context, 512);  // the training context
}

// Prompt passes want no logits; the last chunk shares its pass with the first draft.
TEST(Session, AsksForTheLogitsItNeeds) {
  const auto backend = hooked_backend();
  struct Seen {
    int64_t rows, wanted;
    bool operator==(const Seen&) const = default;
  };
  std::vector<Seen> seen;
  backend->before = [&](kernels::Pass& pass) {
    const auto rows = static_cast<int64_t>(pass.segments[0].tokens.size());
    seen.push_back({rows, rows - pass.segments[0].first_logits_row});
  };
  const Tokens prompt = prompt_of(150);
  const Trace plain = plain_run(prompt, options_of());
  SessionOptions options = options_of();
  options.source = replay_source(joined(prompt, plain.tokens), 1.0);
  options.depth.n_max = 3;
  Session session(tiny_model(kLlama), backend, options);
  session.begin(prompt);
  EXPECT_EQ(seen, (std::vector<Seen>{{64, 0}, {64, 0}}));
  EXPECT_EQ(session.kv().size(), 128);
  EXPECT_EQ(session.step().tokens.size(), 4u);
  EXPECT_EQ(seen.back(), (Seen{22 + 3, 4}));
  EXPECT_EQ(session.kv().size(), 153);
  session.step();
  EXPECT_EQ(seen.back(), (Seen{4, 4}));
}

TEST(Session, StopsAtMaxTokensHoweverLongTheDraft) {
  const Tokens prompt = prompt_of(20);
  const Trace plain = plain_run(prompt, options_of(40));
  for (int64_t max_tokens = 0; max_tokens < 12; ++max_tokens) {
    SessionOptions options = options_of(max_tokens);
    options.source = replay_source(joined(prompt, plain.tokens), 1.0);
    options.depth.n_max = 4;
    Session session(tiny_model(kLlama), hooked_backend(), options);
    const Trace trace = run(session, prompt);
    EXPECT_EQ(static_cast<int64_t>(trace.tokens.size()), max_tokens);
    EXPECT_EQ(trace.finish, Finish::max_tokens);
    EXPECT_EQ(trace.tokens, Tokens(plain.tokens.begin(), plain.tokens.begin() + max_tokens));
    EXPECT_EQ(session.kv().size(), 19 + max_tokens);
    // No row was run that could not have been committed.
    EXPECT_EQ(trace.draft.accepted, trace.draft.drafted);
    EXPECT_EQ(session.step().finish, Finish::max_tokens);
    EXPECT_EQ(session.generated_tokens(), max_tokens);
  }
}

TEST(Session, WithoutALimitRunsToTheContextsEnd) {
  for (const int depth : {0, 5}) {
    SessionOptions options = options_of(-1);
    options.context = 60;
    const Tokens prompt = prompt_of(33);
    const Trace plain = plain_run(prompt, options);
    options.source = replay_source(joined(prompt, plain.tokens), 0.8);
    options.depth.n_max = depth;
    Session session(tiny_model(kLlama), hooked_backend(), options);
    const Trace trace = run(session, prompt);
    EXPECT_EQ(trace.finish, Finish::context_full);
    EXPECT_STREQ(finish_name(trace.finish), "context_full");
    EXPECT_EQ(session.history().size(), 60u);
    EXPECT_EQ(session.kv().size(), 59);
    EXPECT_EQ(difference(plain, trace), std::nullopt);
  }
}

TEST(Session, AFullContextIsFullFromTheStart) {
  SessionOptions options = options_of();
  options.context = 40;
  Session session(tiny_model(kLlama), hooked_backend(), options);
  session.begin(prompt_of(40));
  EXPECT_EQ(session.finish(), Finish::context_full);
  EXPECT_EQ(session.generated_tokens(), 0);
  EXPECT_EQ(session.kv().size(), 39);
}

TEST(Session, AnEndTokenInsideADraftEndsIt) {
  const Tokens prompt = prompt_of(20);
  const Trace whole = plain_run(prompt, options_of(30));
  for (size_t end = 0; end < 10; ++end) {
    SessionOptions options = options_of(30);
    options.is_end = [token = whole.tokens[end]](int32_t id) { return id == token; };
    const Trace plain = plain_run(prompt, options);
    options.source = replay_source(joined(prompt, whole.tokens), 1.0);
    options.depth.n_max = 15;
    Session session(tiny_model(kLlama), hooked_backend(), options);
    const Trace trace = run(session, prompt);
    EXPECT_EQ(difference(plain, trace), std::nullopt);
    EXPECT_EQ(trace.finish, Finish::end_token);
    EXPECT_EQ(trace.tokens.back(), whole.tokens[end]);
    EXPECT_EQ(session.kv().size() + 1, static_cast<int64_t>(session.history().size()));
    // The end token was drafted and agreed.
    EXPECT_EQ(trace.draft.accepted, static_cast<int64_t>(trace.tokens.size()));
  }
}

class Scripted final : public draft::Source {
 public:
  explicit Scripted(draft::Proposal proposal, std::vector<std::string> parts = {"scripted"})
      : proposal_(std::move(proposal)), parts_(std::move(parts)) {}
  std::vector<std::string> parts() const override { return parts_; }
  std::string name() const override { return "scripted"; }
  draft::Proposal extend(std::span<const int32_t>, std::span<const int32_t>, int n_max) override {
    asked.push_back(n_max);
    return proposal_;
  }
  void observe(std::span<const int32_t> history, int accepted) override {
    observed.emplace_back(history.size(), accepted);
  }
  void truncate(int64_t common) override { cuts.push_back(common); }
  std::vector<int> asked;
  std::vector<std::pair<size_t, int>> observed;
  std::vector<int64_t> cuts;

 private:
  draft::Proposal proposal_;
  std::vector<std::string> parts_;
};

TEST(Session, DepthPolicyCutsTheDraft) {
  const Tokens prompt = prompt_of(20);
  const auto drafted = [&](const draft::Proposal& proposal, DepthPolicy depth) {
    SessionOptions options = options_of();
    options.source = std::make_shared<Scripted>(proposal);
    options.depth = depth;
    Session session(tiny_model(kLlama), hooked_backend(), options);
    session.begin(prompt);
    return session.step().drafted;
  };
  const draft::Proposal four = {{1, 2, 3, 4}, {}};
  EXPECT_EQ(drafted(four, {.n_max = 0}), 0);
  EXPECT_EQ(drafted(four, {.n_max = 3}), 3);
  EXPECT_EQ(drafted(four, {.n_max = 8}), 4);
  EXPECT_EQ(drafted(four, {.n_max = 8, .n_min = 4}), 4);
  EXPECT_EQ(drafted(four, {.n_max = 8, .n_min = 5}), 0);
  EXPECT_EQ(drafted({{1, 2, 300, 4}, {}}, {.n_max = 8}), 2);
  EXPECT_EQ(drafted({{1, 2, 3, 4}, {0.9f, 0.5f, 0.4f, 0.9f}}, {.n_max = 8, .p_min = 0.5f}), 2);
  EXPECT_EQ(drafted({{1, 2, 3, 4}, {0.9f}}, {.n_max = 8, .p_min = 0.5f}), 4);
  EXPECT_EQ(drafted({{1, 2, 3, 4}, {0.9f, 0.4f}}, {.n_max = 8, .n_min = 2, .p_min = 0.5f}), 0);
}

// Passes of a steady cost by a clock that the test turns on: what widths were run is known.
TEST(Session, AutomaticDepthFollowsTheCostOfAPass) {
  const Tokens prompt = prompt_of(20);
  const Trace plain = plain_run(prompt, options_of(300));
  struct Case {
    double row_ms, right;
    bool drafts;
  };
  for (const Case& of : {Case{0.0, 0.9, true}, Case{10.0, 0.9, false}, Case{1.0, 0.0, false}}) {
    double now = 0;
    const auto backend = hooked_backend();
    backend->before = [&](kernels::Pass& pass) {
      now += 10.0 + of.row_ms * static_cast<double>(pass.segments[0].tokens.size() - 1);
    };
    SessionOptions options = options_of(300);
    options.source = replay_source(joined(prompt, plain.tokens), of.right);
    options.depth = {.n_max = 15, .automatic = true};
    options.clock_ms = [&] { return now; };
    Session session(tiny_model(kLlama), backend, options);
    const Trace trace = run(session, prompt);
    EXPECT_EQ(difference(plain, trace), std::nullopt);
    const DraftCounts& counts = session.draft_counts();
    int64_t steps = 0, drafted = 0;
    for (size_t depth = 0; depth < counts.depths.size(); ++depth) {
      steps += counts.depths[depth];
      drafted += counts.depths[depth] * static_cast<int64_t>(depth);
    }
    EXPECT_EQ(steps, counts.steps);
    EXPECT_EQ(drafted, counts.drafted);
    EXPECT_LE(counts.depths.size(), 16u);
    const double mean = static_cast<double>(drafted) / static_cast<double>(steps);
    if (of.drafts) {
      EXPECT_GT(mean, 5.0);
    } else {
      EXPECT_LT(mean, 0.3);
    }
  }
}

// Also over turns, cuts and several sources, whatever the clock says.
TEST(Session, AutomaticDepthChangesNothingHoweverTheClockJumps) {
  const Tokens prompt = prompt_of(60);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SessionOptions options = options_of(60);
    const Trace plain = plain_run(prompt, options);
    options.source = chained(replay_source(joined(prompt, plain.tokens), 0.7, seed),
                             std::make_shared<draft::NgramSource>());
    options.depth = {.n_max = 15, .automatic = true};
    options.clock_ms = wild_clock(seed);
    Session session(tiny_model(kLlama), hooked_backend(), options);
    EXPECT_EQ(difference(plain, run(session, prompt)), std::nullopt) << seed;
    session.truncate(70);
    session.begin(session.history());
    while (!session.finished()) session.step();
    const Tokens after(session.history().begin(), session.history().end());
    EXPECT_TRUE(std::equal(after.begin() + 60, after.begin() + 120, plain.tokens.begin())) << seed;
  }
}

TEST(Session, CountsWhoDraftedWhat) {
  const Tokens prompt = prompt_of(20);
  SessionOptions options = options_of(4);
  const Trace plain = plain_run(prompt, options);
  const int32_t wrong = (plain.tokens[2] + 1) % kVocab;
  options.source = std::make_shared<Scripted>(
      draft::Proposal{.tokens = {plain.tokens[0], plain.tokens[1], wrong}, .part = {1, 0, 1}},
      std::vector<std::string>{"a", "b"});
  options.depth.n_max = 3;
  Session session(tiny_model(kLlama), hooked_backend(), options);
  session.begin(prompt);
  session.step();
  const DraftCounts& counts = session.draft_counts();
  ASSERT_EQ(counts.parts.size(), 2u);
  EXPECT_EQ(counts.parts[0].source, "a");
  EXPECT_EQ(counts.parts[0].proposed_at, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(counts.parts[0].accepted_at, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(counts.parts[1].proposed_at, (std::vector<int64_t>{1, 0, 1}));
  EXPECT_EQ(counts.parts[1].accepted_at, (std::vector<int64_t>{1, 0, 0}));
  EXPECT_EQ(counts.depths, (std::vector<int64_t>{0, 0, 0, 1}));
}

TEST(Session, TellsTheSourceWhatHappened) {
  const Tokens prompt = prompt_of(20);
  const Trace plain = plain_run(prompt, options_of());
  const int32_t wrong = (plain.tokens[1] + 1) % kVocab;
  const auto source =
      std::make_shared<Scripted>(draft::Proposal{{plain.tokens[0], wrong, plain.tokens[2]}, {}});
  SessionOptions options = options_of();
  options.source = source;
  options.depth.n_max = 5;
  Session session(tiny_model(kLlama), hooked_backend(), options);
  session.begin(prompt);
  const Step step = session.step();
  EXPECT_EQ(step.drafted, 3);
  EXPECT_EQ(step.accepted, 1);
  EXPECT_EQ(step.tokens, Tokens(plain.tokens.begin(), plain.tokens.begin() + 2));
  EXPECT_EQ(source->observed.back(), (std::pair<size_t, int>{22, 1}));
  EXPECT_EQ(session.draft_counts().proposed_at, (std::vector<int64_t>{1, 1, 1}));
  EXPECT_EQ(session.draft_counts().accepted_at, (std::vector<int64_t>{1, 0, 0}));
  // Another history: what it has in common is said.
  source->cuts.clear();
  Tokens other(prompt.begin(), prompt.begin() + 12);
  other.push_back((prompt[12] + 1) % kVocab);
  session.begin(other);
  EXPECT_EQ(source->cuts, (std::vector<int64_t>{12}));
  // A longer one is no cut.
  source->cuts.clear();
  other.push_back(5);
  session.begin(other);
  EXPECT_TRUE(source->cuts.empty());
}

TEST(Session, AFaultOfARejectedDraftIsNone) {
  const Tokens prompt = prompt_of(20);
  const Trace plain = plain_run(prompt, options_of());
  int32_t bad = 0;  // stands nowhere in the text
  const Tokens text = joined(prompt, plain.tokens);
  while (std::find(text.begin(), text.end(), bad) != text.end()) ++bad;
  const auto backend = hooked_backend();
  fault_on_token(*backend, bad, 2);
  SessionOptions options = options_of();
  options.depth.n_max = 3;
  for (const Tokens& draft : {Tokens{bad, bad, bad}, Tokens{plain.tokens[0], bad, 1}}) {
    options.source = std::make_shared<Scripted>(draft::Proposal{draft, {}});
    Session session(tiny_model(kLlama), backend, options);
    EXPECT_EQ(difference(plain, run(session, prompt)), std::nullopt);
  }
}

TEST(Session, AFaultOfAnAcceptedDraftEndsTheRequestWherePlainEnds) {
  const Tokens prompt = prompt_of(20);
  const Trace whole = plain_run(prompt, options_of());
  size_t at = 4;
  while (std::find(prompt.begin(), prompt.end(), whole.tokens[at]) != prompt.end() ||
         std::find(whole.tokens.begin(), whole.tokens.begin() + static_cast<ptrdiff_t>(at),
                   whole.tokens[at]) != whole.tokens.begin() + static_cast<ptrdiff_t>(at)) {
    ++at;
  }
  const auto backend = hooked_backend();
  fault_on_token(*backend, whole.tokens[at], 4);
  SessionOptions options = options_of();
  options.chunk = 1;
  Session plain_session(tiny_model(kLlama), backend, options);
  const Trace plain = run(plain_session, prompt);
  EXPECT_EQ(plain.tokens.size(), at + 1);
  EXPECT_EQ(plain.finish, Finish::fault);
  const kernels::Op& op = tiny_model(kLlama)->graph().ops[4];
  EXPECT_EQ(plain.fault, fmt::format("non-finite value in {} of layer {} at position {}", op.name,
                                     op.layer, 20 + at));
  for (const int depth : {1, 3, 15}) {
    options.source = replay_source(joined(prompt, whole.tokens), 1.0);
    options.depth.n_max = depth;
    Session session(tiny_model(kLlama), backend, options);
    EXPECT_EQ(difference(plain, run(session, prompt)), std::nullopt);
    EXPECT_TRUE(session.step().tokens.empty());
    EXPECT_EQ(session.kv().size(), static_cast<int64_t>(20 + at));
  }
}

TEST(Session, AFaultInThePromptIsNamedAndWhatWasBeforeStays) {
  const Tokens prompt = prompt_of(100);
  size_t at = 70;
  while (std::find(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(at), prompt[at]) !=
         prompt.begin() + static_cast<ptrdiff_t>(at)) {
    ++at;
  }
  const auto backend = hooked_backend();
  fault_on_token(*backend, prompt[at], 0);
  for (const int64_t chunk : {1, 16, 64, 200}) {
    SessionOptions options = options_of();
    options.chunk = chunk;
    Session session(tiny_model(kLlama), backend, options);
    const Trace trace = run(session, prompt);
    EXPECT_EQ(trace.finish, Finish::fault);
    EXPECT_TRUE(trace.tokens.empty());
    EXPECT_NE(trace.fault.find(fmt::format("at position {}", at)), std::string::npos)
        << trace.fault;
    EXPECT_EQ(session.kv().size(), static_cast<int64_t>(at));
    // The good part serves the next request.
    const Tokens shorter(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(at));
    const Trace after = run(session, shorter);
    EXPECT_EQ(after.cached, static_cast<int64_t>(at) - 1);
    EXPECT_EQ(difference(plain_run(shorter, options_of()), after, false), std::nullopt);
  }
}

TEST(Session, ARowThatCannotBeSampledIsAFault) {
  const auto backend = hooked_backend();
  backend->after = [](kernels::Pass& pass) {
    if (pass.segments[0].first_position + static_cast<int64_t>(pass.segments[0].tokens.size()) ==
        25) {
      pass.logits[pass.logits.size() - 5] = INFINITY;
    }
  };
  Session session(tiny_model(kLlama), backend, options_of());
  const Trace trace = run(session, prompt_of(20));
  EXPECT_EQ(trace.finish, Finish::fault);
  EXPECT_EQ(trace.fault, "a logit that is not finite at position 24");
  EXPECT_EQ(trace.tokens.size(), 5u);
}

TEST(Session, TellsProgressAndCanBeCancelled) {
  const Tokens prompt = prompt_of(200);
  SessionOptions options = options_of();
  options.chunk = 50;
  Session session(tiny_model(kLlama), hooked_backend(), options);
  std::vector<int64_t> done;
  session.begin(prompt, [&](int64_t n, int64_t total) {
    EXPECT_EQ(total, 200);
    done.push_back(n);
    return true;
  });
  EXPECT_EQ(done, (std::vector<int64_t>{0, 50, 100, 150}));
  EXPECT_FALSE(session.finished());

  Session cancelled(tiny_model(kLlama), hooked_backend(), options);
  cancelled.begin(prompt, [](int64_t n, int64_t) { return n < 100; });
  EXPECT_EQ(cancelled.finish(), Finish::stopped);
  EXPECT_TRUE(cancelled.step().tokens.empty());
  const Trace after = run(cancelled, prompt);
  EXPECT_EQ(after.cached, 100);
  EXPECT_EQ(difference(plain_run(prompt, options_of()), after), std::nullopt);
}

TEST(Session, TakesOverWhatItHas) {
  Session session(tiny_model(kLlama), hooked_backend(), options_of());
  const Tokens prompt = prompt_of(100);
  EXPECT_EQ(run(session, prompt).cached, 0);
  EXPECT_EQ(run(session, prompt).cached, 99);
  // The answer and a further turn: all but the pending token is there.
  const Tokens next =
      joined(Tokens(session.history().begin(), session.history().end()), Tokens{1, 2, 3});
  EXPECT_EQ(run(session, next).cached, 119);
  Tokens changed = prompt;
  changed[40] = (changed[40] + 1) % kVocab;
  EXPECT_EQ(run(session, changed).cached, 40);
  EXPECT_EQ(session.prompt_tokens(), 100);
}

TEST(Session, StopEndsIt) {
  Session session(tiny_model(kLlama), hooked_backend(), options_of());
  session.begin(prompt_of(5));
  session.step();
  session.stop();
  EXPECT_EQ(session.finish(), Finish::stopped);
  EXPECT_TRUE(session.step().tokens.empty());
  EXPECT_EQ(session.generated_tokens(), 1);
}

TEST(Session, AFullPoolLeavesTheStateAsItWas) {
  const auto model = tiny_model(kLlama);
  const int64_t page =
      state::bytes_per_position(model->kv_spec(state::KvType::f16, state::KvType::f16, 512)) *
      kernels::kPagePositions;
  SessionOptions options = options_of(-1);
  options.kv_max_bytes = page;
  Session session(model, hooked_backend(), options);
  const Tokens prompt = prompt_of(60);
  session.begin(prompt);
  while (session.history().size() < 65) session.step();
  const Digest state = session.kv().hash();
  const Tokens history(session.history().begin(), session.history().end());
  for (int i = 0; i < 2; ++i) {
    expect_error([&] { session.step(); }, ExitCode::resource, "");
    EXPECT_EQ(session.kv().hash(), state);
    EXPECT_EQ(Tokens(session.history().begin(), session.history().end()), history);
    EXPECT_FALSE(session.finished());
  }
  // A shorter request still runs.
  EXPECT_EQ(difference(plain_run(prompt, options_of(4)),
                       (session.set_max_tokens(4), run(session, prompt))),
            std::nullopt);
}

TEST(Session, EvaluateShowsTheRowsThatDecodingSees) {
  for (const char* spec : {kLlama, kGemma}) {
    const Tokens prompt = prompt_of(60);
    const Trace plain = plain_run(prompt, options_of(30), spec);
    const Tokens text = joined(prompt, plain.tokens);
    for (const int64_t chunk : {1, 7, 64, 200}) {
      SessionOptions options = options_of(30);
      options.chunk = chunk;
      Session session(tiny_model(spec), hooked_backend(), options);
      std::map<int64_t, Digest> rows;
      session.evaluate(text, [&](int64_t position, std::span<const float> row) {
        rows[position] = sha256(std::as_bytes(row));
      });
      ASSERT_EQ(rows.size(), text.size());
      EXPECT_EQ(rows.begin()->first, 1);
      for (const auto& [position, row] : plain.rows) ASSERT_EQ(rows.at(position), row);
      EXPECT_TRUE(session.finished());
      EXPECT_TRUE(session.step().tokens.empty());
      // Only the last rows, from what is there where the layers let it.
      std::map<int64_t, Digest> some;
      session.evaluate(
          text,
          [&](int64_t position, std::span<const float> row) {
            some[position] = sha256(std::as_bytes(row));
          },
          70);
      ASSERT_EQ(some.size(), 21u);
      for (const auto& [position, row] : some) ASSERT_EQ(rows.at(position), row);
      EXPECT_EQ(difference(plain, run(session, prompt)), std::nullopt);
    }
  }
}

TEST(Session, RestoreChecksTheHistory) {
  Session session(tiny_model(kLlama), hooked_backend(), options_of());
  const Tokens prompt = prompt_of(30);
  session.begin(prompt);
  session.step();
  const auto snapshot = session.snapshot();  // 30 rows
  session.step();
  const Tokens history(session.history().begin(), session.history().end());
  const Digest state = session.kv().hash();
  expect_error([&] { session.restore(snapshot, prompt_of(10)); }, ExitCode::bad_use, "30 tokens");
  EXPECT_EQ(session.kv().hash(), state);
  EXPECT_EQ(Tokens(session.history().begin(), session.history().end()), history);
  session.restore(snapshot, std::span(history).first(31));
  EXPECT_EQ(session.kv().size(), 30);
  EXPECT_EQ(session.step().tokens[0], history[31]);
}

TEST(Session, APlantedBitShows) {
  const Tokens prompt = prompt_of(30);
  const Trace plain = plain_run(prompt, options_of());
  const auto& ops = tiny_model(kLlama)->graph().ops;
  kernels::Plant plant{
      .op = static_cast<int>(ops.size()) - 1, .position = 33, .element = 5, .bit = 3};
  Session session(tiny_model(kLlama), hooked_backend(), options_of());
  session.set_plant(&plant);
  const Trace trace = run(session, prompt);
  EXPECT_TRUE(plant.done);
  const auto differs = difference(plain, trace);
  ASSERT_TRUE(differs);
  EXPECT_EQ(trace.rows.at(33), plain.rows.at(33));
  EXPECT_NE(trace.rows.at(34), plain.rows.at(34));
}

}  // namespace
}  // namespace lockstep::decode::test
