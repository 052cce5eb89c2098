#include "kernels/cuda/pages.h"

#include <algorithm>
#include <utility>

namespace lockstep::kernels::cuda {
namespace {

constexpr int64_t kAlignment = 256;
constexpr int64_t kPieceBytes = 16 << 20;
constexpr size_t kMostFills = 4096;

}  // namespace

std::byte* DevicePages::allocate(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  const int64_t room = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  std::vector<std::byte*>& free = free_[room];
  if (free.empty() && !cut(room, std::max(room, kPieceBytes)) && !cut(room, room)) return nullptr;
  std::byte* page = free.back();
  free.pop_back();
  rooms_[page] = room;
  return page;
}

bool DevicePages::cut(int64_t room, int64_t bytes) {
  auto* memory = static_cast<std::byte*>(device_->allocate(bytes));
  if (memory == nullptr) return false;
  pieces_.emplace_back(memory, [device = device_](std::byte* piece) { device->release(piece); });
  for (int64_t at = bytes / room * room - room; at >= 0; at -= room) {
    free_[room].push_back(memory + at);
  }
  return true;
}

void DevicePages::release(std::byte* page) noexcept {
  if (page == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto room = rooms_.find(page);
  free_[room->second].push_back(page);
  rooms_.erase(room);
}

void DevicePages::fill(std::byte* at, int value, int64_t bytes, int64_t pitch, int64_t rows) {
  const std::lock_guard lock(mutex_);
  if (value != fills_.value || fills_.places.size() >= kMostFills) make_fills();
  fills_.value = value;
  fills_.places.push_back({at, bytes, pitch, rows});
}

void DevicePages::make_fills() {
  for (const FillPlace& place : fills_.places) {
    device_->fill(place.at, fills_.value, place.bytes, place.pitch, place.rows);
  }
  fills_.places.clear();
}

DevicePages::Fills DevicePages::take_fills() {
  const std::lock_guard lock(mutex_);
  return std::exchange(fills_, Fills{});
}

void DevicePages::copy(std::byte* to, const std::byte* from, int64_t bytes, int64_t pitch,
                       int64_t rows) {
  const std::lock_guard lock(mutex_);
  make_fills();
  device_->copy(to, from, bytes, pitch, rows);
}

const std::byte* DevicePages::view(const std::byte* page, int64_t bytes, std::byte* buffer) {
  const std::lock_guard lock(mutex_);
  make_fills();
  device_->download(buffer, page, bytes);
  return buffer;
}

}  // namespace lockstep::kernels::cuda
