#include "gguf/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace lockstep::gguf {

static_assert(std::endian::native == std::endian::little, "GGUF fields are read in place");

namespace {

constexpr std::string_view kDamaged = "the file is damaged or cut short, fetch it again";

constexpr uint64_t kMinAlignment = 8;
constexpr uint64_t kMaxKeyBytes = 65535;      // the specification's limit
constexpr uint64_t kMaxTensorNameBytes = 64;  // likewise
constexpr int kMaxArrayDepth = 4;
bool is_printable_utf8(std::string_view text) {
  return escape(text, std::numeric_limits<size_t>::max()) == text;
}

// Bytes of one element of a fixed-size value type; 0 for strings, arrays and unknown numbers.
uint64_t fixed_size(uint32_t raw_type) {
  switch (static_cast<ValueType>(raw_type)) {
    case ValueType::u8:
    case ValueType::i8:
    case ValueType::boolean:
      return 1;
    case ValueType::u16:
    case ValueType::i16:
      return 2;
    case ValueType::u32:
    case ValueType::i32:
    case ValueType::f32:
      return 4;
    case ValueType::u64:
    case ValueType::i64:
    case ValueType::f64:
      return 8;
    case ValueType::string:
    case ValueType::array:
      return 0;
  }
  return 0;
}

class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& name, uint64_t& memory_left)
      : bytes_(bytes), name_(name), memory_left_(memory_left) {}

  Part parse();

 private:
  uint64_t left() const { return bytes_.size() - position_; }

  [[noreturn]] void fail(const std::string& what, std::string_view remedy) const {
    throw Error(ExitCode::bad_file, fmt::format("{}: {}; {}", name_, what, remedy));
  }
  [[noreturn]] void fail_here(const std::string& what, std::string_view remedy) const {
    fail(fmt::format("{} (byte {}): {}", place_, position_, what), remedy);
  }

  void charge(uint64_t bytes) {
    if (bytes > memory_left_) {
      fail_here(fmt::format("the header needs more than {} MiB of memory", kMaxHeaderMemory >> 20),
                "this is no model file");
    }
    memory_left_ -= bytes;
  }

  template <typename T>
  T read(const char* what) {
    if (left() < sizeof(T)) {
      fail_here(
          fmt::format("the file ends inside {}: {} bytes needed, {} left", what, sizeof(T), left()),
          kDamaged);
    }
    T value;
    std::memcpy(&value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return value;
  }

  std::string_view read_text(const char* what) {
    const auto length = read<uint64_t>(what);
    if (length > left()) {
      fail_here(
          fmt::format("{} claims {} bytes, but {} are left in the file", what, length, left()),
          kDamaged);
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data() + position_), length);
    position_ += length;
    return text;
  }

  bool read_bool() {
    const auto raw = read<uint8_t>("a bool");
    if (raw > 1) fail_here(fmt::format("a bool is {}, not 0 or 1", raw), kMalformed);
    return raw == 1;
  }

  template <typename Stored, typename Kept>
  void read_numbers(Array& array, uint64_t count) {
    charge(count * sizeof(Kept));
    std::vector<Kept> numbers(count);
    for (uint64_t i = 0; i < count; ++i) {
      Stored value;
      std::memcpy(&value, bytes_.data() + position_ + i * sizeof(Stored), sizeof(Stored));
      numbers[i] = static_cast<Kept>(value);
    }
    position_ += count * sizeof(Stored);
    array.elements = std::move(numbers);
  }

  std::shared_ptr<const Array> read_array(int depth);
  Value read_value();
  void read_metadata(uint64_t count);
  void read_tensors(uint64_t count);
  void place_tensors(const std::vector<uint64_t>& offsets);

  std::span<const std::byte> bytes_;
  const std::string& name_;
  uint64_t& memory_left_;
  uint64_t position_ = 0;
  std::string place_ = "header";
  Part part_;
};

