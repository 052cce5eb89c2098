// Every hostile file is refused by one clear line, in little time and little memory.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>

#include "base/error.h"
#include "gguf/file.h"
#include "hostile_gguf.h"
#include "raw_gguf.h"
#include "temp_dir.h"

namespace {
std::atomic<size_t> largest_request{0}, requested{0};

void* counted_allocation(size_t size) {
  requested += size;
  if (size > largest_request) largest_request = size;
  if (void* memory = std::malloc(size ? size : 1)) return memory;
  throw std::bad_alloc();
}
}  // namespace

void* operator new(size_t size) {
  return counted_allocation(size);
}
void* operator new[](size_t size) {
  return counted_allocation(size);
}
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size ? size : 1);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, size_t) noexcept {
  std::free(memory);
}

namespace lockstep {
namespace {

using test::HostileFile;
using test::RawGguf;
using test::TempDir;

gguf::File read(std::vector<std::byte> bytes) {
  return gguf::File::from_memory(std::make_shared<const std::vector<std::byte>>(std::move(bytes)),
                                 "hostile.gguf");
}

void expect_one_line(const std::string& message) {
  for (const char letter : message) {
    EXPECT_GE(static_cast<unsigned char>(letter), 0x20u) << message;
    EXPECT_NE(letter, '\x7F') << message;
  }
  EXPECT_NE(message.find("; "), std::string::npos) << "no advice in: " << message;
  EXPECT_LE(message.size(), 600u) << message;
}

template <typename Open>
std::string refusal(Open open) {
  try {
    open();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_file) << error.what();
    expect_one_line(error.what());
    return error.what();
  }
  ADD_FAILURE() << "accepted";
  return "";
}

class HostileContainer : public testing::TestWithParam<HostileFile> {};

TEST_P(HostileContainer, IsRefused) {
  const HostileFile& file = GetParam();
  largest_request = 0;
  requested = 0;
  const auto begin = std::chrono::steady_clock::now();
  const std::string message = refusal([&] { read(file.bytes); });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const size_t largest = largest_request, total = requested;
  EXPECT_EQ(message.rfind("hostile.gguf: ", 0), 0u) << message;
  for (const std::string& part : file.expect)
    EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_LE(largest, 8 * file.bytes.size() + 65536);
  EXPECT_LE(total, 16 * file.bytes.size() + 262144);
  EXPECT_LT(took.count(), 1.0);
}

// The same through a mapping: nothing may be read past the end of the file.
TEST_P(HostileContainer, IsRefusedOnDisk) {
  const TempDir dir;
  const auto path = dir.write("model.gguf", GetParam().bytes);
  const std::string message = refusal([&] { gguf::File::open(path); });
  EXPECT_EQ(message.rfind(path.string() + ": ", 0), 0u) << message;
  for (const std::string& part : GetParam().expect)
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(All, HostileContainer, testing::ValuesIn(test::hostile_containers()),
                         [](const auto& file) { return file.param.name; });

TEST(Hostile, ThereAreEnoughOfThem) {
  EXPECT_GE(test::hostile_containers().size(), 60u);
}

TEST(Hostile, TheSoundFileIsRead) {
  const gguf::File file = read(test::sound_gguf());
  EXPECT_EQ(file.tensors().size(), 2u);
  EXPECT_EQ(file.metadata().size(), 4u);
}

TEST(Hostile, EveryPrefixIsRefused) {
  const std::vector<std::byte> sound = test::sound_gguf();
  // 28 bytes of padding after the last tensor may be missing.
  const size_t needed = sound.size() - 28;
  EXPECT_NO_THROW(read({sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(needed)}));
  for (size_t size = 0; size < needed; ++size) {
    refusal([&] { read({sound.begin(), sound.begin() + static_cast<std::ptrdiff_t>(size)}); });
  }
}

TEST(Hostile, AnyByteMayBeAnything) {
  const std::vector<std::byte> sound = test::sound_gguf();
  int refused = 0, accepted = 0;
  for (size_t i = 0; i < sound.size(); ++i) {
    for (int value = 0; value < 256; ++value) {
      std::vector<std::byte> bytes = sound;
      bytes[i] = static_cast<std::byte>(value);
      try {
        read(std::move(bytes));
        ++accepted;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ExitCode::bad_file);
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, 10000);
  EXPECT_GT(accepted, 10000);
}

TEST(Hostile, EmptyFile) {
  const TempDir dir;
  const auto path = dir.write("empty.gguf", {});
  EXPECT_NE(refusal([&] { gguf::File::open(path); }).find("empty"), std::string::npos);
}
TEST(Hostile, Directory) {
  const TempDir dir;
  EXPECT_NE(refusal([&] { gguf::File::open(dir.path()); }).find("not a regular file"),
            std::string::npos);
}
TEST(Hostile, Device) {
  EXPECT_NE(refusal([] { gguf::File::open("/dev/zero"); }).find("/dev/zero: is not a regular file"),
            std::string::npos);
}
TEST(Hostile, MissingFile) {
  const TempDir dir;
  EXPECT_NE(refusal([&] { gguf::File::open(dir / "none.gguf"); }).find("none.gguf: cannot open"),
            std::string::npos);
}
TEST(Hostile, PathWithControlCharacters) {
  const TempDir dir;
  const auto path = dir.write("a\nb\x1B[31m.gguf", RawGguf().letters("nope, not one").bytes());
  EXPECT_NE(
      refusal([&] { gguf::File::open(path); }).find("a\\nb\\x1B[31m.gguf: is not a GGUF file"),
      std::string::npos);
}

// A sparse file has bytes enough to justify any count; memory has its own limit.
class Sparse : public testing::Test {
 protected:
  void expect_refused(const RawGguf& head, const std::string& part) {
    const TempDir dir;
    const auto path = dir.write("sparse.gguf", head.bytes());
    std::filesystem::resize_file(path, uint64_t{1} << 37);
    requested = 0;
    const auto begin = std::chrono::steady_clock::now();
    const std::string message = refusal([&] { gguf::File::open(path); });
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_LE(requested, size_t{1} << 20);
    EXPECT_LT(took.count(), 1.0);
  }
};
TEST_F(Sparse, ArrayOfBytes) {
  expect_refused(RawGguf().header(0, 1).key("test.list", 9).u32(0).u64(uint64_t{1} << 36),
                 "1024 MiB");
}
TEST_F(Sparse, ArrayOfStrings) {
  expect_refused(RawGguf().header(0, 1).key("test.list", 9).u32(8).u64(uint64_t{1} << 33),
                 "1024 MiB");
}
TEST_F(Sparse, ArrayOfArrays) {
  expect_refused(RawGguf().header(0, 1).key("test.list", 9).u32(9).u64(uint64_t{1} << 33),
                 "1024 MiB");
}
TEST_F(Sparse, String) {
  expect_refused(RawGguf().header(0, 1).key("test.text", 8).u64(uint64_t{1} << 36), "1024 MiB");
}
TEST_F(Sparse, Counts) {
  expect_refused(RawGguf().header(uint64_t{1} << 31, uint64_t{1} << 31), "name is empty");
}

}  // namespace
}  // namespace lockstep
