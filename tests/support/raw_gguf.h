// Bytes of a GGUF file put down one field at a time, so that a test can say exactly what is wrong
// with them. The writer of src/gguf refuses to write such files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace lockstep::test {

class RawGguf {
 public:
  template <typename T>
  RawGguf& put(T value) {
    const size_t end = bytes_.size();
    bytes_.resize(end + sizeof(T));
    std::memcpy(bytes_.data() + end, &value, sizeof(T));
    return *this;
  }
  RawGguf& u8(uint8_t value) { return put(value); }
  RawGguf& u32(uint32_t value) { return put(value); }
  RawGguf& u64(uint64_t value) { return put(value); }
  RawGguf& f32(float value) { return put(value); }
  RawGguf& letters(std::string_view text) {
    for (const char letter : text) put(letter);
    return *this;
  }
  RawGguf& text(std::string_view value) { return u64(value.size()).letters(value); }
  RawGguf& zeros(size_t count) {
    bytes_.resize(bytes_.size() + count);
    return *this;
  }
  RawGguf& pad(size_t alignment) {
    return zeros((alignment - bytes_.size() % alignment) % alignment);
  }

  RawGguf& header(uint64_t n_tensors, uint64_t n_keys, uint32_t version = 3) {
    return letters("GGUF").u32(version).u64(n_tensors).u64(n_keys);
  }
  RawGguf& key(std::string_view name, uint32_t type) { return text(name).u32(type); }
  RawGguf& string_key(std::string_view name, std::string_view value) {
    return key(name, 8).text(value);
  }
  RawGguf& u32_key(std::string_view name, uint32_t value) { return key(name, 4).u32(value); }
  RawGguf& tensor(std::string_view name, std::vector<uint64_t> ne, uint32_t type, uint64_t offset) {
    text(name).u32(static_cast<uint32_t>(ne.size()));
    for (const uint64_t extent : ne) u64(extent);
    return u32(type).u64(offset);
  }

  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

}  // namespace lockstep::test