Part Parser::parse() {
  const auto magic = read<std::array<unsigned char, 4>>("the magic number");
  const std::string_view magic_text(reinterpret_cast<const char*>(magic.data()), magic.size());
  if (magic_text != "GGUF") {
    fail(fmt::format("is not a GGUF file: it begins with {}, not \"GGUF\"", in_quotes(magic_text)),
         "name a model file in GGUF format");
  }
  part_.version = read<uint32_t>("the version");
  if ((part_.version & 0xFFFF) == 0 && part_.version != 0) {
    fail(fmt::format("is a big-endian GGUF file (version field 0x{:08X})", part_.version),
         "convert it for little-endian machines");
  }
  if (part_.version == 1) {
    fail("is GGUF version 1, which nothing has written since August 2023",
         "convert it again, to version 3");
  }
  if (part_.version != 2 && part_.version != 3) {
    fail(fmt::format("is GGUF version {}; this program reads 2 and 3", part_.version),
         "convert it to version 3, or use a newer program");
  }
  const auto n_tensors = read<uint64_t>("the tensor count");
  const auto n_keys = read<uint64_t>("the key count");
  // The least a key can take: its length, one letter, its type, one byte of value.
  if (n_keys > left() / 14) {
    fail_here(fmt::format("claims {} metadata keys, more than the {} bytes left can hold", n_keys,
                          left()),
              kDamaged);
  }
  // The least a tensor can take: name length, one letter, n_dims, one dimension, type, offset.
  if (n_tensors > left() / 33) {
    fail_here(
        fmt::format("claims {} tensors, more than the {} bytes left can hold", n_tensors, left()),
        kDamaged);
  }
  read_metadata(n_keys);
  read_tensors(n_tensors);
  return std::move(part_);
}

void Parser::read_metadata(uint64_t count) {
  for (uint64_t i = 0; i < count; ++i) {
    place_ = fmt::format("metadata key {} of {}", i + 1, count);
    const std::string_view key = read_text("its name");
    if (key.empty()) fail_here("its name is empty", kMalformed);
    if (key.size() > kMaxKeyBytes) {
      fail_here(fmt::format("its name has {} bytes, the limit is {}", key.size(), kMaxKeyBytes),
                kMalformed);
    }
    place_ = "metadata key " + in_quotes(key);
    if (!is_printable_utf8(key)) fail_here("its name is not printable UTF-8", kMalformed);
    // The list's element, and its place in the index.
    charge(sizeof(part_.metadata[0]) + sizeof(uint32_t) + key.size());
    Value value = read_value();
    part_.metadata.emplace_back(std::string(key), std::move(value));
  }
}

Value Parser::read_value() {
  const auto raw_type = read<uint32_t>("its type");
  Value value;
  value.type = static_cast<ValueType>(raw_type);
  switch (value.type) {
    case ValueType::u8:
      value.data = uint64_t{read<uint8_t>("a u8")};
      return value;
    case ValueType::u16:
      value.data = uint64_t{read<uint16_t>("a u16")};
      return value;
    case ValueType::u32:
      value.data = uint64_t{read<uint32_t>("a u32")};
      return value;
    case ValueType::u64:
      value.data = read<uint64_t>("a u64");
      return value;
    case ValueType::i8:
      value.data = int64_t{read<int8_t>("an i8")};
      return value;
    case ValueType::i16:
      value.data = int64_t{read<int16_t>("an i16")};
      return value;
    case ValueType::i32:
      value.data = int64_t{read<int32_t>("an i32")};
      return value;
    case ValueType::i64:
      value.data = read<int64_t>("an i64");
      return value;
    case ValueType::f32:
      value.data = double{read<float>("an f32")};
      return value;
    case ValueType::f64:
      value.data = read<double>("an f64");
      return value;
    case ValueType::boolean:
      value.data = read_bool();
      return value;
    case ValueType::string: {
      const std::string_view text = read_text("a string");
      charge(text.size());
      value.data = std::string(text);
      return value;
    }
    case ValueType::array:
      value.data = read_array(1);
      return value;
  }
  fail_here(fmt::format("has value type {}; types are 0 to 12", raw_type), kMalformed);
}

