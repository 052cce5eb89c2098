#include "state/page_pool.h"

#include <string>

#include "base/error.h"

namespace lockstep::state {

PagePool::PagePool(int64_t max_bytes, std::shared_ptr<kernels::PageMemory> memory)
    : owned_(std::move(memory)),
      memory_(owned_ ? *owned_ : kernels::main_page_memory()),
      max_bytes_(max_bytes) {}

PagePool::~PagePool() {
  release_free(0);
}

// Of the caches' parts, the one that was not used for longest. False: there is none.
bool PagePool::drop_oldest() {
  Reclaimable* from = nullptr;
  uint64_t least = 0;
  for (Reclaimable* cache : caches_) {
    const std::optional<uint64_t> oldest = cache->oldest();
    if (!oldest || (from != nullptr && *oldest >= least)) continue;
    from = cache;
    least = *oldest;
  }
  if (from == nullptr) return false;
  from->drop_oldest();
  return true;
}

void PagePool::set_cached(Page& page, bool cached) {
  if (page.cached == cached) return;
  page.cached = cached;
  if (page.references == 1) count_idle(page, cached ? 1 : -1);
}

PageRef PagePool::take(int64_t bytes, PageUse use) {
  while (max_bytes_ > 0 && bytes_in_use_ + bytes > max_bytes_ && drop_oldest()) {
  }
  if (max_bytes_ > 0 && bytes_in_use_ + bytes > max_bytes_) {
    throw Error(ExitCode::resource, "the KV cache needs " + std::to_string(bytes_in_use_ + bytes) +
                                        " bytes and its limit is " + std::to_string(max_bytes_) +
                                        "; use a shorter context, a smaller KV type (-ctk, -ctv) "
                                        "or a higher limit");
  }
  Page*& list = free_[bytes];
  Page* page = list;
  if (page != nullptr) {
    list = page->next_free;
    bytes_free_ -= bytes;
  } else {
    if (max_bytes_ > 0) release_free(max_bytes_ - bytes_in_use_ - bytes);
    auto holder = std::make_unique<Page>();
    holder->data = memory_.allocate(bytes);
    if (holder->data == nullptr) {
      throw Error(ExitCode::resource,
                  std::string("no ") + memory_.name() + " for " + std::to_string(bytes) +
                      " more bytes of KV cache (" + std::to_string(bytes_in_use_) +
                      " in use); use a shorter context (-c) or a smaller KV type (-ctk, -ctv)");
    }
    holder->bytes = bytes;
    holder->pool = this;
    page = holder.release();
  }
  memory_.fill(page->data, kPoison, bytes, bytes, 1);
  page->rows_written = 0;
  page->use = use;
  page->cached = false;
  in_use_[static_cast<size_t>(use)] += bytes;
  ++pages_in_use_;
  bytes_in_use_ += bytes;
  return PageRef(page);
}

// take() has made the list of this size, so nothing here can fail.
void PagePool::give_back(Page* page) noexcept {
  --pages_in_use_;
  bytes_in_use_ -= page->bytes;
  in_use_[static_cast<size_t>(page->use)] -= page->bytes;
  bytes_free_ += page->bytes;
  Page*& list = free_.find(page->bytes)->second;
  page->next_free = std::exchange(list, page);
}

void PagePool::destroy(Page* page) {
  memory_.release(page->data);
  delete page;
}

void PagePool::release_free(int64_t target_bytes) {
  for (auto& [bytes, list] : free_) {
    while (bytes_free_ > target_bytes && list != nullptr) {
      Page* page = list;
      list = page->next_free;
      destroy(page);
      bytes_free_ -= bytes;
    }
  }
}

std::shared_ptr<PagePool> make_page_pool(int64_t max_bytes,
                                         std::shared_ptr<kernels::PageMemory> memory) {
  return std::make_shared<PagePool>(max_bytes, std::move(memory));
}

}  // namespace lockstep::state
