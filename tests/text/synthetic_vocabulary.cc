#include "synthetic_vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

#include "text/bpe.h"

namespace lockstep::text {
namespace {

enum { normal = 1, unknown = 2, control = 3, user_defined = 4, byte_type = 6 };

// Each string is built up by merging its first part with its last character, so every prefix of two
// or more characters becomes a token.
constexpr std::string_view kStrings[] = {"the",
                                         " the",
                                         "ing",
                                         "and",
                                         " and",
                                         "er",
                                         "re",
                                         "on",
                                         "in",
                                         " in",
                                         "an",
                                         " a",
                                         " t",
                                         "th",
                                         "he",
                                         "ll",
                                         "ss",
                                         "ee",
                                         "aa",
                                         "aaaa",
                                         "aaaaaaaa",
                                         "    ",
                                         "        ",
                                         "\n\n",
                                         "\t\t",
                                         "\r\n",
                                         "--",
                                         "==",
                                         "....",
                                         "12",
                                         "10",
                                         "00",
                                         "'s",
                                         "'t",
                                         "\xC3\xA9",
                                         "\xE4\xB8\xAD",
                                         "\xF0\x9F\x99\x82",
                                         "user",
                                         "<|",
                                         "|>",
                                         "def",
                                         " return",
                                         "();",
                                         "ab",
                                         "ba",
                                         "abab",
                                         "bc",
                                         "abc",
                                         "xyz"};

size_t character_length(std::string_view text, size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

std::string stand_ins(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) out += byte_stand_in(static_cast<uint8_t>(c));
  return out;
}

std::string with_space_marks(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ') {
      out += "\xE2\x96\x81";
    } else {
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace

const std::vector<std::string>& synthetic_specials() {
  static const std::vector<std::string> specials = {
      "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|im_end|><", "<b>", "<<", "[MASK]"};
  return specials;
}

int SyntheticVocabulary::add_token(std::string_view text, int type, double score) {
  const auto known = std::find(source_.tokens.begin(), source_.tokens.end(), text);
  if (known != source_.tokens.end()) return static_cast<int>(known - source_.tokens.begin());
  source_.tokens.push_back(strings_.emplace_back(text));
  source_.types.push_back(type);
  source_.scores.push_back(score);
  return static_cast<int>(source_.tokens.size()) - 1;
}

void SyntheticVocabulary::add_merge(std::string_view left, std::string_view right) {
  source_.merges.push_back(strings_.emplace_back(std::string(left) + ' ' + std::string(right)));
  source_.has_merges = true;
}

void SyntheticVocabulary::add_specials() {
  source_.roles[static_cast<size_t>(Role::unk)] = add_token("<unk>", unknown);
  for (const std::string& text : synthetic_specials()) {
    add_token(text, text == "<b>" || text == "<<" ? user_defined : control, -1000);
  }
  source_.roles[static_cast<size_t>(Role::bos)] = add_token("<s>", control);
  source_.roles[static_cast<size_t>(Role::eos)] = add_token("</s>", control);
}

void SyntheticVocabulary::add_bytes_by_name() {
  for (int byte = 0; byte < 256; ++byte) add_token(fmt::format("<0x{:02X}>", byte), byte_type);
}

SyntheticVocabulary SyntheticVocabulary::byte_bpe(std::string_view pre) {
  SyntheticVocabulary v;
  v.source_.file = "synthetic";
  v.source_.kind = "gpt2";
  v.source_.pre = pre;
  for (int byte = 0; byte < 256; ++byte)
    v.add_token(byte_stand_in(static_cast<uint8_t>(byte)), normal);
  v.add_specials();
  for (const std::string_view text : kStrings) {
    for (size_t n = 2; n <= text.size(); ++n) {
      const std::string joined = stand_ins(text.substr(0, n));
      if (std::find(v.source_.tokens.begin(), v.source_.tokens.end(), joined) !=
          v.source_.tokens.end())
        continue;
      v.add_token(joined, normal);
      v.add_merge(stand_ins(text.substr(0, n - 1)), stand_ins(text.substr(n - 1, 1)));
    }
  }
  // Merges of merged pieces, too, and of a piece that is no token.
  v.add_merge(stand_ins("aa"), stand_ins("aa"));
  v.add_merge(stand_ins("ab"), stand_ins("ab"));
  v.add_merge(stand_ins("q"), stand_ins("u"));
  return v;
}

SyntheticVocabulary SyntheticVocabulary::spm(bool add_space_prefix) {
  SyntheticVocabulary v;
  v.source_.file = "synthetic";
  v.source_.kind = "llama";
  v.source_.add_space_prefix = add_space_prefix;
  v.add_specials();
  v.add_bytes_by_name();
  for (int n = 1; n <= 5; ++n)
    v.add_token(std::string(static_cast<size_t>(n), '\n'), user_defined, -1000);
  for (int n = 2; n <= 5; ++n)
    v.add_token(std::string(static_cast<size_t>(n), ' '), user_defined, -1000);
  double score = -1;
  for (const std::string_view text : kStrings) {
    const std::string marked = with_space_marks(text);
    for (size_t end = character_length(marked, 0); end <= marked.size();) {
      v.add_token(marked.substr(0, end), normal, score);
      score -= end % 3 == 0 ? 0 : 1;  // equal scores, too
      if (end == marked.size()) break;
      end += character_length(marked, end);
    }
  }
  for (char c = 'a'; c <= 'z'; ++c) v.add_token(std::string(1, c), normal, score -= 1);
  return v;
}

SyntheticVocabulary SyntheticVocabulary::raw_bpe() {
  SyntheticVocabulary v;
  v.source_.file = "synthetic";
  v.source_.kind = "gemma4";
  v.add_specials();
  v.add_bytes_by_name();
  for (int n = 1; n <= 5; ++n) v.add_token(std::string(static_cast<size_t>(n), '\n'), user_defined);
  for (const std::string_view text : kStrings) {
    if (text.find('\n') != std::string_view::npos) continue;
    const std::string marked = with_space_marks(text);
    size_t end = character_length(marked, 0);
    v.add_token(marked.substr(0, end), normal);
    while (end < marked.size()) {
      const size_t length = character_length(marked, end);
      v.add_token(marked.substr(end, length), normal);
      v.add_merge(marked.substr(0, end), marked.substr(end, length));
      end += length;
      v.add_token(marked.substr(0, end), normal);
    }
  }
  return v;
}

}  // namespace lockstep::text
