// Jobs that share a scheduler: each gets what a session of its own would give it, waits for its
// pages, and ends when its client does.
#include <gtest/gtest.h>

#include <thread>

#include "jobs.h"

namespace lockstep::serve {
namespace {

using namespace std::chrono_literals;

SchedulerOptions options(int parallel, int64_t pool = 4096) {
  SchedulerOptions o;
  o.parallel = parallel;
  o.pool_positions = pool;
  o.context = kContext;
  o.chunk = 16;
  o.make_source = [](const auto&) { return std::make_shared<draft::SuffixSource>(); };
  o.depth = {.n_max = 4};
  o.engine = {"test", ""};
  return o;
}

std::unique_ptr<Scheduler> scheduler(const SchedulerOptions& o) {
  return std::make_unique<Scheduler>(world().model, world().backend, world().tokenizer, o);
}

TEST(Scheduler, EachAnswerIsWhatItIsAlone) {
  std::mt19937_64 rng(1);
  int64_t cached = 0;
  for (const int parallel : {1, 3}) {
    // Pages for little more than one whole context: most have to wait, and idle slots to forget.
    const auto s = scheduler(options(parallel, 640));
    std::vector<Made> jobs;
    Tokens before;
    for (uint64_t i = 0; i < 30; ++i) {
      Tokens prompt = random_tokens(rng, 1 + rng() % 60);
      if (i % 3 == 1) prompt.insert(prompt.begin(), before.begin(), before.end());
      before = prompt;
      const int64_t limit = rng() % 10 == 0 ? -1 : static_cast<int64_t>(rng() % 30);
      jobs.push_back(make_job(prompt, limit, i, 1 + static_cast<int64_t>(rng() % 3), i % 2 == 0));
      if (i % 5 == 4) jobs.back().job->request.cache_prompt = false;
      s->submit(jobs.back().job);
      if (i % 7 == 6) s->cancel(*jobs.back().job);
      if (i % 4 == 0) std::this_thread::sleep_for(1ms);
    }
    for (size_t i = 0; i < jobs.size(); ++i) {
      const Job& job = *jobs[i].job;
      if (job.cancelled) continue;
      ASSERT_TRUE(jobs[i].heard->wait(static_cast<size_t>(job.request.n))) << i;
      for (int64_t choice = 0; choice < job.request.n; ++choice) {
        const Event& end = jobs[i].heard->ended[static_cast<int>(choice)];
        ASSERT_EQ(end.kind, Event::Kind::end) << end.error.message;
        const Tokens expected = alone(job, choice);
        EXPECT_EQ(jobs[i].heard->ids[static_cast<int>(choice)], expected)
            << "job " << i << ", choice " << choice << ", parallel " << parallel;
        EXPECT_EQ(end.result->token_sha256, decode::token_sha256(expected));
        EXPECT_EQ(end.timings.predicted_n, std::ssize(expected));
        // Negative control: another choice gives something else, so that equality says something.
        if (choice == 1 && expected.size() > 8 && job.prepared.sampling.temperature > 0) {
          EXPECT_NE(expected, alone(job, 0));
        }
        cached += end.timings.cache_n;
      }
    }
    const Status status = s->status();
    EXPECT_EQ(status.reserved_positions, 0);
    EXPECT_LE(status.kept_positions, 640);
    EXPECT_GT(status.counters.cancelled, 0);
  }
  EXPECT_GT(cached, 0);
}

TEST(Scheduler, AnAnswerWaitsForItsPagesAndIsNotCutShort) {
  const auto s = scheduler(options(3, kContext));  // pages for one answer without a limit
  std::vector<Made> jobs;
  std::mt19937_64 rng(2);
  for (uint64_t i = 0; i < 3; ++i) {
    jobs.push_back(make_job(random_tokens(rng, 5), -1, 3 * i));
    // Never ends by itself.
    for (const int32_t id : world().tokenizer.eog_tokens()) {
      jobs.back().job->prepared.sampling.logit_bias.emplace_back(
          id, -std::numeric_limits<float>::infinity());
    }
    s->submit(jobs.back().job);
  }
  int64_t most = 0;
  while (!jobs[2].heard->wait(1, 1ms)) {
    const Status status = s->status();
    EXPECT_LE(status.reserved_positions, kContext);
    int64_t processing = 0;
    for (const SlotStatus& slot : status.slots) processing += slot.processing ? 1 : 0;
    most = std::max(most, processing);
  }
  EXPECT_EQ(most, 1);
  for (Made& job : jobs) {
    ASSERT_TRUE(job.heard->wait(1));
    EXPECT_EQ(job.heard->ids[0].size(), static_cast<size_t>(kContext - 5));
    EXPECT_EQ(job.heard->ended[0].stop, StopKind::limit);
  }
}

TEST(Scheduler, StopStringsCutWhereTheyBegin) {
  const auto s = scheduler(options(2));
  std::mt19937_64 rng(3);
  const Tokens prompt = random_tokens(rng, 12);
  Made whole = make_job(prompt, 40, 0);
  s->submit(whole.job);
  ASSERT_TRUE(whole.heard->wait(1));
  const std::string text = whole.heard->text[0];
  ASSERT_GT(text.size(), 20u);
  const std::string stop = text.substr(10, 3);
  Made cut = make_job(prompt, 40, 0, 1, true);
  cut.job->request.stops = {stop};
  s->submit(cut.job);
  ASSERT_TRUE(cut.heard->wait(1));
  EXPECT_EQ(cut.heard->text[0], text.substr(0, text.find(stop)));
  EXPECT_EQ(cut.heard->ended[0].stop, StopKind::word);
  EXPECT_EQ(cut.heard->ended[0].stopping_word, stop);
  EXPECT_GT(cut.heard->ended[0].timings.cache_n, 0);
}

TEST(Scheduler, WhoDoesNotReadPausesAloneAndIsDroppedInTheEnd) {
  SchedulerOptions o = options(2, 8192);
  o.context = 4096;
  o.make_source = nullptr;
  o.stall_seconds = 1.0;
  const auto s = scheduler(o);
  std::mt19937_64 rng(4);
  Made deaf = make_job(random_tokens(rng, 5), -1, 0, 1, true, false);
  deaf.job->request.return_tokens = true;  // an event for every token
  for (const int32_t id : world().tokenizer.eog_tokens()) {
    deaf.job->prepared.sampling.logit_bias.emplace_back(id,
                                                        -std::numeric_limits<float>::infinity());
  }
  s->submit(deaf.job);
  while (deaf.heard->count() <= kMostUnsent) std::this_thread::sleep_for(1ms);
  Made other = make_job(random_tokens(rng, 5), 50, 1, 1, true);
  s->submit(other.job);
  ASSERT_TRUE(other.heard->wait(1));
  EXPECT_LE(deaf.heard->count(), kMostUnsent + 3);
  ASSERT_TRUE(deaf.heard->wait(1));
  EXPECT_EQ(deaf.heard->ended[0].kind, Event::Kind::failed);
  EXPECT_EQ(deaf.heard->ended[0].error.status, 408);
  // The event goes out before the slot is cleared.
  for (int i = 0; i < 2000 && s->status().reserved_positions > 0; ++i) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(s->status().reserved_positions, 0);
}

TEST(Scheduler, CancelFreesTheSlotBeforeTheNextPass) {
  const auto s = scheduler(options(1));
  std::mt19937_64 rng(5);
  Made endless = make_job(random_tokens(rng, 300), 200, 0, 1, true);
  s->submit(endless.job);
  s->cancel(*endless.job);  // in the middle of its prompt, or before
  Made next = make_job(random_tokens(rng, 5), 5, 1);
  s->submit(next.job);
  ASSERT_TRUE(next.heard->wait(1));
  EXPECT_TRUE(endless.heard->ended.empty());
  EXPECT_EQ(s->status().counters.cancelled, 1);
}

TEST(Scheduler, RefusesWhatCannotFit) {
  const auto s = scheduler(options(2));
  std::mt19937_64 rng(6);
  Made job = make_job(random_tokens(rng, kContext), 1, 0);
  try {
    s->submit(job.job);
    FAIL();
  } catch (const RequestError& error) {
    EXPECT_EQ(error.error().type, "exceed_context_size_error");
    EXPECT_EQ(error.error().extra["n_prompt_tokens"], kContext);
  }
  Made slot = make_job(random_tokens(rng, 5), 1, 0);
  slot.job->request.id_slot = 2;
  EXPECT_THROW(s->submit(slot.job), RequestError);
}

TEST(Scheduler, TheQueueHasALimit) {
  SchedulerOptions o = options(2);
  o.queue = 3;
  const auto s = scheduler(o);
  std::vector<std::shared_ptr<void>> places;
  for (int i = 0; i < 5; ++i) {
    places.push_back(s->enter());
    EXPECT_TRUE(places.back());
  }
  EXPECT_FALSE(s->enter());
  places.pop_back();
  EXPECT_TRUE(s->enter());
}

TEST(Scheduler, StopLetsRunningAnswersEndAndRefusesTheOthers) {
  std::mt19937_64 rng(7);
  SchedulerOptions o = options(1);
  o.context = 4096;
  const auto s = scheduler(o);
  const auto endless = [&](Made& made) {
    for (const int32_t id : world().tokenizer.eog_tokens()) {
      made.job->prepared.sampling.logit_bias.emplace_back(id,
                                                          -std::numeric_limits<float>::infinity());
    }
  };
  Made running = make_job(random_tokens(rng, 5), 1500, 0, 1, true);
  endless(running);
  Made waiting = make_job(random_tokens(rng, 5), 30, 1);
  s->submit(running.job);
  s->submit(waiting.job);
  while (running.heard->count() == 0) std::this_thread::sleep_for(1ms);
  s->stop(60);
  EXPECT_EQ(running.heard->ended.at(0).kind, Event::Kind::end);
  EXPECT_EQ(running.heard->ids[0], alone(*running.job, 0, 4096));
  EXPECT_EQ(waiting.heard->ended.at(0).kind, Event::Kind::failed);
  EXPECT_EQ(waiting.heard->ended.at(0).error.status, 503);
  Made late = make_job(random_tokens(rng, 5), 1, 0);
  EXPECT_THROW(s->submit(late.job), RequestError);

  // Without time to end, a running answer ends in an error.
  const auto hasty = scheduler(o);
  Made cut = make_job(random_tokens(rng, 5), -1, 3, 1, true);
  endless(cut);
  hasty->submit(cut.job);
  while (cut.heard->count() == 0) std::this_thread::sleep_for(1ms);
  hasty->stop(0);
  EXPECT_EQ(cut.heard->ended.at(0).error.status, 503);
}

}  // namespace
}  // namespace lockstep::serve
