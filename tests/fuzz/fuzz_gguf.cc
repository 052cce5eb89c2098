// Any bytes at all given to the GGUF reader: a clear refusal, or a file whose every value, tensor
// and first row can be read, and which the writer writes so that it reads the same.
//
// Random bytes almost never pass a format of counts and lengths, so inputs are built by the
// format's own rules, then spoilt in one place or not at all. At exit the program says how many
// inputs got past the tensor table; a run with fewer than 1,000 has tried nothing and exits with 1.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/file.h"
#include "gguf/writer.h"
#include "quant/dequantize.h"
#include "raw_gguf.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using namespace lockstep;
using test::RawGguf;

struct Counts {
  uint64_t inputs = 0, past_table = 0, tensors = 0, rows = 0, rewritten = 0;
} counts;

void report() {
  std::fprintf(stderr,
               "fuzz_gguf: %llu inputs, %llu got past the tensor table (%llu tensors, %llu rows "
               "dequantised, "
               "%llu files written and read again)\n",
               static_cast<unsigned long long>(counts.inputs),
               static_cast<unsigned long long>(counts.past_table),
               static_cast<unsigned long long>(counts.tensors),
               static_cast<unsigned long long>(counts.rows),
               static_cast<unsigned long long>(counts.rewritten));
  // A handful of inputs is someone running a crash again.
  if (counts.inputs >= 1000 && counts.past_table < 1000) {
    std::fprintf(stderr, "fuzz_gguf: fewer than 1,000 is no run\n");
    std::_Exit(1);
  }
}

[[noreturn]] void wrong(const char* what) {
  std::fprintf(stderr, "fuzz_gguf: %s\n", what);
  std::abort();
}

void check_message(const Error& error) {
  if (error.code() != ExitCode::bad_file) wrong("an exit code other than that of a bad file");
  const std::string message = error.what();
  if (message.rfind("fuzz.gguf: ", 0) != 0) wrong("a message that does not name the file");
  for (const char letter : message) {
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7F)
      wrong("a message with a control character");
  }
}

// Sums everything up, so that every byte is really read.
uint64_t touch(const gguf::Array& array);
uint64_t touch_value(uint64_t value) {
  return value;
}
uint64_t touch_value(int64_t value) {
  return static_cast<uint64_t>(value);
}
uint64_t touch_value(double value) {
  return std::bit_cast<uint64_t>(value);
}
uint64_t touch_value(bool value) {
  return value;
}
uint64_t touch_value(std::string_view value) {
  uint64_t sum = value.size();
  for (const char letter : value) sum += static_cast<unsigned char>(letter);
  return sum;
}
uint64_t touch_value(const std::shared_ptr<const gguf::Array>& array) {
  return touch(*array);
}
uint64_t touch(const gguf::Array& array) {
  uint64_t sum = array.size();
  std::visit(
      [&](const auto& list) {
        for (const auto& element : list) sum += touch_value(element);
      },
      array.elements);
  return sum;
}

template <typename Ask>
void ask(Ask question) {
  try {
    question();
  } catch (const Error& error) {
    check_message(error);
  }
}

uint64_t touch(const gguf::File& file) {
  uint64_t sum = file.version() + file.alignment() + file.total_bytes();
  for (const auto& [key, value] : file.metadata()) {
    sum += std::visit([](const auto& held) { return touch_value(held); }, value.data);
    if (file.find(key) != &value) wrong("a key that is not found");
    ask([&] { sum += static_cast<uint64_t>(file.integer(key, -100, 100).value_or(0)); });
    ask([&] { sum += touch_value(file.number(key).value_or(0)); });
    ask([&] { sum += file.boolean(key).value_or(false); });
    ask([&] { sum += file.string(key).value_or("").size(); });
    ask([&] { sum += file.array(key) ? file.array(key)->size() : 0; });
  }
  std::vector<float> row;
  for (const gguf::Tensor& tensor : file.tensors()) {
    ++counts.tensors;
    if (file.find_tensor(tensor.name) != &tensor) wrong("a tensor that is not found");
    if (tensor.data.empty()) wrong("a tensor without data");
    sum += static_cast<uint64_t>(tensor.data.front()) + static_cast<uint64_t>(tensor.data.back());
    if (!quant::is_supported(tensor.type)) continue;
    const gguf::TypeInfo& info = gguf::type_info(tensor.type);
    const int64_t row_bytes = tensor.ne[0] / info.block_elements * info.block_bytes;
    if (row_bytes * tensor.rows() != static_cast<int64_t>(tensor.data.size()))
      wrong("a tensor of another size");
    row.assign(static_cast<size_t>(tensor.ne[0]), 0.0f);
    quant::dequantize_row(tensor.type, tensor.data.data(), row.data(), tensor.ne[0]);
    sum += quant::row_is_finite(tensor.type, tensor.data.data(), tensor.ne[0]);
    sum += std::bit_cast<uint32_t>(row.back());
    ++counts.rows;
  }
  return sum;
}