std::shared_ptr<const Array> Parser::read_array(int depth) {
  if (depth > kMaxArrayDepth) {
    fail_here(fmt::format("arrays nested deeper than {}", kMaxArrayDepth), kMalformed);
  }
  const auto raw_type = read<uint32_t>("an array's element type");
  const auto count = read<uint64_t>("an array's length");
  uint64_t least = fixed_size(raw_type);
  if (least == 0) {
    if (raw_type == static_cast<uint32_t>(ValueType::string)) {
      least = 8;
    } else if (raw_type == static_cast<uint32_t>(ValueType::array)) {
      least = 12;
    } else {
      fail_here(fmt::format("has array element type {}; types are 0 to 12", raw_type), kMalformed);
    }
  }
  if (count > left() / least) {
    fail_here(fmt::format("array claims {} elements, more than the {} bytes left can hold", count,
                          left()),
              kDamaged);
  }
  charge(sizeof(Array) + 32);  // and its control block
  auto array = std::make_shared<Array>();
  array->element_type = static_cast<ValueType>(raw_type);
  switch (array->element_type) {
    case ValueType::u8:
      read_numbers<uint8_t, uint64_t>(*array, count);
      break;
    case ValueType::u16:
      read_numbers<uint16_t, uint64_t>(*array, count);
      break;
    case ValueType::u32:
      read_numbers<uint32_t, uint64_t>(*array, count);
      break;
    case ValueType::u64:
      read_numbers<uint64_t, uint64_t>(*array, count);
      break;
    case ValueType::i8:
      read_numbers<int8_t, int64_t>(*array, count);
      break;
    case ValueType::i16:
      read_numbers<int16_t, int64_t>(*array, count);
      break;
    case ValueType::i32:
      read_numbers<int32_t, int64_t>(*array, count);
      break;
    case ValueType::i64:
      read_numbers<int64_t, int64_t>(*array, count);
      break;
    case ValueType::f32:
      read_numbers<float, double>(*array, count);
      break;
    case ValueType::f64:
      read_numbers<double, double>(*array, count);
      break;
    case ValueType::boolean: {
      charge(count);
      std::vector<bool> flags(count);
      for (uint64_t i = 0; i < count; ++i) flags[i] = read_bool();
      array->elements = std::move(flags);
      break;
    }
    case ValueType::string: {
      charge(count * sizeof(std::string_view));
      std::vector<std::string_view> texts(count);
      for (std::string_view& text : texts) text = read_text("a string of an array");
      array->elements = std::move(texts);
      break;
    }
    case ValueType::array: {
      charge(count * sizeof(std::shared_ptr<const Array>));
      std::vector<std::shared_ptr<const Array>> arrays(count);
      for (auto& inner : arrays) inner = read_array(depth + 1);
      array->elements = std::move(arrays);
      break;
    }
  }
  return array;
}

void Parser::read_tensors(uint64_t count) {
  std::vector<uint64_t> offsets;
  for (uint64_t i = 0; i < count; ++i) {
    place_ = fmt::format("tensor {} of {}", i + 1, count);
    const std::string_view tensor_name = read_text("its name");
    if (tensor_name.empty()) fail_here("its name is empty", kMalformed);
    if (tensor_name.size() > kMaxTensorNameBytes) {
      fail_here(fmt::format("its name has {} bytes, the limit is {}", tensor_name.size(),
                            kMaxTensorNameBytes),
                kMalformed);
    }
    place_ = "tensor " + in_quotes(tensor_name);
    if (!is_printable_utf8(tensor_name)) fail_here("its name is not printable UTF-8", kMalformed);
    charge(sizeof(Tensor) + sizeof(uint64_t) + sizeof(uint32_t) + tensor_name.size());

    Tensor tensor;
    tensor.name = tensor_name;
    const auto n_dims = read<uint32_t>("its number of dimensions");
    if (n_dims < 1 || n_dims > 4) {
      fail_here(fmt::format("has {} dimensions; 1 to 4 are possible", n_dims), kMalformed);
    }
    tensor.n_dims = static_cast<int>(n_dims);
    int64_t elements = 1;
    for (uint32_t d = 0; d < n_dims; ++d) {
      const auto extent = read<uint64_t>("a dimension");
      if (extent == 0 || extent > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail_here(fmt::format("dimension {} is {}; it must be 1 to 2^63-1", d, extent), kMalformed);
      }
      tensor.ne[d] = static_cast<int64_t>(extent);
      if (__builtin_mul_overflow(elements, tensor.ne[d], &elements)) {
        fail_here("the product of its dimensions overflows 63 bits", kMalformed);
      }
    }
    const auto raw_type = read<uint32_t>("its type");
    const TypeInfo* info = type_info(raw_type);
    if (!info) {
      fail_here(fmt::format("has type number {}, which this program does not know", raw_type),
                "convert the model to a known type, or use a newer program");
    }
    tensor.type = info->type;
    if (tensor.ne[0] % info->block_elements != 0) {
      fail_here(fmt::format("rows of {} elements are not whole {} blocks of {}", tensor.ne[0],
                            info->name, info->block_elements),
                kMalformed);
    }
    int64_t size = 0;
    if (__builtin_mul_overflow(elements / info->block_elements, info->block_bytes, &size)) {
      fail_here("its size in bytes overflows 63 bits", kMalformed);
    }
    // The bytes are known to be there only once all descriptions are read; the size waits in a span
    // without an address.
    offsets.push_back(read<uint64_t>("its offset"));
    tensor.data = {static_cast<const std::byte*>(nullptr), 0};
    if (static_cast<uint64_t>(size) > bytes_.size()) {
      fail_here(
          fmt::format("needs {} bytes of data, but the whole file has {}", size, bytes_.size()),
          kDamaged);
    }
    part_.tensors.push_back(std::move(tensor));
  }

  for (const auto& [key, value] : part_.metadata) {
    if (key != "general.alignment") continue;
    place_ = "metadata key \"general.alignment\"";
    if (value.type != ValueType::u32) {
      fail_here(fmt::format("is {}, but must be u32", value_type_name(value.type)), kMalformed);
    }
    part_.alignment = std::get<uint64_t>(value.data);
    if (!std::has_single_bit(part_.alignment) || part_.alignment < kMinAlignment) {
      fail_here(fmt::format("is {}; it must be a power of two of at least {}", part_.alignment,
                            kMinAlignment),
                kMalformed);
    }
  }
  if (!part_.tensors.empty()) place_tensors(offsets);
}

