// A fixed team of workers that goes through phases of work together. The team's size never changes
// a result: a phase is cut into independent chunks, and no worker adds to another's sum.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace lockstep {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  bool empty() const { return begin >= end; }
};

// The part-th of parts nearly equal, contiguous ranges of [0, n).
constexpr Range part_of(int64_t n, int part, int parts) {
  return {n * part / parts, n * (part + 1) / parts};
}

// What a team does.
class TeamWork {
 public:
  virtual ~TeamWork() = default;
  // Called once for every chunk of every phase, on any worker; phases in order, the chunks of one
  // phase in any order and at once.
  virtual void run(int phase, int chunk, int worker) = 0;
  // Called once when all chunks of the phase are done, before the next begins.
  virtual void after(int /*phase*/) {}
};

// No worker waits for another to arrive, only for chunks that another has begun: one whose core was
// taken away between two chunks holds nobody up, and finds the phase that the others have reached
// when it is back. Who waits spins first, since the next phase is microseconds away when every
// worker has a core, and sleeps when it isn't.
class ThreadTeam {
 public:
  // size >= 1 workers, the calling thread being worker 0. Throws Error(resource) when threads
  // cannot be started.
  explicit ThreadTeam(int size);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // chunks: of each phase, >= 0 (without chunks only `after` runs). Not reentrant, one caller at a
  // time. The first exception is rethrown when all phases are through.
  void run(std::span<const int32_t> chunks, TeamWork& work);
  // One phase.
  void run(int32_t chunks, const std::function<void(int chunk)>& task);

 private:
  void work(int worker);
  bool take_chunk(uint64_t ticket, int worker);
  template <typename Call>
  void guarded(Call&& call);
  void finish_phase(int phase);
  void publish(uint32_t chunks);
  void wait_while(uint64_t ticket, int& spins);

  std::vector<std::thread> threads_;

  // The phase's running number above; below the chunks nobody has taken, or kEnd between runs. A
  // worker that has taken a chunk keeps the phase from ending, so what is written for the phase
  // holds still; a worker that has not reads nothing else. To set it is the last thing that
  // whoever ends a phase does.
  static constexpr uint32_t kEnd = UINT32_MAX;
  alignas(64) std::atomic<uint64_t> ticket_{kEnd};
  alignas(64) std::atomic<int32_t> unfinished_{0};

  // Of the run; written before its first ticket or by whoever ended a phase.
  alignas(64) std::span<const int32_t> chunks_;
  TeamWork* work_ = nullptr;
  int phase_ = 0;
  std::atomic<bool> stop_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace lockstep