gguf::File read(std::vector<std::byte> bytes) {
  return gguf::File::from_memory(std::make_shared<const std::vector<std::byte>>(std::move(bytes)),
                                 "fuzz.gguf");
}

void write_and_read_again(const gguf::File& file) {
  if (file.alignment() > 65536) return;  // would only write zeros
  gguf::Writer writer(static_cast<uint32_t>(file.alignment()));
  for (const auto& [key, value] : file.metadata()) {
    if (key != "general.alignment") writer.add(key, value);
  }
  for (const gguf::Tensor& tensor : file.tensors()) {
    writer.add_tensor(
        tensor.name, tensor.type, {tensor.ne, tensor.ne + tensor.n_dims},
        [&](std::span<std::byte> out) { std::memcpy(out.data(), tensor.data.data(), out.size()); });
  }
  if (writer.total_bytes() > (1 << 22)) return;
  const gguf::File again = read(writer.to_memory());
  if (again.tensors().size() != file.tensors().size()) wrong("tensors were lost in writing");
  for (const gguf::Tensor& tensor : file.tensors()) {
    const gguf::Tensor* copy = again.find_tensor(tensor.name);
    if (!copy || copy->type != tensor.type || !std::equal(copy->ne, copy->ne + 4, tensor.ne) ||
        !std::equal(copy->data.begin(), copy->data.end(), tensor.data.begin(), tensor.data.end())) {
      wrong("a tensor was changed in writing");
    }
  }
  for (const auto& [key, value] : file.metadata()) {
    const gguf::Value* copy = again.find(key);
    if (key == "general.alignment" && file.alignment() == 32)
      continue;  // the default is not written
    if (!copy || copy->type != value.type) wrong("a key was changed in writing");
    const auto sum = [](const gguf::Value& v) {
      return std::visit([](const auto& held) { return touch_value(held); }, v.data);
    };
    if (sum(*copy) != sum(value)) wrong("a value was changed in writing");
  }
  ++counts.rewritten;
}

// --- building inputs ---

using Random = std::minstd_rand;

uint64_t below(Random& random, uint64_t n) {
  return random() % n;
}
bool chance(Random& random, uint64_t one_in) {
  return below(random, one_in) == 0;
}

constexpr uint64_t kInteresting[] = {0,
                                     1,
                                     2,
                                     3,
                                     7,
                                     8,
                                     31,
                                     32,
                                     33,
                                     64,
                                     255,
                                     256,
                                     65535,
                                     65536,
                                     0x7FFFFFFF,
                                     0x80000000,
                                     0xFFFFFFFF,
                                     0x100000000,
                                     0x7FFFFFFFFFFFFFFF,
                                     0x8000000000000000,
                                     0xFFFFFFFFFFFFFFFF,
                                     0xFFFFFFFFFFFFFFE0,
                                     0x2000000000000000,
                                     0x4000000000000001};

// A field that is mostly what it should be.
class Field {
 public:
  // One in `one_in` fields of a spoilt file lies.
  Field(Random& random, bool spoilt) : random_(random), spoilt_(spoilt) {}
  uint64_t operator()(uint64_t truth) {
    if (!spoilt_ || !chance(random_, 24)) return truth;
    if (chance(random_, 2)) return truth + below(random_, 5) - 2;
    return kInteresting[below(random_, std::size(kInteresting))];
  }

 private:
  Random& random_;
  bool spoilt_;
};

void put_text(RawGguf& raw, Random& random, Field& field) {
  const uint64_t size = below(random, 12);
  raw.u64(field(size));
  for (uint64_t i = 0; i < size; ++i)
    raw.u8(static_cast<uint8_t>(chance(random, 8) ? below(random, 256) : 'a' + below(random, 26)));
}

void put_value(RawGguf& raw, uint32_t type, Random& random, Field& field, int depth) {
  switch (type) {
    case 0:
    case 1:
      raw.u8(static_cast<uint8_t>(random()));
      return;
    case 2:
    case 3:
      raw.put(static_cast<uint16_t>(random()));
      return;
    case 4:
    case 5:
    case 6:
      raw.u32(static_cast<uint32_t>(random() * 3));
      return;
    case 7:
      raw.u8(static_cast<uint8_t>(field(below(random, 2))));
      return;
    case 8:
      put_text(raw, random, field);
      return;
    case 9: {
      const uint32_t element = depth >= 3 ? static_cast<uint32_t>(below(random, 9))
                                          : static_cast<uint32_t>(below(random, 13));
      const uint64_t count = below(random, depth == 0 ? 9 : 4);
      raw.u32(static_cast<uint32_t>(field(element))).u64(field(count));
      for (uint64_t i = 0; i < count; ++i) put_value(raw, element, random, field, depth + 1);
      return;
    }
    default:
      raw.u64(uint64_t{random()} << 20 ^ random());
      return;
  }
}

