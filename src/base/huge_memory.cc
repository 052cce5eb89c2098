#include "base/huge_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <utility>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;

using ProcFile = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

ProcFile open_proc(const char* path) {
  return {std::fopen(path, "r"), [](std::FILE* file) { return file ? std::fclose(file) : 0; }};
}

[[noreturn]] void refuse(int64_t bytes, const char* what, int64_t available) {
  constexpr double kGiB = 1 << 30;
  std::string message = fmt::format("no memory for {}: {:.2f} GiB are needed", what,
                                    static_cast<double>(bytes) / kGiB);
  if (available >= 0) {
    message += fmt::format(", {:.2f} GiB are free", static_cast<double>(available) / kGiB);
  }
  throw Error(ExitCode::resource, message + "; free some, or use a smaller model");
}

}  // namespace

int64_t available_memory() {
  const ProcFile file = open_proc("/proc/meminfo");
  char line[256];
  while (file && std::fgets(line, sizeof line, file.get())) {
    int64_t kilobytes = 0;
    if (std::sscanf(line, "MemAvailable: %" SCNd64 " kB", &kilobytes) == 1) return kilobytes * 1024;
  }
  return -1;
}

HugeMemory::HugeMemory(int64_t bytes, const char* what) {
  if (bytes <= 0) return;
  // The system would promise more than there is, and end the process when the promise is called in.
  const int64_t available = available_memory();
  if (available >= 0 && bytes > available) refuse(bytes, what, available);
  const int64_t size = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  // One page more than needed, so that a 2 MiB border lies inside; the rest is given back.
  const int64_t whole = size + kHugePage;
  void* mapped = ::mmap(nullptr, static_cast<size_t>(whole), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) refuse(bytes, what, available);
  auto* begin = static_cast<std::byte*>(mapped);
  const auto misfit = static_cast<int64_t>(reinterpret_cast<uintptr_t>(begin) % kHugePage);
  const int64_t lead = misfit == 0 ? 0 : kHugePage - misfit;
  if (lead > 0) ::munmap(begin, static_cast<size_t>(lead));
  ::munmap(begin + lead + size, static_cast<size_t>(whole - lead - size));
  data_ = begin + lead;
  size_ = size;
  ::madvise(data_, static_cast<size_t>(size_), MADV_HUGEPAGE);  // small pages where it's refused
}

HugeMemory::~HugeMemory() {
  if (data_) ::munmap(data_, static_cast<size_t>(size_));
}

HugeMemory::HugeMemory(HugeMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

HugeMemory& HugeMemory::operator=(HugeMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

int64_t HugeMemory::huge_bytes() const {
  const ProcFile file = open_proc("/proc/self/smaps");
  const auto begin = reinterpret_cast<uintptr_t>(data_);
  char line[512];
  bool inside = false;
  int64_t bytes = 0;
  while (file && std::fgets(line, sizeof line, file.get())) {
    uintptr_t from = 0, to = 0;
    int64_t kilobytes = 0;
    if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
      // Neighbouring mappings may be shown as one.
      inside = data_ && from < begin + static_cast<uintptr_t>(size_) && to > begin;
    } else if (inside && std::sscanf(line, "AnonHugePages: %" SCNd64 " kB", &kilobytes) == 1) {
      bytes += kilobytes * 1024;
    }
  }
  return bytes < size_ ? bytes : size_;
}

}  // namespace lockstep
