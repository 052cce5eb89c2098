// Pages of KV in a device's memory.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "kernels/cuda/device.h"
#include "kernels/page_memory.h"

namespace lockstep::kernels::cuda {

// Pages are cut from larger pieces, since a piece costs the device as much time as a page. Those
// that come back are handed out again; the pieces go with this object.
class DevicePages final : public PageMemory {
 public:
  explicit DevicePages(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  std::byte* allocate(int64_t bytes) override;
  void release(std::byte* page) noexcept override;
  // Put off: a step that rejects drafts fills rows in every layer's pages, and the next pass can do
  // that in one launch (take_fills). Everything else here sees them as done.
  void fill(std::byte* at, int value, int64_t bytes, int64_t pitch, int64_t rows) override;
  void copy(std::byte* to, const std::byte* from, int64_t bytes, int64_t pitch,
            int64_t rows) override;
  const std::byte* view(const std::byte* page, int64_t bytes, std::byte* buffer) override;
  const char* name() const override { return "device memory"; }

  // Fills that were put off, all of one value; whoever takes them makes them before anything else
  // touches the pages.
  struct Fills {
    std::vector<FillPlace> places;
    int value = 0;
  };
  Fills take_fills();

 private:
  bool cut(int64_t room, int64_t bytes);
  void make_fills();  // with the lock held

  std::shared_ptr<Device> device_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<std::byte>> pieces_;
  std::unordered_map<int64_t, std::vector<std::byte*>> free_;  // by room
  std::unordered_map<std::byte*, int64_t> rooms_;              // of pages that are out
  Fills fills_;
};

}  // namespace lockstep::kernels::cuda
