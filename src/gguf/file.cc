#include "gguf/file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/mapped_file.h"
#include "gguf/parser.h"

namespace lockstep::gguf {
namespace {

// "name-00001-of-00003.gguf" -> the name of another part; empty when path is not named so.
std::filesystem::path part_path(const std::filesystem::path& path, uint64_t part, uint64_t parts) {
  const std::string file_name = path.filename().string();
  const std::string suffix = fmt::format("-{:05}-of-{:05}.gguf", 1, parts);
  if (!file_name.ends_with(suffix)) return {};
  return path.parent_path() / (file_name.substr(0, file_name.size() - suffix.size()) +
                               fmt::format("-{:05}-of-{:05}.gguf", part + 1, parts));
}

template <typename Item, typename Key>
std::vector<uint32_t> sorted_index(const std::vector<Item>& items, Key key) {
  std::vector<uint32_t> index(items.size());
  for (size_t i = 0; i < items.size(); ++i) index[i] = static_cast<uint32_t>(i);
  std::sort(index.begin(), index.end(),
            [&](uint32_t a, uint32_t b) { return key(items[a]) < key(items[b]); });
  return index;
}

// The position of the second of two equal neighbours in a sorted index; its size if there is none.
template <typename Item, typename Key>
size_t find_duplicate(const std::vector<Item>& items, const std::vector<uint32_t>& index, Key key) {
  for (size_t i = 1; i < index.size(); ++i) {
    if (key(items[index[i - 1]]) == key(items[index[i]])) return i;
  }
  return index.size();
}

template <typename Item, typename Key>
const Item* look_up(const std::vector<Item>& items, const std::vector<uint32_t>& index, Key key,
                    std::string_view wanted) {
  const auto found =
      std::lower_bound(index.begin(), index.end(), wanted,
                       [&](uint32_t i, std::string_view text) { return key(items[i]) < text; });
  return found != index.end() && key(items[*found]) == wanted ? &items[*found] : nullptr;
}

std::string_view key_of(const std::pair<std::string, Value>& entry) {
  return entry.first;
}
std::string_view name_of(const Tensor& tensor) {
  return tensor.name;
}

}  // namespace

std::string_view value_type_name(ValueType type) {
  switch (type) {
    case ValueType::u8:
      return "u8";
    case ValueType::i8:
      return "i8";
    case ValueType::u16:
      return "u16";
    case ValueType::i16:
      return "i16";
    case ValueType::u32:
      return "u32";
    case ValueType::i32:
      return "i32";
    case ValueType::f32:
      return "f32";
    case ValueType::boolean:
      return "bool";
    case ValueType::string:
      return "string";
    case ValueType::array:
      return "array";
    case ValueType::u64:
      return "u64";
    case ValueType::i64:
      return "i64";
    case ValueType::f64:
      return "f64";
  }
  return "unknown";
}

size_t Array::size() const {
  return std::visit([](const auto& list) { return list.size(); }, elements);
}

struct File::Contents {
  std::string name;
  uint32_t version = 0;
  uint64_t alignment = kDefaultAlignment;
  uint64_t total_bytes = 0;
  uint64_t memory_left = kMaxHeaderMemory;
  std::vector<MappedFile> mappings;
  std::shared_ptr<const std::vector<std::byte>> memory;
  std::vector<std::span<const std::byte>> parts;
  std::vector<std::pair<std::string, Value>> metadata;
  std::vector<Tensor> tensors;
  std::vector<uint32_t> keys_sorted, tensors_sorted;

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ExitCode::bad_file, name + ": " + what);
  }

  Part read_part(std::span<const std::byte> bytes, const std::string& part_name) {
    Part part = parse_part(bytes, part_name, memory_left);
    parts.push_back(bytes);
    total_bytes += bytes.size();
    return part;
  }

  // The first part gives the metadata.
  void take_first(Part part) {
    version = part.version;
    alignment = part.alignment;
    metadata = std::move(part.metadata);
    tensors = std::move(part.tensors);
    keys_sorted = sorted_index(metadata, key_of);
    if (const size_t i = find_duplicate(metadata, keys_sorted, key_of); i < keys_sorted.size()) {
      fail(fmt::format("metadata key {} is there twice; {}",
                       in_quotes(metadata[keys_sorted[i]].first), kMalformed));
    }
  }

  void index_tensors() {
    tensors_sorted = sorted_index(tensors, name_of);
    if (const size_t i = find_duplicate(tensors, tensors_sorted, name_of);
        i < tensors_sorted.size()) {
      fail(fmt::format("tensor {} is there twice; {}", in_quotes(tensors[tensors_sorted[i]].name),
                       kMalformed));
    }
  }
};

