#include "base/thread_team.h"

#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

// Some tens of microseconds.
constexpr int kMostSpins = 1000, kFewestSpins = 30;

uint32_t left_of(uint64_t ticket) {
  return static_cast<uint32_t>(ticket);
}

}  // namespace

template <typename Call>
void ThreadTeam::guarded(Call&& call) {
  try {
    call();
  } catch (...) {
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

ThreadTeam::ThreadTeam(int size) {
  try {
    for (int worker = 1; worker < size; ++worker)
      threads_.emplace_back([this, worker] { work(worker); });
  } catch (const std::system_error& error) {
    stop_ = true;
    publish(kEnd);
    for (std::thread& thread : threads_) thread.join();
    throw Error(ExitCode::resource, "cannot start " + std::to_string(size) +
                                        " threads: " + error.what() + "; ask for fewer with -t");
  }
}

ThreadTeam::~ThreadTeam() {
  stop_ = true;
  publish(kEnd);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::run(std::span<const int32_t> chunks, TeamWork& work) {
  chunks_ = chunks;
  work_ = &work;
  finish_phase(-1);
  int spins = kMostSpins;
  while (true) {
    const uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if (left_of(ticket) == kEnd) break;
    if (!take_chunk(ticket, 0)) wait_while(ticket, spins);
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void ThreadTeam::run(int32_t chunks, const std::function<void(int)>& task) {
  class OnePhase final : public TeamWork {
   public:
    explicit OnePhase(const std::function<void(int)>& function) : function_(function) {}
    void run(int, int chunk, int) override { function_(chunk); }

   private:
    const std::function<void(int)>& function_;
  };
  OnePhase phase(task);
  run(std::span(&chunks, 1), phase);
}

void ThreadTeam::work(int worker) {
  int spins = kMostSpins;
  while (true) {
    const uint64_t ticket = ticket_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    if (!take_chunk(ticket, worker)) wait_while(ticket, spins);
  }
}

// False when the ticket has no chunk left; true also when another was faster.
bool ThreadTeam::take_chunk(uint64_t ticket, int worker) {
  if (left_of(ticket) == 0 || left_of(ticket) == kEnd) return false;
  if (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel)) return true;
  const int phase = phase_;
  const int chunk = chunks_[static_cast<size_t>(phase)] - static_cast<int>(left_of(ticket));
  guarded([&] { work_->run(phase, chunk, worker); });
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) finish_phase(phase);
  return true;
}

void ThreadTeam::finish_phase(int phase) {
  if (phase >= 0) guarded([&] { work_->after(phase); });
  for (++phase; phase < static_cast<int>(chunks_.size()); ++phase) {
    phase_ = phase;
    if (chunks_[static_cast<size_t>(phase)] > 0) {
      return publish(static_cast<uint32_t>(chunks_[static_cast<size_t>(phase)]));
    }
    guarded([&] { work_->after(phase); });
  }
  publish(kEnd);
}

void ThreadTeam::publish(uint32_t chunks) {
  unfinished_.store(static_cast<int32_t>(chunks), std::memory_order_relaxed);
  const uint64_t number = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(number << 32 | chunks, std::memory_order_release);
  ticket_.notify_all();
}

void ThreadTeam::wait_while(uint64_t ticket, int& spins) {
  for (int i = 0; i < spins; ++i) {
    if (ticket_.load(std::memory_order_acquire) != ticket) {
      spins = spins * 2 < kMostSpins ? spins * 2 : kMostSpins;
      return;
    }
    __builtin_ia32_pause();
  }
  // Spinning in vain: somebody's core is taken, perhaps by this very loop.
  spins = kFewestSpins;
  ticket_.wait(ticket, std::memory_order_acquire);
}

}  // namespace lockstep