struct PlannedTensor {
  uint32_t type, n_dims;
  uint64_t ne[4], bytes, offset;
};

// A file by the rules. Spoilt: some fields lie.
std::vector<std::byte> build(Random& random, bool spoilt) {
  Field field(random, spoilt);
  RawGguf raw;
  const uint64_t n_keys = below(random, 9), n_tensors = 1 + below(random, 5);
  uint64_t alignment = 32;
  const bool aligned = chance(random, 4);
  if (aligned) alignment = uint64_t{8} << below(random, 5);
  raw.letters("GGUF").u32(static_cast<uint32_t>(field(2 + below(random, 2))));
  raw.u64(field(n_tensors)).u64(field(n_keys + aligned));
  if (aligned) raw.u32_key("general.alignment", static_cast<uint32_t>(field(alignment)));
  constexpr const char* kNames[] = {"general.architecture",
                                    "llama.block_count",
                                    "split.count",
                                    "split.no",
                                    "tokenizer.ggml.tokens",
                                    "a",
                                    "b",
                                    "\xC3\xA9",
                                    "x.y.z"};
  for (uint64_t i = 0; i < n_keys; ++i) {
    // Names repeat only by bad luck in a file that is not spoilt.
    const std::string name =
        std::string(kNames[spoilt ? below(random, std::size(kNames)) : 5 + i % 4]) +
        (spoilt && chance(random, 2) ? "" : std::to_string(i));
    const auto type = static_cast<uint32_t>(below(random, 13));
    raw.u64(field(name.size())).letters(name).u32(static_cast<uint32_t>(field(type)));
    put_value(raw, type, random, field, 0);
  }
  std::vector<PlannedTensor> tensors;
  uint64_t end = 0;
  for (uint64_t i = 0; i < n_tensors; ++i) {
    PlannedTensor t{};
    const gguf::TypeInfo* info = nullptr;
    while (!info) info = gguf::type_info(t.type = static_cast<uint32_t>(below(random, 43)));
    t.n_dims = static_cast<uint32_t>(1 + below(random, 4));
    t.bytes = static_cast<uint64_t>(info->block_bytes);
    for (uint32_t d = 0; d < 4; ++d) t.ne[d] = d < t.n_dims ? 1 + below(random, 3) : 1;
    for (uint32_t d = 0; d < t.n_dims; ++d) t.bytes *= t.ne[d];
    t.ne[0] *= static_cast<uint64_t>(info->block_elements);
    t.offset = end;
    end = (end + t.bytes + alignment - 1) / alignment * alignment;
    tensors.push_back(t);
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    const PlannedTensor& t = tensors[i];
    const std::string name = "t" + std::to_string(spoilt && chance(random, 20) ? 0 : i);
    raw.u64(field(name.size())).letters(name).u32(static_cast<uint32_t>(field(t.n_dims)));
    for (uint32_t d = 0; d < t.n_dims; ++d) raw.u64(field(t.ne[d]));
    raw.u32(static_cast<uint32_t>(field(t.type))).u64(field(t.offset));
  }
  raw.pad(alignment);
  for (uint64_t i = 0; i < end; i += 4) raw.u32(static_cast<uint32_t>(random() * 5));
  return raw.bytes();
}

size_t give(const std::vector<std::byte>& bytes, uint8_t* data, size_t max_size) {
  const size_t size = std::min(bytes.size(), max_size);
  std::memcpy(data, bytes.data(), size);
  return size;
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit(report);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  Random random(seed);
  const uint64_t choice = below(random, 8);
  if (size < 24 || choice == 0) return give(build(random, false), data, max_size);
  if (choice == 1) return give(build(random, true), data, max_size);
  if (choice <= 4) {
    // One field, at any place, becomes a number that likes to cause trouble.
    const uint64_t value = kInteresting[below(random, std::size(kInteresting))];
    const size_t width = size_t{1} << below(random, 4);
    if (width <= size) std::memcpy(data + below(random, size - width + 1), &value, width);
    return size;
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ++counts.inputs;
  std::vector<std::byte> bytes(size);
  if (size) std::memcpy(bytes.data(), data, size);
  std::optional<gguf::File> file;
  try {
    file = read(std::move(bytes));
  } catch (const Error& error) {
    check_message(error);
    return 0;
  }
  if (!file->tensors().empty()) ++counts.past_table;
  volatile uint64_t sink = touch(*file);
  static_cast<void>(sink);
  write_and_read_again(*file);
  return 0;
}
