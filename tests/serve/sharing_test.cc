// What requests share: beginnings, passes, memory. Each answer stays what it is alone.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "hooked_backend.h"
#include "jobs.h"

namespace lockstep::serve {
namespace {

using namespace std::chrono_literals;

const char* const kWindowed =
    "gemma3-tiny,layers=7,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=300,ctx=4096,window="
    "100"
    "@q8_0,seed=3";
const char* const kDrafter =
    "llama-tiny,layers=1,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=64,vocab=300,ctx=4096@q8_0,"
    "seed=2";

std::shared_ptr<const model::Model> made(const char* spec) {
  return model::Model::load(synth::make_in_memory(synth::parse_synth(spec)));
}

// A scheduler over a backend that counts.
struct Served {
  std::shared_ptr<const model::Model> model;
  std::shared_ptr<lockstep::test::HookedBackend> backend = lockstep::test::hooked_backend(1);
  std::atomic<int64_t> passes{0}, rows{0}, most_rows{0};
  std::unique_ptr<Scheduler> scheduler;  // last, so that its thread ends before what it counts in

  Served(const char* spec, SchedulerOptions o) : model(made(spec)) {
    backend->before = [this](kernels::Pass& pass) {
      ++passes;
      int64_t n = 0;
      for (const kernels::PassSegment& segment : pass.segments) n += std::ssize(segment.tokens);
      rows += n;
      most_rows = std::max<int64_t>(most_rows, n);
    };
    scheduler =
        std::make_unique<Scheduler>(model, backend, text::Tokenizer::load(model->file()), o);
  }
};

SchedulerOptions options(int parallel, int64_t pool = 8192) {
  SchedulerOptions o;
  o.parallel = parallel;
  o.pool_positions = pool;
  o.context = std::min<int64_t>(pool, 4096);
  o.chunk = 32;
  o.queue = 1000;
  o.engine = {"test", ""};
  return o;
}

Tokens alone(const std::shared_ptr<const model::Model>& model, const Job& job) {
  decode::SessionOptions o;
  o.sampling = job.prepared.sampling;
  o.max_tokens = job.request.max_tokens;
  const auto tokenizer = text::Tokenizer::load(model->file());
  o.is_end = [&](int32_t id) { return tokenizer.is_eog(id); };
  decode::Session session(model, kernels::make_cpu_backend("", 1), o);
  session.begin(job.prepared.prompts[0]);
  while (!session.finished()) session.step();
  return {session.generated().begin(), session.generated().end()};
}

// `begin`, and `n` tokens of its own.
Tokens with_own(const Tokens& begin, std::mt19937_64& rng, size_t n) {
  Tokens tokens = begin;
  const Tokens own = random_tokens(rng, n);
  tokens.insert(tokens.end(), own.begin(), own.end());
  return tokens;
}

TEST(Sharing, TwoThatComeTogetherComputeTheirBeginningOnce) {
  for (const char* spec : {kModel, kWindowed}) {
    Served s(spec, options(4));
    std::mt19937_64 rng(1);
    const Tokens begin = random_tokens(rng, 1000);
    std::vector<Made> jobs;
    for (uint64_t i = 0; i < 4; ++i)
      jobs.push_back(make_job(with_own(begin, rng, 20 + i), 8, 3 * i));
    for (Made& job : jobs) s.scheduler->submit(job.job);
    int64_t cached = 0, computed = 0, generated = 0;
    for (Made& job : jobs) {
      ASSERT_TRUE(job.heard->wait(1));
      const Event& end = job.heard->ended[0];
      ASSERT_EQ(end.kind, Event::Kind::end) << end.error.message;
      EXPECT_EQ(job.heard->ids[0], alone(s.model, *job.job));
      cached += end.timings.cache_n;
      computed += end.timings.prompt_n;
      generated += end.timings.predicted_n;
    }
    // Whole pages of the common tokens, by the three that do not go ahead; to the token by one that
    // came so late that the first was further.
    EXPECT_GE(cached, 3 * (1000 / 64 * 64)) << spec;
    EXPECT_LE(cached, 3 * 1000) << spec;
    EXPECT_EQ(cached + computed, 4 * 1000 + 20 + 21 + 22 + 23);
    // cache_n is true: no row was run but those it leaves.
    EXPECT_EQ(s.rows, computed + generated - 4) << spec;
  }
}

TEST(Sharing, WhatEndedIsThereForTheNextToTheToken) {
  for (const char* spec : {kModel, kWindowed}) {
    Served s(spec, options(2));
    std::mt19937_64 rng(2);
    const Tokens begin = random_tokens(rng, 300);
    Made first = make_job(begin, 30, 3);
    s.scheduler->submit(first.job);
    ASSERT_TRUE(first.heard->wait(1));
    // The chat goes on, in whatever slot: all but the last token's row is there.
    Tokens history = begin;
    history.insert(history.end(), first.heard->ids[0].begin(), first.heard->ids[0].end());
    Made second = make_job(with_own(history, rng, 10), 5, 6);
    second.job->request.id_slot = 1;
    // Another goes off in the middle of a page.
    Made third = make_job(with_own({begin.begin(), begin.begin() + 200}, rng, 10), 5, 9);
    for (Made* job : {&second, &third}) {
      s.scheduler->submit(job->job);
      ASSERT_TRUE(job->heard->wait(1));
      EXPECT_EQ(job->heard->ids[0], alone(s.model, *job->job));
    }
    EXPECT_EQ(second.heard->ended[0].timings.cache_n, std::ssize(history) - 1) << spec;
    EXPECT_GE(third.heard->ended[0].timings.cache_n, 200) << spec;
    Made fourth = make_job(begin, 30, 3);
    fourth.job->request.cache_prompt = false;
    s.scheduler->submit(fourth.job);
    ASSERT_TRUE(fourth.heard->wait(1));
    EXPECT_EQ(fourth.heard->ended[0].timings.cache_n, 0);
    EXPECT_EQ(fourth.heard->ids[0], first.heard->ids[0]);
  }
}

TEST(Sharing, ACommonBeginningTakesItsMemoryOnce) {
  // Three whole contexts would not fit: 3 * (2048 + 64) positions in 4096.
  Served s(kModel, options(3, 4096));
  std::mt19937_64 rng(3);
  const Tokens begin = random_tokens(rng, 2048);
  Made warm = make_job(begin, 1, 0);
  s.scheduler->submit(warm.job);
  ASSERT_TRUE(warm.heard->wait(1));
  std::vector<Made> jobs;
  int64_t most = 0;
  for (uint64_t i = 0; i < 3; ++i) {
    jobs.push_back(make_job(with_own(begin, rng, 4), 200, 3 * i, 1, true));
    jobs.back().heard->also = [&](const Event&) {
      const Status status = s.scheduler->status();
      EXPECT_LE(status.reserved_positions, 4096);
      int64_t processing = 0;
      for (const SlotStatus& slot : status.slots) processing += slot.processing ? 1 : 0;
      most = std::max(most, processing);
    };
  }
  for (Made& job : jobs) s.scheduler->submit(job.job);
  for (Made& job : jobs) {
    ASSERT_TRUE(job.heard->wait(1));
    EXPECT_EQ(job.heard->ids[0], alone(s.model, *job.job));
  }
  EXPECT_EQ(most, 3);
}

TEST(Sharing, MemoryStaysInThePoolWhoeverDrafts) {
  for (const char* spec : {kModel, kWindowed}) {
    const auto drafter = made(kDrafter);
    SchedulerOptions o = options(3, 640);
    const std::shared_ptr<kernels::Backend> of_drafts = kernels::make_cpu_backend("", 1);
    const auto tree = std::make_shared<std::shared_ptr<state::PrefixTree>>();
    o.make_source = [=](std::shared_ptr<state::PagePool> pool) {
      draft::ModelSourceOptions of;
      of.kv_pool = pool;
      of.chunk = of.read_at_most = 32;
      if (pool && !*tree) {
        *tree = std::make_shared<state::PrefixTree>(pool, draft::kv_spec_of(*drafter, of));
      }
      if (pool) of.prefixes = *tree;
      return std::make_shared<draft::ModelSource>(drafter, of_drafts, kVocab, of);
    };
    o.depth = {.n_max = 5};
    Served s(spec, o);
    const int64_t position =
        state::bytes_per_position(s.model->kv_spec(o.k_type, o.v_type, o.context)) +
        state::bytes_per_position(draft::kv_spec_of(*drafter, {}));
    std::mt19937_64 rng(4);
    std::vector<Made> jobs;
    Tokens before;
    for (uint64_t i = 0; i < 40; ++i) {
      Tokens prompt = random_tokens(rng, 1 + rng() % 150);
      if (i % 2 == 1)
        prompt.insert(prompt.begin(), before.begin(), before.begin() + std::ssize(before) / 2);
      before = prompt;
      jobs.push_back(make_job(prompt, static_cast<int64_t>(rng() % 60), i));
      s.scheduler->submit(jobs.back().job);
    }
    int64_t cached = 0, drafted = 0;
    for (Made& job : jobs) {
      while (!job.heard->wait(1, 1ms)) {
        const Status status = s.scheduler->status();
        EXPECT_LE(status.kv_bytes, 640 * position);
        EXPECT_LE(status.reserved_positions, 640);
      }
      ASSERT_EQ(job.heard->ended[0].kind, Event::Kind::end) << job.heard->ended[0].error.message;
      EXPECT_EQ(job.heard->ids[0], alone(s.model, *job.job));
      cached += job.heard->ended[0].timings.cache_n;
      drafted += job.heard->ended[0].timings.draft_n;
    }
    EXPECT_GT(cached, 0);
    EXPECT_GT(drafted, 0);
    const Status status = s.scheduler->status();
    EXPECT_EQ(status.reserved_positions, 0);
    EXPECT_GT(status.kept_positions, 0);
  }
}

// Counted in passes: between two tokens of a stream there is one pass of the model, whatever prompt
// comes in, and in that pass no more of the prompt than a chunk.
TEST(Sharing, ALongPromptHoldsNobodyUpForMoreThanAChunk) {
  SchedulerOptions o = options(4, 16384);
  o.context = 4096;
  Served s(kModel, o);
  std::mt19937_64 rng(5);
  struct Stream {
    Made made;
    int64_t last_pass = 0, longest_gap = 0, tokens = 0;
  };
  std::vector<Stream> streams(3);
  for (uint64_t i = 0; i < 3; ++i) {
    Stream& stream = streams[i];
    stream.made = make_job(random_tokens(rng, 5), 400, 3 * i, 1, true);
    Job& job = *stream.made.job;
    job.request.return_tokens = true;
    for (const int32_t id : world().tokenizer.eog_tokens()) {
      job.prepared.sampling.logit_bias.emplace_back(id, -std::numeric_limits<float>::infinity());
    }
    stream.made.heard->also = [&](const Event& event) {
      const int64_t now = s.passes;
      if (stream.tokens > 0)
        stream.longest_gap = std::max(stream.longest_gap, now - stream.last_pass);
      stream.last_pass = now;
      stream.tokens += std::ssize(event.ids);
    };
  }
  for (Stream& stream : streams) s.scheduler->submit(stream.made.job);
  while (streams[2].made.heard->count() == 0) std::this_thread::sleep_for(1ms);
  s.most_rows = 0;
  Made late = make_job(random_tokens(rng, 4000), 5, 1);
  s.scheduler->submit(late.job);
  ASSERT_TRUE(late.heard->wait(1));
  for (Stream& stream : streams) {
    ASSERT_TRUE(stream.made.heard->wait(1));
    EXPECT_EQ(stream.made.heard->ids[0], alone(s.model, *stream.made.job));
    EXPECT_LE(stream.longest_gap, 1);
    EXPECT_EQ(stream.tokens, 400);
  }
  EXPECT_LE(s.most_rows, o.chunk + 3);
  EXPECT_EQ(late.heard->ids[0], alone(s.model, *late.job));
  // Negative control: where a pass may hold the whole prompt, the rows show it.
  o.chunk = 4096;
  Served careless(kModel, o);
  Made whole = make_job(late.job->prepared.prompts[0], 5, 1);
  careless.scheduler->submit(whole.job);
  ASSERT_TRUE(whole.heard->wait(1));
  EXPECT_GT(careless.most_rows, o.chunk / 2);
  EXPECT_EQ(whole.heard->ids[0], late.heard->ids[0]);
}

}  // namespace
}  // namespace lockstep::serve
