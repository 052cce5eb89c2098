// Code points: decoding, encoding and the classes that pre-tokenizers look at.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::text {

inline constexpr uint32_t kReplacement = 0xFFFD;

// General categories L*, N*, M*, P*, S* and the property White_Space; everything else (controls,
// format characters, surrogates, private use, unassigned) is `other`. Unicode 15.1.0: the version
// of llama.cpp b11434's tables, because the ids depend on it.
enum class CharClass : uint8_t { other, letter, number, mark, punctuation, symbol, space };

CharClass char_class(uint32_t code_point);  // numbers above 0x10FFFF are `other`

void append_utf8(std::string& out, uint32_t code_point);  // code_point <= 0x10FFFF

// The code points of text as llama.cpp's BPE sees them: a byte that starts no sequence becomes
// U+FFFD by itself, overlong forms and surrogates pass (so C0 80 is U+0000), and only numbers above
// 0x10FFFF, at which llama.cpp b11434 throws, are bytes that start no sequence here.
std::vector<uint32_t> lenient_code_points(std::string_view text);

// Length that a UTF-8 lead byte announces, continuation and invalid bytes counting as 1 or 4 as in
// llama.cpp; never looks at what follows.
constexpr size_t announced_length(uint8_t lead) {
  return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

}  // namespace lockstep::text
