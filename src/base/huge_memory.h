// A large block of zeroed memory, in huge pages where the system gives them: a matrix that is
// streamed once a token otherwise misses the translation cache on every page.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep {

class HugeMemory {
 public:
  HugeMemory() = default;
  // At least `bytes` bytes on a 2 MiB border. Throws Error(resource): what is needed, what there
  // is; `what` names the contents.
  HugeMemory(int64_t bytes, const char* what);
  ~HugeMemory();
  HugeMemory(HugeMemory&& other) noexcept;
  HugeMemory& operator=(HugeMemory&& other) noexcept;
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;

  std::byte* data() const { return data_; }
  int64_t size() const { return size_; }
  // Bytes that lie in huge pages now (they come with the first write); 0 where the system doesn't
  // say.
  int64_t huge_bytes() const;

 private:
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// Bytes that can be taken without swapping (Linux: MemAvailable); -1 where the system doesn't say.
int64_t available_memory();

}  // namespace lockstep
