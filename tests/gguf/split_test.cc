// Models in several files: name-00001-of-0000N.gguf.
#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "gguf/file.h"
#include "gguf/writer.h"
#include "temp_dir.h"

namespace lockstep::gguf {
namespace {

using test::TempDir;

struct Part {
  int64_t no, count, n_tensors;
  std::vector<std::string> tensors;
};

void write_part(const std::filesystem::path& path, const Part& part) {
  Writer writer;
  if (part.no == 0) writer.add_string("general.name", "split");
  if (part.no >= 0) writer.add("split.no", {ValueType::u16, static_cast<uint64_t>(part.no)});
  writer.add("split.count", {ValueType::u16, static_cast<uint64_t>(part.count)});
  if (part.n_tensors >= 0)
    writer.add_i32("split.tensors.count", static_cast<int32_t>(part.n_tensors));
  for (const std::string& name : part.tensors) {
    writer.add_tensor(name, TensorType::f32, {4}, [&name](std::span<std::byte> out) {
      std::memset(out.data(), name.front(), out.size());
    });
  }
  writer.write_file(path);
}

class Split : public testing::Test {
 protected:
  void write(int part, const Part& content) { write_part(path(part), content); }
  std::filesystem::path path(int part) const {
    return dir_ / ("m-0000" + std::to_string(part) + "-of-00003.gguf");
  }
  void write_sound() {
    write(1, {0, 3, 4, {"a", "b"}});
    write(2, {1, 3, 4, {"c"}});
    write(3, {2, 3, 4, {"d"}});
  }
  std::string refusal(const std::filesystem::path& opened) {
    try {
      File::open(opened);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_file);
      return error.what();
    }
    return "accepted";
  }
  void expect_refused(const std::filesystem::path& opened, const std::vector<std::string>& parts) {
    const std::string message = refusal(opened);
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << message;
  }
  const TempDir dir_;
};

TEST_F(Split, ThreePartsAreOneModel) {
  write_sound();
  const File file = File::open(path(1));
  EXPECT_EQ(file.tensors().size(), 4u);
  EXPECT_EQ(file.parts().size(), 3u);
  EXPECT_EQ(file.string("general.name"), "split");
  uint64_t bytes = 0;
  for (const auto part : file.parts()) bytes += part.size();
  EXPECT_EQ(file.total_bytes(), bytes);
  for (const char* name : {"a", "b", "c", "d"}) {
    const Tensor* tensor = file.find_tensor(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(static_cast<char>(tensor->data[15]), name[0]);
  }
}
TEST_F(Split, ASetOfOneIsAFile) {
  write_part(dir_ / "any name.gguf", {0, 1, 1, {"a"}});
  EXPECT_EQ(File::open(dir_ / "any name.gguf").tensors().size(), 1u);
}
TEST_F(Split, MissingPart) {
  write_sound();
  std::filesystem::remove(path(2));
  expect_refused(path(1), {"m-00002-of-00003.gguf", "cannot open"});
}
TEST_F(Split, SecondPartOpened) {
  write_sound();
  expect_refused(path(2), {"is part 2 of a set of 3", "-00001-of-00003.gguf"});
}
TEST_F(Split, PartOfAnotherSet) {
  write_sound();
  write(3, {2, 4, 4, {"d"}});
  expect_refused(path(1), {"m-00003-of-00003.gguf", "do not say part 3 of 3"});
}
TEST_F(Split, PartsSwapped) {
  write_sound();
  write(2, {2, 3, 4, {"d"}});
  expect_refused(path(1), {"m-00002-of-00003.gguf", "do not say part 2 of 3"});
}
TEST_F(Split, TensorTotalWrong) {
  write_sound();
  write(3, {2, 3, 4, {"d", "e"}});
  expect_refused(path(1), {"split.tensors.count says 4", "have 5"});
}
TEST_F(Split, NoTensorTotal) {
  write_sound();
  write(1, {0, 3, -1, {"a", "b"}});
  expect_refused(path(1), {"split.tensors.count"});
}
TEST_F(Split, NoPartNumber) {
  write_sound();
  write(1, {-1, 3, 4, {"a", "b"}});
  expect_refused(path(1), {"part", "00001-of-00003"});
}
TEST_F(Split, TensorInTwoParts) {
  write_sound();
  write(3, {2, 3, 4, {"a"}});
  expect_refused(path(1), {"\"a\"", "there twice"});
}
TEST_F(Split, FirstPartRenamed) {
  write_sound();
  std::filesystem::rename(path(1), dir_ / "model.gguf");
  expect_refused(dir_ / "model.gguf", {"must end in -00001-of-00003.gguf"});
}
TEST_F(Split, BrokenPartIsNamed) {
  write_sound();
  dir_.write("m-00002-of-00003.gguf", {});
  expect_refused(path(1), {"m-00002-of-00003.gguf", "is empty"});
}
TEST_F(Split, AbsurdCount) {
  write(1, {0, 65535, 4, {"a", "b"}});
  std::filesystem::rename(path(1), dir_ / "m-00001-of-65535.gguf");
  expect_refused(dir_ / "m-00001-of-65535.gguf", {"m-00002-of-65535.gguf", "cannot open"});
}

}  // namespace
}  // namespace lockstep::gguf
