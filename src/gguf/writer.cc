#include "gguf/writer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <new>
#include <stdexcept>

#include "base/error.h"
#include "base/temporary_file.h"

namespace lockstep::gguf {
namespace {

constexpr uint64_t kDefaultAlignment = 32;

void append_bytes(std::vector<std::byte>& out, const void* bytes, size_t count) {
  const size_t end = out.size();
  out.resize(end + count);
  if (count != 0) std::memcpy(out.data() + end, bytes, count);
}

template <typename T>
void append(std::vector<std::byte>& out, T value) {
  append_bytes(out, &value, sizeof(T));
}

void append_text(std::vector<std::byte>& out, std::string_view text) {
  append(out, uint64_t{text.size()});
  append_bytes(out, text.data(), text.size());
}

uint64_t aligned(uint64_t position, uint64_t alignment) {
  return (position + alignment - 1) / alignment * alignment;
}

void append_number(std::vector<std::byte>& out, ValueType type, auto number) {
  switch (type) {
    case ValueType::u8:
      return append(out, static_cast<uint8_t>(number));
    case ValueType::i8:
      return append(out, static_cast<int8_t>(number));
    case ValueType::u16:
      return append(out, static_cast<uint16_t>(number));
    case ValueType::i16:
      return append(out, static_cast<int16_t>(number));
    case ValueType::u32:
      return append(out, static_cast<uint32_t>(number));
    case ValueType::i32:
      return append(out, static_cast<int32_t>(number));
    case ValueType::u64:
      return append(out, static_cast<uint64_t>(number));
    case ValueType::i64:
      return append(out, static_cast<int64_t>(number));
    case ValueType::f32:
      return append(out, static_cast<float>(number));
    case ValueType::f64:
      return append(out, static_cast<double>(number));
    default:
      throw std::invalid_argument("a number was given for a metadata type that holds none");
  }
}

void append_array(std::vector<std::byte>& out, const Array& array);

void append_element(std::vector<std::byte>& out, ValueType type, uint64_t number) {
  append_number(out, type, number);
}
void append_element(std::vector<std::byte>& out, ValueType type, int64_t number) {
  append_number(out, type, number);
}
void append_element(std::vector<std::byte>& out, ValueType type, double number) {
  append_number(out, type, number);
}
void append_element(std::vector<std::byte>& out, ValueType, bool flag) {
  append(out, static_cast<uint8_t>(flag));
}
void append_element(std::vector<std::byte>& out, ValueType, std::string_view text) {
  append_text(out, text);
}
void append_element(std::vector<std::byte>& out, ValueType,
                    const std::shared_ptr<const Array>& array) {
  append_array(out, *array);
}

void append_array(std::vector<std::byte>& out, const Array& array) {
  append(out, static_cast<uint32_t>(array.element_type));
  append(out, uint64_t{array.size()});
  std::visit(
      [&](const auto& list) {
        for (const auto& element : list) append_element(out, array.element_type, element);
      },
      array.elements);
}

// What can be had without pushing anything else out, as Linux estimates it; else all there is.
uint64_t available_memory() {
  std::ifstream info("/proc/meminfo");
  for (std::string word; info >> word;) {
    uint64_t kib = 0;
    if (word == "MemAvailable:" && info >> kib) return kib * 1024;
  }
  return static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

Writer::Writer(uint32_t alignment) : alignment_(alignment) {
  if (!std::has_single_bit(alignment) || alignment < 8) {
    throw std::invalid_argument("GGUF alignment must be a power of two of at least 8");
  }
  if (alignment != kDefaultAlignment) add_u32("general.alignment", alignment);
}

void Writer::add_key(const std::string& key, ValueType type) {
  append_text(metadata_, key);
  append(metadata_, static_cast<uint32_t>(type));
  ++n_keys_;
}

void Writer::add_array_key(const std::string& key, ValueType element_type, uint64_t count) {
  add_key(key, ValueType::array);
  append(metadata_, static_cast<uint32_t>(element_type));
  append(metadata_, count);
}

void Writer::add(const std::string& key, const Value& value) {
  add_key(key, value.type);
  std::visit([&](const auto& held) { append_element(metadata_, value.type, held); }, value.data);
}

void Writer::add_u32(const std::string& key, uint32_t value) {
  add_key(key, ValueType::u32);
  append(metadata_, value);
}
void Writer::add_u64(const std::string& key, uint64_t value) {
  add_key(key, ValueType::u64);
  append(metadata_, value);
}
void Writer::add_i32(const std::string& key, int32_t value) {
  add_key(key, ValueType::i32);
  append(metadata_, value);
}
void Writer::add_f32(const std::string& key, float value) {
  add_key(key, ValueType::f32);
  append(metadata_, value);
}
void Writer::add_bool(const std::string& key, bool value) {
  add_key(key, ValueType::boolean);
  append(metadata_, static_cast<uint8_t>(value));
}
void Writer::add_string(const std::string& key, const std::string& value) {
  add_key(key, ValueType::string);
  append_text(metadata_, value);
}
void Writer::add_strings(const std::string& key, const std::vector<std::string>& values) {
  add_array_key(key, ValueType::string, values.size());
  for (const std::string& value : values) append_text(metadata_, value);
}
void Writer::add_u32s(const std::string& key, const std::vector<uint32_t>& values) {
  add_array_key(key, ValueType::u32, values.size());
  for (const uint32_t value : values) append(metadata_, value);
}
void Writer::add_i32s(const std::string& key, const std::vector<int32_t>& values) {
  add_array_key(key, ValueType::i32, values.size());
  for (const int32_t value : values) append(metadata_, value);
}
void Writer::add_f32s(const std::string& key, const std::vector<float>& values) {
  add_array_key(key, ValueType::f32, values.size());
  for (const float value : values) append(metadata_, value);
}
void Writer::add_bools(const std::string& key, const std::vector<bool>& values) {
  add_array_key(key, ValueType::boolean, values.size());
  for (const bool value : values) append(metadata_, static_cast<uint8_t>(value));
}

void Writer::add_tensor(const std::string& name, TensorType type, const std::vector<int64_t>& ne,
                        std::function<void(std::span<std::byte>)> fill) {
  const TypeInfo& info = type_info(type);
  if (ne.empty() || ne.size() > 4 || ne[0] % info.block_elements != 0) {
    throw std::invalid_argument(name + ": 1 to 4 dimensions and whole blocks are needed");
  }
  int64_t bytes = info.block_bytes;
  int64_t end = 0;
  bool too_large = false;
  for (size_t d = 0; d < ne.size(); ++d) {
    if (ne[d] <= 0) throw std::invalid_argument(name + ": a dimension is not positive");
    too_large |=
        __builtin_mul_overflow(bytes, d == 0 ? ne[0] / info.block_elements : ne[d], &bytes);
  }
  const auto offset = static_cast<int64_t>(aligned(data_bytes_, alignment_));
  too_large |= __builtin_add_overflow(offset, bytes, &end);
  // The header and the paddings must fit on top; half of the range is plenty for both.
  if (too_large || end > INT64_MAX / 2)
    throw std::invalid_argument(name + ": the file would pass 2^62 bytes");
  tensors_.push_back({name, type, ne, static_cast<uint64_t>(offset), static_cast<uint64_t>(bytes),
                      std::move(fill)});
  data_bytes_ = static_cast<uint64_t>(end);
}

std::vector<std::byte> Writer::header() const {
  std::vector<std::byte> out;
  for (const char letter : {'G', 'G', 'U', 'F'}) append(out, letter);
  append(out, uint32_t{3});
  append(out, uint64_t{tensors_.size()});
  append(out, n_keys_);
  append_bytes(out, metadata_.data(), metadata_.size());
  for (const PendingTensor& tensor : tensors_) {
    append_text(out, tensor.name);
    append(out, static_cast<uint32_t>(tensor.ne.size()));
    for (const int64_t extent : tensor.ne) append(out, extent);
    append(out, static_cast<uint32_t>(tensor.type));
    append(out, tensor.offset);
  }
  if (!tensors_.empty()) out.resize(aligned(out.size(), alignment_));
  return out;
}

uint64_t Writer::total_bytes() const {
  const uint64_t header_bytes = header().size();
  // The last tensor is padded too: other readers expect it.
  return tensors_.empty() ? header_bytes : header_bytes + aligned(data_bytes_, alignment_);
}

void Writer::write_into(std::span<std::byte> out,
                        const std::function<void(uint64_t)>& progress) const {
  const std::vector<std::byte> head = header();
  std::memcpy(out.data(), head.data(), head.size());
  for (const PendingTensor& tensor : tensors_) {
    tensor.fill(out.subspan(head.size() + tensor.offset, tensor.bytes));
    if (progress) progress(head.size() + tensor.offset + tensor.bytes);
  }
}

void Writer::write_file(const std::filesystem::path& path,
                        const std::function<void(uint64_t)>& progress) const {
  TemporaryFile file(path, total_bytes());
  write_into(file.bytes(), progress);
  file.keep();
}

std::vector<std::byte> Writer::to_memory() const {
  const uint64_t size = total_bytes();
  // Asked first, since an allocator that overcommits would say yes and the machine would pay later.
  if (const uint64_t available = available_memory(); size > available) {
    throw Error(
        ExitCode::resource,
        fmt::format("a model in memory needs {} bytes and this machine has {} available; write "
                    "it to a file, or ask for a smaller one",
                    size, available));
  }
  std::vector<std::byte> out;
  try {
    out.resize(size);
  } catch (const std::bad_alloc&) {
    throw Error(
        ExitCode::resource,
        fmt::format("a model in memory needs {} bytes, which are not free; write it to a file",
                    size));
  }
  write_into(out, {});
  return out;
}

}  // namespace lockstep::gguf
