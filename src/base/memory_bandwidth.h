// The read bandwidth of main memory, as measured here and now: what a pass that streams weights is
// held against. On shared or power-managed machines it changes by the minute, so a reading is short
// and is taken beside every figure that is compared with it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/huge_memory.h"
#include "base/thread_team.h"

namespace lockstep {

class BandwidthMeter {
 public:
  // Four times the last-level caches that the system reports together, within 256 MiB and 4 GiB.
  static int64_t default_buffer_bytes();

  // Allocates the buffer, in huge pages where the system grants them, and fills it once with
  // non-zero bytes, each worker its share, then reads until readings agree (0.1 to 0.8 s). bytes is
  // rounded up to whole pieces of 1 MiB; below several times the last-level cache a reading is
  // one of the cache. Throws Error(resource).
  explicit BandwidthMeter(int threads, int64_t bytes = default_buffer_bytes());
  BandwidthMeter(const BandwidthMeter&) = delete;
  BandwidthMeter& operator=(const BandwidthMeter&) = delete;

  struct Reading {
    double gb_s = 0;  // 1e9 bytes a second, all threads together
    double ms = 0;
    int64_t bytes = 0;
  };
  // All workers read pieces of the buffer for about `milliseconds` (at least a piece each), going
  // on where the last reading ended: a piece comes again only after the whole buffer. They take
  // pieces as they come, so that a core taken away for a while slows a reading no more than it
  // slows a pass. A side effect that measurements want: what was in the caches before is gone.
  Reading read(double milliseconds = 30);

  int threads() const { return team_.size(); }
  int64_t buffer_bytes() const { return bytes_; }
  // Share of the buffer that lies in huge pages, 0 to 1, asked when it had been filled; 0 where the
  // system does not say.
  double huge_page_share() const { return huge_page_share_; }

 private:
  void settle();

  ThreadTeam team_;
  int64_t bytes_;
  HugeMemory memory_;
  double huge_page_share_ = 0;
  std::atomic<int64_t> next_piece_{0};
  std::atomic<uint64_t> sink_{0};
};

}  // namespace lockstep
