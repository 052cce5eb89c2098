// Jobs for a scheduler: what is asked, what is heard, and what a session of its own would say.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <random>

#include "decode/session.h"
#include "draft/factory.h"
#include "serve/scheduler.h"
#include "synth/synth.h"

namespace lockstep::serve {

using Tokens = std::vector<int32_t>;

inline constexpr int32_t kVocab = 300;
inline constexpr int64_t kContext = 512;
inline const char* const kModel =
    "llama-tiny,layers=2,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=128,vocab=300,ctx=4096@q8_0,"
    "seed=1";

struct World {
  std::shared_ptr<const model::Model> model =
      model::Model::load(synth::make_in_memory(synth::parse_synth(kModel)));
  text::Tokenizer tokenizer = text::Tokenizer::load(model->file());
  std::shared_ptr<kernels::Backend> backend = kernels::make_cpu_backend("", 1);
};
inline World& world() {
  static World made;
  return made;
}

// What a job has been told.
struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<int, Tokens> ids;
  std::map<int, std::string> text;
  std::map<int, Event> ended;  // end or failed
  std::function<void(const Event&)> also;
  int64_t events = 0;

  void hear(const Event& event) {
    if (also) also(event);
    const std::lock_guard lock(mutex);
    ++events;
    Tokens& mine = ids[event.sequence];
    mine.insert(mine.end(), event.ids.begin(), event.ids.end());
    text[event.sequence] += event.text;
    if (event.kind == Event::Kind::end || event.kind == Event::Kind::failed) {
      ended[event.sequence] = event;
    }
    changed.notify_all();
  }
  bool wait(size_t sequences, std::chrono::milliseconds most = std::chrono::seconds(60)) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, most, [&] { return ended.size() == sequences; });
  }
  int64_t count() {
    const std::lock_guard lock(mutex);
    return events;
  }
};

struct Made {
  std::shared_ptr<Job> job;
  std::shared_ptr<Heard> heard = std::make_shared<Heard>();
};

inline Made make_job(Tokens prompt, int64_t max_tokens, uint64_t seed, int64_t n = 1,
                     bool stream = false, bool reads = true) {
  Made made;
  made.job = std::make_shared<Job>();
  made.job->request.max_tokens = max_tokens;
  made.job->request.n = n;
  made.job->request.stream = stream;
  made.job->prepared.prompts = {std::move(prompt)};
  made.job->prepared.sampling.temperature = seed % 3 == 0 ? 0.0f : 1.2f;
  made.job->prepared.sampling.seed = seed;
  made.job->sink = [heard = made.heard, job = made.job.get(), reads](Event event) {
    heard->hear(event);
    if (reads) job->sent(event.weight);
  };
  return made;
}

inline Tokens random_tokens(std::mt19937_64& rng, size_t n) {
  Tokens tokens;
  while (tokens.size() < n) tokens.push_back(static_cast<int32_t>(rng() % kVocab));
  return tokens;
}

// The job's choice, by a session that nobody shares.
inline Tokens alone(const Job& job, int64_t choice, int64_t context = kContext) {
  decode::SessionOptions o;
  o.context = context;
  o.sampling = job.prepared.sampling;
  o.sampling.choice_index = static_cast<uint32_t>(choice);
  o.max_tokens = job.request.max_tokens;
  o.is_end = [](int32_t id) { return world().tokenizer.is_eog(id); };
  decode::Session session(world().model, world().backend->sibling("", 1), o);
  session.begin(job.prepared.prompts[0]);
  while (!session.finished()) session.step();
  return {session.generated().begin(), session.generated().end()};
}

}  // namespace lockstep::serve
