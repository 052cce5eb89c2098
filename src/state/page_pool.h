// Memory of KV pages: handed out, shared by reference count, taken back to be handed out again.
// Everything that shares a pool (caches, snapshots) belongs to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/page_memory.h"

namespace lockstep::state {

class PagePool;

// The byte that every page is filled with when it is handed out, and every forgotten row: f32, f16
// and the scale of a q8_0 or q4_0 block all read as NaN, so that a read before a write becomes a
// fault or a wrong hash instead of passing unseen.
inline constexpr int kPoison = 0xFF;

// Whether later rows see all of a page for as long as the sequence lasts, or only while it is in a
// window.
enum class PageUse : uint8_t { whole, window };

struct Page {
  std::byte* data = nullptr;
  int64_t bytes = 0;
  int64_t references = 0;
  int64_t rows_written = 0;  // rows [rows_written, 64) of every head hold the poison
  PagePool* pool = nullptr;
  Page* next_free = nullptr;
  PageUse use = PageUse::whole;
  bool cached = false;  // one of the references is a cache's, which can do without it
};

// One reference to a page, or none. The pool must outlive it.
class PageRef {
 public:
  PageRef() = default;
  explicit PageRef(Page* page) : page_(page) { hold(); }
  PageRef(const PageRef& other) : PageRef(other.page_) {}
  PageRef(PageRef&& other) noexcept : page_(std::exchange(other.page_, nullptr)) {}
  PageRef& operator=(PageRef other) noexcept {
    std::swap(page_, other.page_);
    return *this;
  }
  ~PageRef() { release(); }

  explicit operator bool() const { return page_ != nullptr; }
  Page* operator->() const { return page_; }
  bool shared() const { return page_ != nullptr && page_->references > 1; }

 private:
  void hold();
  void release();
  Page* page_ = nullptr;
};

// Something that holds pages which it can do without: a cache.
class Reclaimable {
 public:
  virtual ~Reclaimable() = default;
  // PagePool::tick() of when its least recently used part was used; none: nothing can be dropped.
  virtual std::optional<uint64_t> oldest() = 0;
  // Drops that part.
  virtual void drop_oldest() = 0;
};

class PagePool {
 public:
  // max_bytes 0: no limit. memory null: main memory.
  explicit PagePool(int64_t max_bytes, std::shared_ptr<kernels::PageMemory> memory = nullptr);
  ~PagePool();
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  // A page of that many bytes, all poison. Throws Error(resource) when the pages in use would pass
  // the limit or memory is short; before that, what caches can do without is dropped, least
  // recently used first, and free pages of other sizes are released.
  PageRef take(int64_t bytes, PageUse use = PageUse::whole);

  kernels::PageMemory& memory() const { return memory_; }
  int64_t max_bytes() const { return max_bytes_; }
  int64_t pages_in_use() const { return pages_in_use_; }
  int64_t bytes_in_use() const { return bytes_in_use_; }
  int64_t bytes_free() const { return bytes_free_; }  // kept for later use
  // Of the pages in use, those that caches alone hold; and the others, by use.
  int64_t bytes_idle() const { return idle_[0] + idle_[1]; }
  int64_t bytes_pinned(PageUse use) const {
    const auto u = static_cast<size_t>(use);
    return in_use_[u] - idle_[u];
  }

  // A cache joins and leaves; it marks the pages of its references.
  void add(Reclaimable* cache) { caches_.push_back(cache); }
  void remove(Reclaimable* cache) { std::erase(caches_, cache); }
  void set_cached(Page& page, bool cached);
  uint64_t tick() { return ++clock_; }  // what "recently" is measured by, for all caches together

 private:
  friend class PageRef;
  bool drop_oldest();
  void count_idle(const Page& page, int64_t sign) {
    idle_[static_cast<size_t>(page.use)] += sign * page.bytes;
  }
  void give_back(Page* page) noexcept;
  void destroy(Page* page);
  void release_free(int64_t target_bytes);  // until bytes_free_ <= target_bytes

  const std::shared_ptr<kernels::PageMemory> owned_;
  kernels::PageMemory& memory_;
  int64_t max_bytes_ = 0;
  int64_t pages_in_use_ = 0, bytes_in_use_ = 0, bytes_free_ = 0;
  std::array<int64_t, 2> in_use_{}, idle_{};  // bytes, by use
  std::vector<Reclaimable*> caches_;
  uint64_t clock_ = 0;
  std::map<int64_t, Page*> free_;  // a list per page size
};

inline void PageRef::hold() {
  if (page_ == nullptr) return;
  if (page_->references++ == 1 && page_->cached) page_->pool->count_idle(*page_, -1);
}

inline void PageRef::release() {
  if (page_ == nullptr) return;
  if (--page_->references == 0) {
    page_->pool->give_back(page_);
  } else if (page_->references == 1 && page_->cached) {
    page_->pool->count_idle(*page_, 1);
  }
}

std::shared_ptr<PagePool> make_page_pool(int64_t max_bytes /* 0: no limit */,
                                         std::shared_ptr<kernels::PageMemory> memory = nullptr);

}  // namespace lockstep::state
