#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/huge_memory.h"
#include "base/mapped_file.h"
#include "base/philox.h"
#include "base/sha256.h"
#include "base/thread_team.h"

namespace lockstep {
namespace {

TEST(Escape, KeepsTextAndShowsWhatATerminalWouldObey) {
  EXPECT_EQ(escape("naïve 日本 🙂"), "naïve 日本 🙂");
  EXPECT_EQ(escape("a\x1b[31mb\r\n\t\x7f"), "a\\x1B[31mb\\x0D\\n\\t\\x7F");
  EXPECT_EQ(escape("\xC2\x9B"), "\\x9B");                         // C1 control sequence introducer
  EXPECT_EQ(escape("\xE2\x80\xAE"), "\\u{202E}");                 // right-to-left override
  EXPECT_EQ(escape("\xFF\xC0\x80"), "\\xFF\\xC0\\x80");           // not UTF-8, overlong
  EXPECT_EQ(escape("\xED\xA0\x80"), "\\xED\\xA0\\x80");           // surrogate
  EXPECT_EQ(escape("\xF4\x90\x80\x80"), "\\xF4\\x90\\x80\\x80");  // above U+10FFFF
  EXPECT_EQ(escape("\xE2\x82"), "\\xE2\\x82");                    // cut short
}

TEST(Escape, IsBounded) {
  EXPECT_LE(escape(std::string(1 << 20, 'x'), 100).size(), 120u);
}

TEST(Error, MessageIsOneLine) {
  const Error error(ExitCode::bad_file, "x.gguf: key \"a\nb\" is odd");
  EXPECT_STREQ(error.what(), "x.gguf: key \"a\\nb\" is odd");
  EXPECT_EQ(error.code(), ExitCode::bad_file);
}

// FIPS 180-4 example "abc", and the empty message.
TEST(Sha256, KnownAnswers) {
  const std::string abc = "abc";
  EXPECT_EQ(to_hex(sha256(std::as_bytes(std::span(abc)))),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(to_hex(sha256({})), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Sha256, PiecesEqualTheWhole) {
  std::vector<uint8_t> bytes(1000);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  Sha256 pieces;
  for (size_t i = 0; i < bytes.size(); i += 7) {
    pieces.update(
        std::as_bytes(std::span(bytes).subspan(i, std::min<size_t>(7, bytes.size() - i))));
  }
  EXPECT_EQ(pieces.finish(), sha256(std::as_bytes(std::span(bytes))));
}

// Vectors of the Random123 distribution (kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, KnownAnswers) {
  using Words = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32_10({f, f, f, f}, {f, f}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

// Every chunk once, no phase before the last one's chunks and its `after`, plain memory visible
// from phase to phase.
class Counting final : public TeamWork {
 public:
  explicit Counting(std::vector<int32_t> sizes) : chunks(std::move(sizes)) {
    for (const int32_t n : chunks) touched.emplace_back(static_cast<size_t>(n), 0);
  }
  void run(int phase, int chunk, int) override {
    if (phase != ended) ++disorder;
    ++touched[static_cast<size_t>(phase)][static_cast<size_t>(chunk)];
  }
  void after(int phase) override {
    if (phase != ended) ++disorder;
    for (const int count : touched[static_cast<size_t>(phase)]) disorder += count != 1;
    ++ended;
  }
  std::vector<int32_t> chunks;
  std::vector<std::vector<int>> touched;
  int ended = 0;
  std::atomic<int> disorder{0};
};

TEST(ThreadTeam, PhasesInOrderEveryChunkOnceForEverySize) {
  for (const int size : {1, 2, 3, 4, 7}) {
    ThreadTeam team(size);
    EXPECT_EQ(team.size(), size);
    for (int repeat = 0; repeat < 200; ++repeat) {
      Counting counting({1, 0, 17, 2, 0, 0, 101, 1, 1, 1, 5, 0});
      team.run(counting.chunks, counting);
      ASSERT_EQ(counting.ended, 12);
      ASSERT_EQ(counting.disorder, 0);
      team.run(std::span<const int32_t>(), counting);
    }
  }
}

TEST(ThreadTeam, AWorkersErrorReachesTheCallerAndTheTeamGoesOn) {
  ThreadTeam team(3);
  for (int bad = 0; bad < 3; ++bad) {
    std::atomic<int> ran{0};
    EXPECT_THROW(team.run(3,
                          [&](int chunk) {
                            ++ran;
                            if (chunk == bad) throw std::runtime_error("bad");
                          }),
                 std::runtime_error);
    EXPECT_EQ(ran, 3);
    team.run(3, [&](int) { ++ran; });
    EXPECT_EQ(ran, 6);
  }
}

TEST(HugeMemory, IsZeroedAlignedAndRefusesWhatThereIsNot) {
  HugeMemory memory(3 << 20, "a test");
  EXPECT_EQ(memory.size(), 4 << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % (2 << 20), 0u);
  for (int64_t i = 0; i < memory.size(); i += 4096) {
    EXPECT_EQ(memory.data()[i], std::byte{0});
    memory.data()[i] = std::byte{1};
  }
  EXPECT_GE(memory.huge_bytes(), 0);
  EXPECT_LE(memory.huge_bytes(), memory.size());
  HugeMemory other = std::move(memory);
  EXPECT_EQ(memory.data(), nullptr);
  EXPECT_EQ(other.data()[0], std::byte{1});
  EXPECT_EQ(HugeMemory(0, "nothing").data(), nullptr);
  try {
    HugeMemory too_much(int64_t{1} << 50, "a test's weights");
    ADD_FAILURE() << "a petabyte was granted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::resource);
    EXPECT_NE(std::string(error.what()).find("a test's weights: 1048576.00 GiB are needed"),
              std::string::npos)
        << error.what();
  }
}

TEST(MappedFile, SaysWhenItWasWrittenTo) {
  const auto path = std::filesystem::temp_directory_path() / "lockstep_base_test_changed";
  const auto write = [](const std::filesystem::path& to, const char* text) {
    std::ofstream(to) << text;
    // Times of files are those of the last clock tick: another one for sure.
    std::filesystem::last_write_time(
        to, std::filesystem::last_write_time(to) + std::chrono::seconds(text[0] - 'a'));
  };
  write(path, "a");
  MappedFile file(path);
  EXPECT_FALSE(file.changed());
  write(path.string() + ".new", "b");
  std::filesystem::rename(path.string() + ".new", path);  // another file under the name
  EXPECT_FALSE(file.changed());
  MappedFile second(path);
  EXPECT_FALSE(second.changed());
  write(path, "cc");
  EXPECT_TRUE(second.changed());
  EXPECT_FALSE(file.changed());
  EXPECT_TRUE(MappedFile(std::move(second)).changed());
  std::filesystem::remove(path);
}

TEST(MappedFile, RefusesWhatIsNoFile) {
  const auto expect = [](const std::filesystem::path& path, const std::string& part) {
    try {
      MappedFile file(path);
      ADD_FAILURE() << path << " was mapped";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_file);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  };
  const auto empty = std::filesystem::temp_directory_path() / "lockstep_base_test_empty";
  std::ofstream(empty).close();
  expect("/nonexistent/model.gguf", "cannot open");
  expect("/", "not a regular file");
  expect("/dev/zero", "not a regular file");
  expect(empty, "is empty");
  std::filesystem::remove(empty);
}

}  // namespace
}  // namespace lockstep
