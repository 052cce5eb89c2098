#include "text/utf8_stream.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::text {
namespace {

struct Case {
  std::string bytes, text;
};

// The examples of Unicode 15.1, section 3.9, tables 3-8 to 3-11, and a few more.
const std::vector<Case> kCases = {
    {"", ""},
    {"plain", "plain"},
    {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
    {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41",
     "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF"
     "\xBD\x41"},
    {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41",
     "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF"
     "\xBD\x41"},
    {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42",
     "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\x41\xEF\xBF\xBD\xEF\xBF\xBD"
     "\x42"},
    {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41",
     "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\x41"},
    {"\xE2\x82", "\xEF\xBF\xBD"},
    {"a\xF0\x9F\x98", "a\xEF\xBF\xBD"},
};

TEST(Utf8Stream, GivesOneReplacementPerMaximalSubpart) {
  for (const Case& c : kCases) EXPECT_EQ(well_formed_utf8(c.bytes), c.text);
}

TEST(Utf8Stream, OutputDoesNotDependOnTheCuts) {
  for (const Case& c : kCases) {
    for (size_t first = 0; first <= c.bytes.size(); ++first) {
      for (size_t second = first; second <= c.bytes.size(); ++second) {
        Utf8Stream stream;
        std::string text = stream.push(c.bytes.substr(0, first));
        text += stream.push(c.bytes.substr(first, second - first));
        text += stream.push(c.bytes.substr(second));
        text += stream.flush();
        EXPECT_EQ(text, c.text) << "cut at " << first << " and " << second;
      }
    }
  }
}

TEST(Utf8Stream, NeverPrintsAPartOfACharacter) {
  Utf8Stream stream;
  const std::string emoji = "\xF0\x9F\x99\x82";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(stream.push(emoji.substr(i, 1)), "");
    EXPECT_EQ(stream.pending(), i + 1);
  }
  EXPECT_EQ(stream.push(emoji.substr(3)), emoji);
  EXPECT_EQ(stream.pending(), 0u);
}

TEST(Utf8Stream, CanBeUsedAgainAfterFlush) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xE2\x82"), "");
  EXPECT_EQ(stream.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.flush(), "");
  EXPECT_EQ(stream.push("\xAC"), "\xEF\xBF\xBD");
}

}  // namespace
}  // namespace lockstep::text
