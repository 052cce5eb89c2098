// Lines out of bytes, and what is taken off their left side.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "lab/log/line_prefix.h"
#include "lab/log/line_reader.h"
#include "lab/log/word_finder.h"

namespace lockstep::lab::log {
namespace {

std::vector<std::string> cut(std::string_view text, size_t piece, LineCounts* counts = nullptr) {
  std::vector<std::string> out;
  LineCutter cutter;
  const auto each = [&out](std::string_view line) { out.emplace_back(line); };
  for (size_t i = 0; i < text.size(); i += piece) cutter.feed(text.substr(i, piece), each);
  cutter.finish(each);
  if (counts) *counts = cutter.counts();
  return out;
}

TEST(Lines, SameForEveryPiece) {
  const std::string text = "\xEF\xBB\xBFone\r\n\r\ntwo\nthree \xF0\x9F\x98\x80\n\nlast";
  const std::vector<std::string> expected{"one", "", "two", "three \xF0\x9F\x98\x80", "", "last"};
  for (size_t piece = 1; piece <= text.size(); ++piece) {
    LineCounts counts;
    EXPECT_EQ(cut(text, piece, &counts), expected) << piece;
    EXPECT_EQ(counts.lines, 6);
    EXPECT_EQ(counts.crlf, 2);
    EXPECT_TRUE(counts.byte_order_mark);
    EXPECT_TRUE(counts.unfinished);
    EXPECT_EQ(counts.bytes, static_cast<int64_t>(text.size()));
  }
}

TEST(Lines, NoMarkInTheMiddleAndHalfAMark) {
  EXPECT_EQ(cut("a\n\xEF\xBB\xBF"
                "b\n",
                2),
            (std::vector<std::string>{"a",
                                      "\xEF\xBB\xBF"
                                      "b"}));
  EXPECT_EQ(cut("\xEF\xBBx\n", 1), (std::vector<std::string>{"\xEF\xBBx"}));
}

TEST(Lines, NulsOfARotatedLog) {
  LineCounts counts;
  const std::string text =
      std::string(5000, '\0') + "first\nse\0cond\n" + std::string("th\0ird\n", 7);
  const auto lines = cut(text, 777, &counts);
  ASSERT_GE(lines.size(), 2u);
  EXPECT_EQ(lines[0], "first");
  EXPECT_EQ(counts.with_nul, 1);
  EXPECT_EQ(why_no_text(text), "");
}

TEST(Lines, TenMillionCharacters) {
  LineCounts counts;
  const auto lines = cut("before\n" + std::string(10'000'000, 'x') + "\nafter\n", 1 << 20, &counts);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[1].size(), kMaxLine);
  EXPECT_EQ(lines[2], "after");
  EXPECT_EQ(counts.cut, 1);
  // A line just long enough is whole, whatever the pieces.
  EXPECT_EQ(cut(std::string(kMaxLine, 'y') + "\n", 1000, &counts)[0].size(), kMaxLine);
  EXPECT_EQ(counts.cut, 0);
}

TEST(Lines, WhatIsNoText) {
  const auto says = [](std::string_view bytes, std::string_view what) {
    EXPECT_NE(why_no_text(bytes).find(what), std::string::npos) << why_no_text(bytes);
  };
  says("\xFF\xFEs\0l\0o\0t\0", "UTF-16");
  std::string without_mark;
  for (const char c : std::string_view("slot print_timing: id 0 | task 0 | eval time"))
    without_mark += {c, '\0'};
  says(without_mark, "UTF-16");
  says("\x1F\x8B\x08", "gzip");
  says("GGUF\x03", "inspect");
  std::string binary;
  for (int i = 0; i < 4096; ++i) binary += static_cast<char>(i * 37);
  says(binary, "binary");
  says(std::string(100, '\0'), "NUL");
  EXPECT_EQ(why_no_text("\x1B[34m0.00.1\x1B[0m slot\tprint \xC3\xA4\r\n"), "");
}

TEST(Words, LongestAndFirst) {
  const std::string_view words[] = {"time ", "eval time ", "total"};
  const WordFinder finder(words);
  const auto match = finder.find("prompt eval time = 3, total");
  ASSERT_TRUE(match);
  EXPECT_EQ(match->word, 1u);
  EXPECT_EQ(match->begin, 7u);
  EXPECT_EQ(finder.find("prompt eval time = 3, total", match->end)->word, 2u);
  EXPECT_FALSE(finder.find("evaltim tota"));
  EXPECT_FALSE(finder.find(""));
}

TEST(Prefix, Styles) {
  const auto read = [](std::string_view left) { return read_prefix(left, left); };
  Prefix p = read("0.16.519.195 I slot print_timing: id  3 | task 42 | ");
  EXPECT_EQ(p.slot, 3);
  EXPECT_EQ(p.task, 42);
  EXPECT_EQ(p.time_us, (0 * 60 + 16) * 1'000'000 + 519'195);
  EXPECT_EQ(p.source, "");
  p = read("llama-2  | 301.39.147.975 I slot      release: id  0 | task -1 | ");
  EXPECT_EQ(p.source, "llama-2");
  EXPECT_EQ(p.task, -1);
  EXPECT_EQ(p.time_us, (int64_t{301} * 60 + 39) * 1'000'000 + 147'975);
  p = read("Nov 30 05:23:42 host llama-server[4242]: slot print_timing: id  0 | task 7 | ");
  EXPECT_EQ(p.source, "llama-server[4242]");
  EXPECT_EQ(p.slot, 0);
  EXPECT_FALSE(p.time_us);
  p = read("2026-11-30T05:23:42.123456789Z 1.02.003.004 I slot print_timing: id  0 | task 7 | ");
  EXPECT_EQ(p.time_us, 62'003'004);
  // ik_llama.cpp: to the right of the words.
  p = read_prefix(
      "INFO [           release_slots] ",
      "INFO [           release_slots] slot released | tid=\"1\" id_slot=2 id_task=9 n_ctx=4");
  EXPECT_EQ(p.slot, 2);
  EXPECT_EQ(p.task, 9);
  EXPECT_FALSE(read("no prefix at all ").slot);
}

TEST(Prefix, Colours) {
  std::string scratch;
  EXPECT_EQ(without_colours("plain", scratch), "plain");
  EXPECT_EQ(without_colours("\x1B[34m0.00.1\x1B[0m \x1B[1;32mI\x1B[0m slot\x1B", scratch),
            "0.00.1 I slot");
}

TEST(Prefix, Json) {
  auto line = read_json_line(
      R"({"type":"log","time":2500000,"level":"info","msg":"slot x: id  0 | task 1 | a\n\"q\" \u00e9"})");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->text, "slot x: id  0 | task 1 | a\n\"q\" \xC3\xA9");
  EXPECT_EQ(line->time_us, 2'500'000);
  line = read_json_line(R"({"log":"eval time\n","stream":"stderr","time":"2026-01-01"})");
  ASSERT_TRUE(line);
  EXPECT_EQ(line->text, "eval time");
  EXPECT_FALSE(line->time_us);
  EXPECT_EQ(read_json_line(R"({"msg":"slot released","id_slot":3,"id_task":4})")->task, 4);
  EXPECT_FALSE(read_json_line("{}"));
  EXPECT_FALSE(read_json_line(R"({"msg":5})"));
  EXPECT_EQ(read_json_line(R"({"msg":"cut \)")->text, "cut \\");
}

}  // namespace
}  // namespace lockstep::lab::log