namespace {

std::optional<uint64_t> unsigned_of(const std::vector<std::pair<std::string, Value>>& metadata,
                                    std::string_view key) {
  for (const auto& [name, value] : metadata) {
    if (name != key) continue;
    if (const auto* number = std::get_if<uint64_t>(&value.data)) return *number;
    if (const auto* number = std::get_if<int64_t>(&value.data))
      return static_cast<uint64_t>(*number);
  }
  return std::nullopt;
}

}  // namespace

File File::open(const std::filesystem::path& path) {
  auto contents = std::make_shared<Contents>();
  contents->name = path.string();
  contents->mappings.emplace_back(path);
  contents->take_first(contents->read_part(contents->mappings[0].bytes(), contents->name));
  const File file(contents);
  const int64_t n_parts = file.integer("split.count", 0, 65535).value_or(1);
  if (n_parts > 1) {
    const int64_t own_part = file.integer("split.no", 0, 65535).value_or(-1);
    if (own_part != 0) {
      file.fail(fmt::format(
          "is part {} of a set of {}; name the first part, which ends in -00001-of-{:05}.gguf",
          own_part + 1, n_parts, n_parts));
    }
    const auto n_tensors =
        file.integer("split.tensors.count", 0, std::numeric_limits<int32_t>::max());
    if (!n_tensors)
      file.fail("is the first part of a split set but has no split.tensors.count; split it again");
    for (int64_t part = 1; part < n_parts; ++part) {
      const auto next =
          part_path(path, static_cast<uint64_t>(part), static_cast<uint64_t>(n_parts));
      if (next.empty()) {
        file.fail(fmt::format(
            "is the first of {} parts, so its name must end in -00001-of-{:05}.gguf; rename it",
            n_parts, n_parts));
      }
      contents->mappings.emplace_back(next);
      const std::string part_name = next.string();
      Part next_part = contents->read_part(contents->mappings.back().bytes(), part_name);
      if (unsigned_of(next_part.metadata, "split.no") != static_cast<uint64_t>(part) ||
          unsigned_of(next_part.metadata, "split.count") != static_cast<uint64_t>(n_parts)) {
        throw Error(
            ExitCode::bad_file,
            fmt::format(
                "{}: its split.no and split.count do not say part {} of {}; it belongs to another "
                "set, fetch this one again",
                part_name, part + 1, n_parts));
      }
      std::move(next_part.tensors.begin(), next_part.tensors.end(),
                std::back_inserter(contents->tensors));
    }
    if (static_cast<int64_t>(contents->tensors.size()) != *n_tensors) {
      file.fail(fmt::format(
          "split.tensors.count says {} tensors, the {} parts have {}; fetch the set again",
          *n_tensors, n_parts, contents->tensors.size()));
    }
  }
  contents->index_tensors();
  return file;
}

File File::from_memory(std::shared_ptr<const std::vector<std::byte>> bytes, std::string name) {
  auto contents = std::make_shared<Contents>();
  contents->name = std::move(name);
  contents->memory = std::move(bytes);
  contents->take_first(contents->read_part(*contents->memory, contents->name));
  const File file(contents);
  if (file.integer("split.count", 0, 65535).value_or(1) > 1) {
    file.fail("is one part of a split set; open the set from its files");
  }
  contents->index_tensors();
  return file;
}

