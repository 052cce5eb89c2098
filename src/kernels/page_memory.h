// Where KV pages lie. The backend that reads and writes pages says so; src/state hands pages out,
// forgets, copies and hashes them through this, so that they may be in a device's memory. Calls are
// made between passes, by one thread at a time; each sees what the last pass wrote.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::kernels {

class PageMemory {
 public:
  virtual ~PageMemory() = default;
  // 64-byte aligned; null when there is no more.
  virtual std::byte* allocate(int64_t bytes) = 0;
  virtual void release(std::byte* page) noexcept = 0;
  // `rows` stretches of `bytes`, `pitch` bytes apart.
  virtual void fill(std::byte* at, int value, int64_t bytes, int64_t pitch, int64_t rows) = 0;
  virtual void copy(std::byte* to, const std::byte* from, int64_t bytes, int64_t pitch,
                    int64_t rows) = 0;
  // The page's bytes for the CPU to read: the page itself, or `buffer` (of as many bytes), filled.
  virtual const std::byte* view(const std::byte* page, int64_t bytes, std::byte* buffer) = 0;
  // Its name in messages: "main memory", "device memory".
  virtual const char* name() const = 0;
};

// Pages in main memory, 64-byte aligned: a cache line, and the widest vector load.
PageMemory& main_page_memory();

}  // namespace lockstep::kernels