uint64_t data_bytes(const Tensor& tensor) {
  const TypeInfo& info = type_info(tensor.type);
  return static_cast<uint64_t>(tensor.ne[0] / info.block_elements * tensor.rows() *
                               info.block_bytes);
}

void Parser::place_tensors(const std::vector<uint64_t>& offsets) {
  place_ = "tensor data";
  // position_ and alignment are below 2^63 and 2^32: the sum cannot overflow.
  const uint64_t data_begin = (position_ + part_.alignment - 1) & ~(part_.alignment - 1);
  if (data_begin >= bytes_.size()) {
    fail_here(
        fmt::format("would begin at byte {}, but the file ends at {}", data_begin, bytes_.size()),
        kDamaged);
  }
  const uint64_t data_size = bytes_.size() - data_begin;
  charge(part_.tensors.size() * sizeof(size_t));
  std::vector<size_t> by_offset(part_.tensors.size());
  for (size_t i = 0; i < part_.tensors.size(); ++i) {
    by_offset[i] = i;
    Tensor& tensor = part_.tensors[i];
    const uint64_t size = data_bytes(tensor);
    if (offsets[i] % part_.alignment != 0) {
      fail(fmt::format("tensor {}: its offset {} is not a multiple of the alignment {}",
                       in_quotes(tensor.name), offsets[i], part_.alignment),
           kMalformed);
    }
    if (offsets[i] > data_size || size > data_size - offsets[i]) {
      fail(fmt::format(
               "tensor {}: its {} bytes at offset {} pass the end of the tensor data ({} bytes)",
               in_quotes(tensor.name), size, offsets[i], data_size),
           kDamaged);
    }
    tensor.data = bytes_.subspan(data_begin + offsets[i], size);
  }
  std::sort(by_offset.begin(), by_offset.end(),
            [&](size_t a, size_t b) { return offsets[a] < offsets[b]; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const Tensor& before = part_.tensors[by_offset[i - 1]];
    const Tensor& after = part_.tensors[by_offset[i]];
    if (before.data.data() + before.data.size() > after.data.data()) {
      fail(fmt::format("tensors {} and {} overlap at offset {}", in_quotes(before.name),
                       in_quotes(after.name), offsets[by_offset[i]]),
           kMalformed);
    }
  }
}

}  // namespace

std::string in_quotes(std::string_view text) {
  return fmt::format("\"{}\"", escape(text, 100));
}

Part parse_part(std::span<const std::byte> bytes, const std::string& name, uint64_t& memory_left) {
  return Parser(bytes, name, memory_left).parse();
}

}  // namespace lockstep::gguf
