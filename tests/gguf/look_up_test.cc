// Typed look-ups say which key is wrong, and how.
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "gguf/file.h"
#include "gguf/writer.h"

namespace lockstep::gguf {
namespace {

File sample() {
  Writer writer;
  writer.add_u32("count", 12);
  writer.add("vast", {ValueType::u64, std::numeric_limits<uint64_t>::max()});
  writer.add_i32("below", -3);
  writer.add_f32("eps", 1e-5f);
  writer.add_f32("nan", std::numeric_limits<float>::quiet_NaN());
  writer.add_bool("flag", true);
  writer.add_string("name", "llama");
  writer.add_u32s("list", {1, 2, 3});
  return File::from_memory(std::make_shared<const std::vector<std::byte>>(writer.to_memory()),
                           "keys.gguf");
}

template <typename Ask>
std::string refusal(Ask ask) {
  try {
    ask();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_file);
    return error.what();
  }
  return "accepted";
}

TEST(LookUp, AbsentKeysAreNoError) {
  const File file = sample();
  EXPECT_EQ(file.find("none"), nullptr);
  EXPECT_EQ(file.integer("none", 0, 1), std::nullopt);
  EXPECT_EQ(file.number("none"), std::nullopt);
  EXPECT_EQ(file.boolean("none"), std::nullopt);
  EXPECT_EQ(file.string("none"), std::nullopt);
  EXPECT_EQ(file.array("none"), nullptr);
}

TEST(LookUp, Values) {
  const File file = sample();
  EXPECT_EQ(file.integer("count", 12, 12), 12);
  EXPECT_EQ(file.integer("below", -3, 0), -3);
  EXPECT_EQ(file.number("count"), 12.0);
  EXPECT_EQ(file.number("eps"), static_cast<double>(1e-5f));
  EXPECT_EQ(file.boolean("flag"), true);
  EXPECT_EQ(file.string("name"), "llama");
  EXPECT_EQ(file.array("list")->size(), 3u);
}

TEST(LookUp, WrongKindsAndRangesAreNamed) {
  const File file = sample();
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_EQ(message.rfind("keys.gguf: metadata key ", 0), 0u) << message;
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal([&] { file.integer("count", 13, 20); }), "\"count\" is 12; it must be 13 to 20");
  expect(refusal([&] { file.integer("below", 0, 20); }), "\"below\" is -3; it must be 0 to 20");
  expect(refusal([&] { file.integer("vast", 0, std::numeric_limits<int64_t>::max()); }),
         "18446744073709551615");
  expect(refusal([&] { file.integer("eps", 0, 1); }),
         "\"eps\" is of type f32, an integer is needed");
  expect(refusal([&] { file.integer("flag", 0, 1); }),
         "\"flag\" is of type bool, an integer is needed");
  expect(refusal([&] { file.number("nan"); }), "\"nan\" is nan; it must be finite");
  expect(refusal([&] { file.number("name"); }), "\"name\" is of type string, a number is needed");
  expect(refusal([&] { file.boolean("count"); }), "\"count\" is of type u32, a bool is needed");
  expect(refusal([&] { file.string("list"); }), "\"list\" is of type array, a string is needed");
  expect(refusal([&] { file.array("name"); }), "\"name\" is of type string, an array is needed");
}

TEST(LookUp, FailNamesTheFile) {
  EXPECT_EQ(refusal([] { sample().fail("is not to my liking"); }),
            "keys.gguf: is not to my liking");
}

TEST(LookUp, AFileOutlivesItsOrigin) {
  const File copy = [] {
    const File file = sample();
    return file;
  }();
  EXPECT_EQ(copy.string("name"), "llama");
}

}  // namespace
}  // namespace lockstep::gguf
