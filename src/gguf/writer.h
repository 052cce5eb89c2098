// Writes GGUF version 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "gguf/file.h"
#include "gguf/types.h"

namespace lockstep::gguf {

class Writer {
 public:
  // alignment: a power of two, at least 8; written as general.alignment unless it is the default.
  explicit Writer(uint32_t alignment = 32);

  // Any value a reader can return, arrays of arrays included.
  void add(const std::string& key, const Value& value);

  void add_u32(const std::string& key, uint32_t value);
  void add_u64(const std::string& key, uint64_t value);
  void add_i32(const std::string& key, int32_t value);
  void add_f32(const std::string& key, float value);
  void add_bool(const std::string& key, bool value);
  void add_string(const std::string& key, const std::string& value);
  void add_strings(const std::string& key, const std::vector<std::string>& values);
  void add_u32s(const std::string& key, const std::vector<uint32_t>& values);
  void add_i32s(const std::string& key, const std::vector<int32_t>& values);
  void add_f32s(const std::string& key, const std::vector<float>& values);
  void add_bools(const std::string& key, const std::vector<bool>& values);

  // ne: 1 to 4 positive dimensions, ne[0] whole blocks; anything else, or a size beyond 63 bits, is
  // std::invalid_argument. fill(out) is called when the tensor's bytes are written, so that a large
  // model is never held whole: out has exactly the tensor's bytes, zeroed.
  void add_tensor(const std::string& name, TensorType type, const std::vector<int64_t>& ne,
                  std::function<void(std::span<std::byte> out)> fill);

  uint64_t total_bytes() const;
  // Writes to an unnamed file in path's directory and names it when whole: neither a failure nor a
  // signal leaves a part of it (where the file system has no unnamed files, all but SIGKILL). A
  // link is written through. Error(resource) says path and reason, and the bytes needed where
  // there is no room. progress(bytes written) is called after each tensor.
  void write_file(const std::filesystem::path& path,
                  const std::function<void(uint64_t)>& progress = {}) const;
  std::vector<std::byte> to_memory() const;

 private:
  struct PendingTensor {
    std::string name;
    TensorType type;
    std::vector<int64_t> ne;
    uint64_t offset, bytes;
    std::function<void(std::span<std::byte>)> fill;
  };
  std::vector<std::byte> header() const;
  void write_into(std::span<std::byte> out, const std::function<void(uint64_t)>& progress) const;
  void add_key(const std::string& key, ValueType type);
  void add_array_key(const std::string& key, ValueType element_type, uint64_t count);

  uint64_t alignment_;
  uint64_t n_keys_ = 0;
  std::vector<std::byte> metadata_;
  std::vector<PendingTensor> tensors_;
  uint64_t data_bytes_ = 0;
};

}  // namespace lockstep::gguf
