// What the writer writes, the reader reads, byte for byte.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "base/error.h"
#include "gguf/file.h"
#include "gguf/writer.h"
#include "raw_gguf.h"
#include "temp_dir.h"

namespace lockstep::gguf {
namespace {

using test::RawGguf;
using test::TempDir;

File read(std::vector<std::byte> bytes) {
  return File::from_memory(std::make_shared<const std::vector<std::byte>>(std::move(bytes)),
                           "memory.gguf");
}

std::function<void(std::span<std::byte>)> bytes_of(int first) {
  return [first](std::span<std::byte> out) {
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = static_cast<std::byte>(static_cast<size_t>(first) + i);
  };
}

template <typename Held>
void expect_value(const Value& written) {
  Writer writer;
  writer.add("test.value", written);
  const File file = read(writer.to_memory());
  const Value* value = file.find("test.value");
  ASSERT_NE(value, nullptr);
  EXPECT_EQ(value->type, written.type);
  EXPECT_EQ(std::get<Held>(value->data), std::get<Held>(written.data))
      << value_type_name(written.type);
}

TEST(RoundTrip, EveryScalarTypeAtItsLimits) {
  for (const uint64_t v : {uint64_t{0}, uint64_t{1}, uint64_t{255}}) {
    expect_value<uint64_t>({ValueType::u8, v});
    expect_value<uint64_t>({ValueType::u16, v * 257});
    expect_value<uint64_t>({ValueType::u32, v * 0x01010101});
    expect_value<uint64_t>({ValueType::u64, v * 0x0101010101010101});
  }
  for (const int64_t v : {int64_t{-128}, int64_t{-1}, int64_t{0}, int64_t{127}}) {
    expect_value<int64_t>({ValueType::i8, v});
    expect_value<int64_t>({ValueType::i16, v * 256});
    expect_value<int64_t>({ValueType::i32, v * (1 << 24)});
    expect_value<int64_t>({ValueType::i64, v * (int64_t{1} << 56)});
  }
  for (const double v :
       {0.0, -1.5, 0x1p-149, 3.4028234663852886e38, std::numeric_limits<double>::infinity()}) {
    expect_value<double>({ValueType::f32, v});
    expect_value<double>({ValueType::f64, v});
  }
  expect_value<double>({ValueType::f64, 0.1});
  expect_value<bool>({ValueType::boolean, true});
  expect_value<bool>({ValueType::boolean, false});
  expect_value<std::string>({ValueType::string, std::string()});
  expect_value<std::string>({ValueType::string, std::string("line\nbreak\0zero", 15)});
}

template <typename Element>
void expect_array(ValueType type, std::vector<Element> elements) {
  auto array = std::make_shared<Array>();
  array->element_type = type;
  array->elements = elements;
  Writer writer;
  writer.add("test.list", {ValueType::array, std::shared_ptr<const Array>(array)});
  const File file = read(writer.to_memory());
  const auto got = file.array("test.list");
  ASSERT_NE(got, nullptr);
  EXPECT_EQ(got->element_type, type);
  EXPECT_EQ(got->size(), elements.size());
  EXPECT_EQ(std::get<std::vector<Element>>(got->elements), elements) << value_type_name(type);
}

TEST(RoundTrip, ArraysOfEveryType) {
  expect_array<uint64_t>(ValueType::u8, {0, 1, 255});
  expect_array<uint64_t>(ValueType::u16, {0, 65535});
  expect_array<uint64_t>(ValueType::u32, {0, 4294967295});
  expect_array<uint64_t>(ValueType::u64, {0, std::numeric_limits<uint64_t>::max()});
  expect_array<int64_t>(ValueType::i8, {-128, 127});
  expect_array<int64_t>(ValueType::i16, {-32768, 32767});
  expect_array<int64_t>(ValueType::i32, {std::numeric_limits<int32_t>::min(), 7});
  expect_array<int64_t>(ValueType::i64, {std::numeric_limits<int64_t>::min(), 7});
  expect_array<double>(ValueType::f32, {0.5, -0.25});
  expect_array<double>(ValueType::f64, {0.1, -1e300});
  expect_array<bool>(ValueType::boolean, {true, false, true, true, false, false, true, true, true});
  expect_array<std::string_view>(ValueType::string, {"", "token", "\xE2\x96\x81word"});
  expect_array<uint64_t>(ValueType::u32, {});
  expect_array<std::string_view>(ValueType::string, {});
}

TEST(RoundTrip, ArraysFourDeep) {
  auto inner = std::make_shared<Array>();
  inner->element_type = ValueType::i32;
  inner->elements = std::vector<int64_t>{-5, 5};
  std::shared_ptr<const Array> array = inner;
  for (int depth = 0; depth < 3; ++depth) {
    auto outer = std::make_shared<Array>();
    outer->element_type = ValueType::array;
    outer->elements = std::vector<std::shared_ptr<const Array>>{array, array};
    array = outer;
  }
  Writer writer;
  writer.add("test.deep", {ValueType::array, array});
  const File file = read(writer.to_memory());
  auto got = file.array("test.deep");
  for (int depth = 0; depth < 3; ++depth) {
    ASSERT_EQ(got->element_type, ValueType::array);
    ASSERT_EQ(got->size(), 2u);
    got = std::get<std::vector<std::shared_ptr<const Array>>>(got->elements)[1];
  }
  EXPECT_EQ(std::get<std::vector<int64_t>>(got->elements), (std::vector<int64_t>{-5, 5}));
}

TEST(RoundTrip, EveryConvenienceOfTheWriter) {
  Writer writer;
  writer.add_u32("u32", 7);
  writer.add_u64("u64", uint64_t{1} << 40);
  writer.add_i32("i32", -7);
  writer.add_f32("f32", 0.5f);
  writer.add_bool("bool", true);
  writer.add_string("string", "text");
  writer.add_strings("strings", {"a", ""});
  writer.add_u32s("u32s", {1, 2});
  writer.add_i32s("i32s", {-1});
  writer.add_f32s("f32s", {0.25f});
  writer.add_bools("bools", {false, true});
  const File file = read(writer.to_memory());
  EXPECT_EQ(file.metadata().size(), 11u);
  EXPECT_EQ(file.metadata()[4].first, "bool");  // in file order
  EXPECT_EQ(file.integer("u32", 0, 10), 7);
  EXPECT_EQ(file.integer("u64", 0, int64_t{1} << 41), int64_t{1} << 40);
  EXPECT_EQ(file.integer("i32", -10, 0), -7);
  EXPECT_EQ(file.number("f32"), 0.5);
  EXPECT_EQ(file.boolean("bool"), true);
  EXPECT_EQ(file.string("string"), "text");
  EXPECT_EQ(std::get<std::vector<std::string_view>>(file.array("strings")->elements),
            (std::vector<std::string_view>{"a", ""}));
  EXPECT_EQ(std::get<std::vector<uint64_t>>(file.array("u32s")->elements),
            (std::vector<uint64_t>{1, 2}));
  EXPECT_EQ(std::get<std::vector<int64_t>>(file.array("i32s")->elements),
            (std::vector<int64_t>{-1}));
  EXPECT_EQ(std::get<std::vector<double>>(file.array("f32s")->elements),
            (std::vector<double>{0.25}));
  EXPECT_EQ(std::get<std::vector<bool>>(file.array("bools")->elements),
            (std::vector<bool>{false, true}));
}

TEST(RoundTrip, TensorsAtEveryAlignment) {
  for (const uint32_t alignment : {8u, 16u, 32u, 64u, 4096u, 65536u}) {
    Writer writer(alignment);
    writer.add_string("general.architecture", "llama");
    writer.add_tensor("odd", TensorType::f32, {3, 5}, bytes_of(1));
    writer.add_tensor("blocks", TensorType::q8_0, {64, 3, 2}, bytes_of(2));
    writer.add_tensor("four", TensorType::f16, {2, 3, 4, 5}, bytes_of(3));
    const std::vector<std::byte> bytes = writer.to_memory();
    EXPECT_EQ(bytes.size(), writer.total_bytes());
    const File file = read(bytes);
    EXPECT_EQ(file.version(), 3u);
    EXPECT_EQ(file.alignment(), alignment);
    EXPECT_EQ(file.total_bytes(), bytes.size());
    ASSERT_EQ(file.parts().size(), 1u);
    EXPECT_EQ(file.parts()[0].size(), bytes.size());
    ASSERT_EQ(file.tensors().size(), 3u);
    EXPECT_EQ(file.tensors()[1].name, "blocks");
    const Tensor* blocks = file.find_tensor("blocks");
    ASSERT_NE(blocks, nullptr);
    EXPECT_EQ(blocks->type, TensorType::q8_0);
    EXPECT_EQ(blocks->n_dims, 3);
    EXPECT_EQ(blocks->ne[0], 64);
    EXPECT_EQ(blocks->rows(), 6);
    EXPECT_EQ(blocks->data.size(), 6u * 2 * 34);
    const Tensor* four = file.find_tensor("four");
    ASSERT_NE(four, nullptr);
    EXPECT_EQ(four->rows(), 60);
    ASSERT_EQ(four->data.size(), 240u);
    EXPECT_EQ(static_cast<int>(four->data[239]), (3 + 239) % 256);
    EXPECT_EQ(static_cast<size_t>(four->data.data() - file.parts()[0].data()) % alignment, 0u);
    EXPECT_EQ(file.find_tensor("none"), nullptr);
  }
}

TEST(RoundTrip, EveryKnownTypeHasItsSize) {
  int known = 0;
  for (uint32_t raw = 0; raw < 64; ++raw) {
    const TypeInfo* info = type_info(raw);
    if (!info) continue;
    ++known;
    Writer writer;
    writer.add_tensor("t", info->type, {info->block_elements * 2, 3}, bytes_of(0));
    const File file = read(writer.to_memory());
    EXPECT_EQ(file.tensors()[0].type, info->type);
    EXPECT_EQ(file.tensors()[0].data.size(), static_cast<size_t>(6 * info->block_bytes))
        << info->name;
  }
  EXPECT_EQ(known, 35);
}

TEST(RoundTrip, AFileOnDiskEqualsTheOneInMemory) {
  const TempDir dir;
  Writer writer;
  writer.add_string("general.name", "disk");
  writer.add_tensor("a", TensorType::f32, {100}, bytes_of(1));
  writer.add_tensor("b", TensorType::f32, {100}, bytes_of(2));
  std::vector<uint64_t> seen;
  writer.write_file(dir / "a.gguf", [&](uint64_t bytes) { seen.push_back(bytes); });
  EXPECT_EQ(seen.size(), 2u);
  EXPECT_LT(seen[0], seen[1]);
  const File file = File::open(dir / "a.gguf");
  const std::vector<std::byte> memory = writer.to_memory();
  ASSERT_EQ(file.parts()[0].size(), memory.size());
  EXPECT_EQ(std::memcmp(file.parts()[0].data(), memory.data(), memory.size()), 0);
  EXPECT_EQ(file.name(), (dir / "a.gguf").string());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1)
      << "a temporary file is left";
}

TEST(RoundTrip, AFailedWriteLeavesNothing) {
  const TempDir dir;
  Writer writer;
  writer.add_tensor("a", TensorType::f32, {100},
                    [](std::span<std::byte>) { throw std::runtime_error("no"); });
  EXPECT_THROW(writer.write_file(dir / "a.gguf"), std::runtime_error);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(RoundTrip, AFileThatCannotBeWrittenSaysWhyAndHowMuch) {
  const TempDir dir;
  Writer writer;
  writer.add_tensor("a", TensorType::f32, {100}, bytes_of(0));
  const auto message = [&](const std::filesystem::path& path, const Writer& w) -> std::string {
    try {
      w.write_file(path);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::resource);
      return error.what();
    }
    return "written";
  };
  const std::string missing = message(dir / "no/such/a.gguf", writer);
  EXPECT_NE(missing.find("make it first"), std::string::npos) << missing;
  EXPECT_EQ(missing.find("bytes of disk"), std::string::npos) << missing;
  std::filesystem::create_directory(dir / "taken.gguf");
  EXPECT_NE(message(dir / "taken.gguf", writer).find("taken.gguf: cannot be written"),
            std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1)
      << "a temporary file is left";

  Writer vast;  // 2^60 bytes: no disk has them, and no byte may be touched
  vast.add_tensor("a", TensorType::f32, {int64_t{1} << 58}, bytes_of(0));
  EXPECT_NE(message(dir / "vast.gguf", vast).find("1152921504606847"), std::string::npos);
  EXPECT_THROW(vast.to_memory(), Error);
  EXPECT_FALSE(std::filesystem::exists(dir / "vast.gguf"));
}

TEST(RoundTrip, TheWriterRefusesImpossibleTensors) {
  Writer writer;
  const auto add = [&](TensorType type, const std::vector<int64_t>& ne) {
    writer.add_tensor("t", type, ne, bytes_of(0));
  };
  EXPECT_THROW(add(TensorType::f32, {}), std::invalid_argument);
  EXPECT_THROW(add(TensorType::f32, {1, 1, 1, 1, 1}), std::invalid_argument);
  EXPECT_THROW(add(TensorType::f32, {8, 0}), std::invalid_argument);
  EXPECT_THROW(add(TensorType::f32, {-8}), std::invalid_argument);
  EXPECT_THROW(add(TensorType::q4_k, {128}), std::invalid_argument);
  EXPECT_THROW(add(TensorType::f32, {int64_t{1} << 40, int64_t{1} << 40}), std::invalid_argument);
  EXPECT_THROW(Writer(0), std::invalid_argument);
  EXPECT_THROW(Writer(24), std::invalid_argument);
}

TEST(RoundTrip, Version2IsReadLikeVersion3) {
  RawGguf raw;
  raw.header(1, 1, 2)
      .string_key("general.name", "two")
      .tensor("a", {8}, 0, 0)
      .pad(32)
      .f32(1.5f)
      .zeros(28);
  const File file = read(raw.bytes());
  EXPECT_EQ(file.version(), 2u);
  EXPECT_EQ(file.string("general.name"), "two");
  float first = 0;
  std::memcpy(&first, file.tensors()[0].data.data(), sizeof first);
  EXPECT_EQ(first, 1.5f);
}

// Found in the wild: vocabulary files without tensors end right after the metadata, and some
// converters leave gaps, another order of offsets, or no padding at the end.
TEST(RoundTrip, OddButSoundFiles) {
  EXPECT_EQ(read(RawGguf().header(0, 1).u32_key("a", 1).bytes()).tensors().size(), 0u);
  EXPECT_EQ(read(RawGguf().header(0, 0).bytes()).metadata().size(), 0u);
  RawGguf raw;
  raw.header(2, 0)
      .tensor("late", {1}, 0, 64)
      .tensor("early", {1}, 0, 0)
      .pad(32)
      .f32(1.0f)
      .zeros(60)
      .f32(2.0f);
  const File file = read(raw.bytes());
  float value = 0;
  std::memcpy(&value, file.find_tensor("late")->data.data(), sizeof value);
  EXPECT_EQ(value, 2.0f);
  std::memcpy(&value, file.find_tensor("early")->data.data(), sizeof value);
  EXPECT_EQ(value, 1.0f);
}

}  // namespace
}  // namespace lockstep::gguf
