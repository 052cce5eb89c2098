#include "kernels/page_memory.h"

#include <cstring>
#include <new>

namespace lockstep::kernels {
namespace {

constexpr std::align_val_t kAlignment{64};

class MainMemory final : public PageMemory {
 public:
  std::byte* allocate(int64_t bytes) override {
    return static_cast<std::byte*>(
        ::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow));
  }
  void release(std::byte* page) noexcept override { ::operator delete(page, kAlignment); }
  void fill(std::byte* at, int value, int64_t bytes, int64_t pitch, int64_t rows) override {
    for (int64_t i = 0; i < rows; ++i) {
      std::memset(at + i * pitch, value, static_cast<size_t>(bytes));
    }
  }
  void copy(std::byte* to, const std::byte* from, int64_t bytes, int64_t pitch,
            int64_t rows) override {
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(to + i * pitch, from + i * pitch, static_cast<size_t>(bytes));
    }
  }
  const std::byte* view(const std::byte* page, int64_t, std::byte*) override { return page; }
  const char* name() const override { return "main memory"; }
};

}  // namespace

PageMemory& main_page_memory() {
  static MainMemory memory;
  return memory;
}

}  // namespace lockstep::kernels
