// Random conversations: random models, sampling, drafts, depths, chunks, limits, end tokens,
// faults, prefix reuse, snapshots, cuts. Whatever happened before, a session gives what a fresh
// plain one gives.
//
// The same program is linked against deliberately broken copies of session.cc (see CMakeLists.txt);
// there LOCKSTEP_EXPECT_CAUGHT is defined, and finding nothing is the failure.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "arms.h"

namespace lockstep::decode::test {
namespace {

struct Counts {
  int64_t conversations = 0, runs = 0, drafted = 0, accepted = 0, cached = 0, restores = 0;
  std::map<Finish, int64_t> finishes;
};

struct World {
  std::shared_ptr<const model::Model> model;
  std::shared_ptr<lockstep::test::HookedBackend> plain_backend, backend;
};

sample::Parameters random_sampling(std::mt19937_64& rng) {
  sample::Parameters p;
  const float temperatures[] = {0.0f, 0.8f, 1.5f, 0.3f};
  p.temperature = temperatures[rng() % 4];
  p.seed = rng() % 3;
  if (rng() % 2 == 0) {
    p.repeat_penalty = 1.3f;
    p.presence_penalty = 0.5f;
    p.repeat_last_n = rng() % 2 == 0 ? -1 : static_cast<int32_t>(1 + rng() % 20);
  }
  if (rng() % 4 == 0) p.logit_bias = {{static_cast<int32_t>(rng() % kVocab), 3.0f}};
  return p;
}

std::shared_ptr<draft::Source> random_source(std::mt19937_64& rng, const World& world,
                                             const Tokens& recording) {
  switch (rng() % 9) {
    case 0:
      return std::make_shared<draft::NgramSource>(draft::NgramOptions{.longest = 2, .shortest = 1});
    case 1:
      return std::make_shared<draft::SuffixSource>(draft::SuffixOptions{.shortest = 1});
    case 2:
      return replay_source(recording, 0.5 + 0.1 * static_cast<double>(rng() % 6), rng());
    case 3:
      return std::make_shared<draft::ModelSource>(world.model, world.backend, kVocab);
    case 4:
      return std::make_shared<JunkSource>(rng());
    case 5:
      return replay_source(recording, 1.0);
    case 6:
      return chained(replay_source(recording, 0.7, rng()),
                     std::make_shared<draft::SuffixSource>(draft::SuffixOptions{.shortest = 1}));
    case 7:
      return chained(std::make_shared<JunkSource>(rng()),
                     std::make_shared<draft::ModelSource>(world.model, world.backend, kVocab));
    default:
      return nullptr;
  }
}

// One session lives through several runs; each is compared with a fresh plain session.
void converse(uint64_t seed, Counts& counts) {
  std::mt19937_64 rng(seed);
  World world;
  world.model = tiny_model(rng() % 2 == 0 ? kLlama : kGemma);
  world.plain_backend = lockstep::test::hooked_backend(1);
  world.backend = lockstep::test::hooked_backend(rng() % 8 == 0 ? 2 : 1);
  // Choices from rows, or from what a backend lists of some of them.
  if (rng() % 2 == 0) {
    world.backend->lists = [seed](int64_t row) {
      return (seed + static_cast<uint64_t>(row)) % 4 != 0;
    };
  }
  SessionOptions options;
  options.context = 100 + static_cast<int64_t>(rng() % 100);
  options.k_type = rng() % 3 == 0 ? state::KvType::q8_0 : state::KvType::f16;
  const uint64_t v = rng() % 6;
  options.v_type = v == 0 ? state::KvType::q8_0 : v == 1 ? state::KvType::q4_0 : state::KvType::f32;
  if (rng() % 3 == 0) {
    options.is_end = [k = static_cast<int32_t>(7 + rng() % 30)](int32_t id) { return id % k == 3; };
  }
  Session session(world.model, world.backend, options);
  Tokens history = random_prompt(rng, 1 + rng() % 90);
  std::shared_ptr<const state::KvCache::Snapshot> snapshot;
  Tokens snapshot_history;
  for (int turn = 0; turn < 4; ++turn) {
    sample::Parameters sampling = random_sampling(rng);
    const int64_t max_tokens = rng() % 4 == 0 ? -1 : static_cast<int64_t>(rng() % 40);
    world.plain_backend->after = world.backend->after = nullptr;

    SessionOptions plain_options = options;
    plain_options.sampling = sampling;
    plain_options.max_tokens = max_tokens;
    plain_options.chunk = 1;
    Session plain_session(world.model, world.plain_backend, plain_options);
    Trace plain = run(plain_session, history);
    // A fault at a token that plain decoding runs, or at one that only drafts run; not of the
    // prompt, whose rows may be there already.
    const int32_t token = rng() % 2 == 0 && !plain.tokens.empty()
                              ? plain.tokens[rng() % plain.tokens.size()]
                              : static_cast<int32_t>(rng() % kVocab);
    if (rng() % 4 == 0 && std::find(history.begin(), history.end(), token) == history.end()) {
      fault_on_token(*world.plain_backend, token, 3);
      fault_on_token(*world.backend, token, 3);
      Session again(world.model, world.plain_backend, plain_options);
      plain = run(again, history);
    }

    session.set_sampling(sampling);
    session.set_max_tokens(max_tokens);
    session.set_chunk(1 + static_cast<int64_t>(rng() % 2 == 0 ? rng() % 100 : rng() % 8));
    const int depth = static_cast<int>(rng() % 16);
    session.set_source(random_source(rng, world, joined(history, plain.tokens)),
                       {.n_max = depth,
                        .n_min = rng() % 4 == 0 ? static_cast<int>(rng() % 4) : 0,
                        .automatic = rng() % 3 == 0});
    session.set_clock(rng() % 2 == 0 ? wild_clock(rng()) : nullptr);
    const bool cut_short = rng() % 3 == 0;
    const Trace trace =
        run(session, history, cut_short ? static_cast<int>(rng() % 6) : 1 << 30, rng() % 2 == 0);
    if (const auto differs = difference(plain, trace, !cut_short)) {
      throw std::runtime_error(fmt::format("turn {}: {}", turn, *differs));
    }
    ++counts.runs;
    counts.drafted += trace.draft.drafted;
    counts.accepted += trace.draft.accepted;
    counts.cached += trace.cached;
    ++counts.finishes[trace.finish];

    // What comes next: the conversation goes on, is changed somewhere, goes back, or starts anew.
    const Tokens now(session.history().begin(), session.history().end());
    if (!snapshot || rng() % 3 == 0) {
      snapshot = session.snapshot();
      snapshot_history = now;
    }
    switch (rng() % 5) {
      case 0:
        history = now;
        break;
      case 1:
        history = now;
        history[rng() % history.size()] = static_cast<int32_t>(rng() % kVocab);
        break;
      case 2:
        session.restore(snapshot, snapshot_history);
        ++counts.restores;
        history = snapshot_history;
        break;
      case 3: {
        const auto at = static_cast<int64_t>(rng() % (now.size() + 1));
        session.truncate(at);
        history.assign(now.begin(), now.begin() + at);
        break;
      }
      default:
        history = random_prompt(rng, 1 + rng() % 90);
    }
    const Tokens more = random_prompt(rng, history.empty() ? 1 : rng() % 10);
    history = joined(history, more);
    if (static_cast<int64_t>(history.size()) > options.context) {
      history.resize(static_cast<size_t>(options.context));
    }
  }
  ++counts.conversations;
}

TEST(SessionProperty, AnyPastAndAnyDraftEqualAFreshPlainRun) {
#ifdef LOCKSTEP_EXPECT_CAUGHT
  const uint64_t seeds = 150;
#else
  const char* full = std::getenv("LOCKSTEP_FULL");  // scripts/test.sh --full
  const uint64_t seeds = full != nullptr ? 3000 : kSanitized ? 40 : 150;
#endif
  Counts counts;
  std::optional<std::string> found;
  for (uint64_t seed = 0; seed < seeds && !found; ++seed) {
    try {
      converse(seed, counts);
    } catch (const std::exception& error) {
      found = fmt::format("seed {}: {}", seed, error.what());
    }
  }
#ifdef LOCKSTEP_EXPECT_CAUGHT
  ASSERT_TRUE(found) << "the fault was not caught";
  std::printf("caught after %lld whole conversations: %s\n",
              static_cast<long long>(counts.conversations), found->c_str());
#else
  EXPECT_FALSE(found) << *found;
  std::string finishes;
  for (const auto& [finish, n] : counts.finishes) {
    finishes += fmt::format(" {} {},", finish == Finish::none ? "cut" : finish_name(finish), n);
  }
  std::printf("%lld runs:%s %lld drafted, %lld accepted, %lld tokens taken over, %lld restores\n",
              static_cast<long long>(counts.runs), finishes.c_str(),
              static_cast<long long>(counts.drafted), static_cast<long long>(counts.accepted),
              static_cast<long long>(counts.cached), static_cast<long long>(counts.restores));
  EXPECT_GT(counts.accepted, 0);
  EXPECT_LT(counts.accepted, counts.drafted);
  EXPECT_GT(counts.cached, 0);
  for (const Finish finish :
       {Finish::end_token, Finish::max_tokens, Finish::context_full, Finish::fault}) {
    EXPECT_GT(counts.finishes[finish], 0) << finish_name(finish);
  }
#endif
}

}  // namespace
}  // namespace lockstep::decode::test
