// A fixed team of workers that run one function together. The team's size never changes a result:
// work is cut into ranges of independent items, and no worker adds to another's sum.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
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

class ThreadTeam {
 public:
  // size >= 1 workers, the calling thread being worker 0. Throws Error(resource) when threads
  // cannot be started.
  explicit ThreadTeam(int size);
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Runs task(worker) on every worker and returns when all are done. Not reentrant. The first
  // exception of a worker is rethrown here.
  void run(const std::function<void(int worker)>& task);

 private:
  void work(int worker);

  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable start_, done_;
  const std::function<void(int)>* task_ = nullptr;
  uint64_t generation_ = 0;
  int running_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
};

}  // namespace lockstep
