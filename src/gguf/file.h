// A GGUF file (versions 2 and 3), mapped and validated. Source: ggml's docs/gguf.md.
// Every length, count, offset, alignment and dimension product is checked against the file's real
// size before it is used; a File that exists is whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "gguf/types.h"

namespace lockstep::gguf {

// The metadata value types, with the file's numbering.
enum class ValueType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

// "u8", …, "bool", "string", "array".
std::string_view value_type_name(ValueType type);

struct Array;

// One metadata value. Integers of every width are kept as uint64_t or int64_t by signedness, floats
// as double (exact); `type` remembers what the file said.
struct Value {
  ValueType type = ValueType::u8;
  std::variant<uint64_t, int64_t, double, bool, std::string, std::shared_ptr<const Array>> data;
};

// Arrays keep numbers packed and strings as views into the mapping (a vocabulary has 262,144 of
// them). Nested arrays are allowed to depth 4.
struct Array {
  ValueType element_type = ValueType::u8;
  std::variant<std::vector<uint64_t>, std::vector<int64_t>, std::vector<double>, std::vector<bool>,
               std::vector<std::string_view>, std::vector<std::shared_ptr<const Array>>>
      elements;
  size_t size() const;
};

struct Tensor {
  std::string name;
  TensorType type = TensorType::f32;
  // Elements per dimension, ne[0] = contiguous (row) length; 1 to 4 dimensions, missing ones are 1.
  int64_t ne[4] = {1, 1, 1, 1};
  int n_dims = 1;
  std::span<const std::byte> data;  // ne[0]*…*ne[3] elements, whole blocks per row
  int64_t rows() const { return ne[1] * ne[2] * ne[3]; }
};

class File {
 public:
  // Opens path and, when it is the first of a split set (split.count > 1, "-00001-of-0000N.gguf"),
  // the other parts beside it. Throws Error(bad_file): path, what, what to do.
  static File open(const std::filesystem::path& path);
  // Parses bytes already in memory; name stands for the path in messages.
  static File from_memory(std::shared_ptr<const std::vector<std::byte>> bytes, std::string name);

  const std::string& name() const;  // path of the first part, or the given name
  bool mapped() const;              // from files, not from memory
  // Throws Error(bad_file) when a file was written to since it was opened: what was read of it may
  // be neither the old nor the new one.
  void refuse_if_changed() const;
  uint32_t version() const;
  uint64_t alignment() const;
  uint64_t total_bytes() const;                               // of all parts
  std::span<const std::span<const std::byte>> parts() const;  // raw bytes of each part, for hashing

  const std::vector<Tensor>& tensors() const;
  const Tensor* find_tensor(std::string_view tensor_name) const;  // null if absent

  const std::vector<std::pair<std::string, Value>>& metadata() const;  // in file order
  const Value* find(std::string_view key) const;                       // null if absent

  // Typed look-ups. nullopt when the key is absent; Error(bad_file) naming key and types when it is
  // there with another kind of type, or out of the asked range.
  std::optional<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  std::optional<double> number(std::string_view key) const;  // float or integer; finite
  std::optional<bool> boolean(std::string_view key) const;
  std::optional<std::string> string(std::string_view key) const;
  std::shared_ptr<const Array> array(std::string_view key) const;  // null if absent

  // Throws Error(bad_file) "<name>: <what>".
  [[noreturn]] void fail(const std::string& what) const;

 private:
  struct Contents;
  explicit File(std::shared_ptr<const Contents> contents) : contents_(std::move(contents)) {}
  std::shared_ptr<const Contents> contents_;  // copies of a File share one mapping
};

}  // namespace lockstep::gguf
