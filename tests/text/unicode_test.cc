#include "text/unicode.h"

#include <gtest/gtest.h>

namespace lockstep::text {
namespace {

TEST(Unicode, ClassesOfSomeCharacters) {
  EXPECT_EQ(char_class('a'), CharClass::letter);
  EXPECT_EQ(char_class('0'), CharClass::number);
  EXPECT_EQ(char_class('_'), CharClass::punctuation);
  EXPECT_EQ(char_class('$'), CharClass::symbol);
  EXPECT_EQ(char_class(' '), CharClass::space);
  EXPECT_EQ(char_class(0x0B), CharClass::space);
  EXPECT_EQ(char_class(0x1C), CharClass::other);  // Python calls it a space, White_Space does not
  EXPECT_EQ(char_class(0x85), CharClass::space);
  EXPECT_EQ(char_class(0x200B), CharClass::other);  // zero width space
  EXPECT_EQ(char_class(0x3000), CharClass::space);
  EXPECT_EQ(char_class(0x0301), CharClass::mark);
  EXPECT_EQ(char_class(0x00BD), CharClass::number);  // one half
  EXPECT_EQ(char_class(0xD800), CharClass::other);
  EXPECT_EQ(char_class(0x10FFFF), CharClass::other);
  EXPECT_EQ(char_class(0x110000), CharClass::other);
  EXPECT_EQ(char_class(0xFFFFFFFF), CharClass::other);
}

TEST(Unicode, TheTablesAreThoseOfVersion15Point1) {
  EXPECT_EQ(char_class(0x2EBF0), CharClass::letter);  // CJK extension I, new in 15.1
  EXPECT_EQ(char_class(0x2FFC), CharClass::symbol);   // ideographic description, new in 15.1
  EXPECT_EQ(char_class(0x1C89), CharClass::other);    // a Cyrillic letter since 16.0
}

TEST(Unicode, LenientDecodingTakesBrokenUtf8AsLlamaCppDoes) {
  using V = std::vector<uint32_t>;
  EXPECT_EQ(lenient_code_points("a\xC3\xA9"), (V{'a', 0xE9}));
  EXPECT_EQ(lenient_code_points("\xE2\x82"), (V{kReplacement, kReplacement}));
  EXPECT_EQ(lenient_code_points("\xC0\x80"), (V{0}));           // overlong
  EXPECT_EQ(lenient_code_points("\xED\xA0\x80"), (V{0xD800}));  // surrogate
  EXPECT_EQ(lenient_code_points("\xF4\x90\x80\x80"),
            (V{kReplacement, kReplacement, kReplacement, kReplacement}));
  EXPECT_EQ(lenient_code_points("\xFFz"), (V{kReplacement, 'z'}));
}

TEST(Unicode, EncodingIsTheInverseOfDecoding) {
  for (uint32_t c = 0; c <= 0x10FFFF; c += c < 0x3000 ? 1 : 37) {
    std::string text;
    append_utf8(text, c);
    EXPECT_EQ(lenient_code_points(text), std::vector<uint32_t>{c});
  }
}

}  // namespace
}  // namespace lockstep::text