bool File::mapped() const {
  return contents_->memory == nullptr;
}

void File::refuse_if_changed() const {
  for (const MappedFile& mapping : contents_->mappings) {
    if (!mapping.changed()) continue;
    throw Error(ExitCode::bad_file,
                mapping.path().string() +
                    ": was written to while it was in use, so the result can't be trusted; run "
                    "again, and put new files in place by renaming");
  }
}

const std::string& File::name() const {
  return contents_->name;
}
uint32_t File::version() const {
  return contents_->version;
}
uint64_t File::alignment() const {
  return contents_->alignment;
}
uint64_t File::total_bytes() const {
  return contents_->total_bytes;
}
std::span<const std::span<const std::byte>> File::parts() const {
  return contents_->parts;
}
const std::vector<Tensor>& File::tensors() const {
  return contents_->tensors;
}
const std::vector<std::pair<std::string, Value>>& File::metadata() const {
  return contents_->metadata;
}

const Tensor* File::find_tensor(std::string_view tensor_name) const {
  return look_up(contents_->tensors, contents_->tensors_sorted, name_of, tensor_name);
}

const Value* File::find(std::string_view key) const {
  const auto* entry = look_up(contents_->metadata, contents_->keys_sorted, key_of, key);
  return entry ? &entry->second : nullptr;
}

void File::fail(const std::string& what) const {
  contents_->fail(what);
}

namespace {

[[noreturn]] void wrong_type(const File& file, std::string_view key, const Value& value,
                             std::string_view needed) {
  file.fail(fmt::format("metadata key {} is of type {}, {} is needed; {}", in_quotes(key),
                        value_type_name(value.type), needed, kMalformed));
}

}  // namespace

std::optional<int64_t> File::integer(std::string_view key, int64_t min, int64_t max) const {
  const Value* value = find(key);
  if (!value) return std::nullopt;
  std::string shown;
  if (const auto* number = std::get_if<uint64_t>(&value->data)) {
    if (std::cmp_greater_equal(*number, min) && std::cmp_less_equal(*number, max)) {
      return static_cast<int64_t>(*number);
    }
    shown = std::to_string(*number);
  } else if (const auto* signed_number = std::get_if<int64_t>(&value->data)) {
    if (*signed_number >= min && *signed_number <= max) return *signed_number;
    shown = std::to_string(*signed_number);
  } else {
    wrong_type(*this, key, *value, "an integer");
  }
  fail(fmt::format("metadata key {} is {}; it must be {} to {}; {}", in_quotes(key), shown, min,
                   max, kMalformed));
}

std::optional<double> File::number(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return std::nullopt;
  if (const auto* number = std::get_if<uint64_t>(&value->data)) return static_cast<double>(*number);
  if (const auto* number = std::get_if<int64_t>(&value->data)) return static_cast<double>(*number);
  const auto* number = std::get_if<double>(&value->data);
  if (!number) wrong_type(*this, key, *value, "a number");
  if (!std::isfinite(*number)) {
    fail(fmt::format("metadata key {} is {}; it must be finite; {}", in_quotes(key), *number,
                     kMalformed));
  }
  return *number;
}

std::optional<bool> File::boolean(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return std::nullopt;
  const auto* flag = std::get_if<bool>(&value->data);
  if (!flag) wrong_type(*this, key, *value, "a bool");
  return *flag;
}

std::optional<std::string> File::string(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return std::nullopt;
  const auto* text = std::get_if<std::string>(&value->data);
  if (!text) wrong_type(*this, key, *value, "a string");
  return *text;
}

std::shared_ptr<const Array> File::array(std::string_view key) const {
  const Value* value = find(key);
  if (!value) return nullptr;
  const auto* list = std::get_if<std::shared_ptr<const Array>>(&value->data);
  if (!list) wrong_type(*this, key, *value, "an array");
  return *list;
}

}  // namespace lockstep::gguf
