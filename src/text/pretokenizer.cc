#include "text/pretokenizer.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace lockstep::text {
namespace {

using enum PreTokenizer;

constexpr PreTokenizerRule kRules[] = {
    {"default", default_rule},
    {"gpt-2", gpt2},
    {"phi-2", gpt2},
    {"gigachat", gpt2},
    {"a.x-4.0", gpt2},
    {"mellum", gpt2},
    {"granite-docling", gpt2},
    {"mpt", gpt2},
    {"olmo", gpt2},
    {"jais", gpt2},
    {"trillion", gpt2},
    {"exaone4", gpt2},
    {"smollm", smollm},
    {"starcoder", smollm},
    {"refact", smollm},
    {"command-r", smollm},
    {"codeshell", smollm},
    {"exaone", smollm},
    {"minerva-7b", smollm},
    {"mellum2", smollm},
    {"llama3", llama3, true, true},
    {"llama-v3", llama3, true, true},
    {"llama-bpe", llama3, true, true},
    {"falcon3", llama3, true, true},
    {"falcon-h1", llama3, true, true},
    {"pixtral", llama3, true, true},
    {"midm-2.0", llama3, true, true},
    {"lfm2", llama3, true, true},
    {"dbrx", llama3},
    {"smaug-bpe", llama3},
    {"qwen2", qwen2},
    {"deepseek-r1-qwen", qwen2},
    {"kormo", qwen2},
    {"f2llmv2", qwen2},
    {"megrez", qwen2},
    {"stablelm2", qwen2},
    {"hunyuan", qwen2},
    {"solar-open", qwen2},
    {"grok-2", qwen2},
    {"qwen35", qwen35},
    {"gemma4", gemma4},
};

constexpr bool is_ascii_digit(uint32_t c) {
  return c >= '0' && c <= '9';
}

// 's 't 'm 'd 're 've 'll at [at, end): length, or 0.
size_t contraction(std::span<const uint32_t> text, size_t at, size_t end, bool ignore_case) {
  if (text[at] != '\'' || at + 1 >= end) return 0;
  const auto letter = [&](size_t i) {
    const uint32_t c = text[i];
    return ignore_case && c >= 'A' && c <= 'Z' ? c + 32 : c;
  };
  const uint32_t first = letter(at + 1);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
  if (at + 2 >= end) return 0;
  const uint32_t second = letter(at + 2);
  const bool two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') ||
                   (first == 'l' && second == 'l');
  return two ? 3 : 0;
}

class Splitter {
 public:
  Splitter(std::span<const uint32_t> text, std::vector<size_t>& ends) : text_(text), ends_(ends) {
    classes_.reserve(text.size());
    for (const uint32_t c : text) classes_.push_back(char_class(c));
  }

  size_t size() const { return text_.size(); }

  void gpt2_words(size_t begin, size_t end) {
    for (size_t at = begin; at < end;) {
      at = gpt2_word(at, end);
      ends_.push_back(at);
    }
  }

  // max_digits: longest run of numbers in a word; marks: \p{M} counts as a letter.
  void llama3_words(size_t max_digits, bool marks) {
    marks_are_letters_ = marks;
    for (size_t at = 0; at < size();) {
      at = llama3_word(at, max_digits);
      ends_.push_back(at);
    }
  }

  void smollm_words() {
    for (size_t at = 0; at < size();) {
      if (classes_[at] == CharClass::number) {
        ends_.push_back(++at);
      } else {
        const size_t end =
            run(at, size(), [&](size_t i) { return classes_[i] != CharClass::number; });
        gpt2_words(at, end);
        at = end;
      }
    }
  }

  // llama.cpp's rule for files that name no pre-tokenizer: runs of [\p{P}$+<=>^~|] alone, gpt2 in
  // every piece, runs of \p{N} alone, ASCII digits by threes.
  void default_words() {
    for (size_t at = 0; at < size();) {
      const bool mark = is_default_mark(at);
      const size_t end = run(at, size(), [&](size_t i) { return is_default_mark(i) == mark; });
      gpt2_words(at, end);
      at = end;
    }
    const std::vector<size_t> words = std::exchange(ends_, {});
    size_t begin = 0;
    for (const size_t end : words) {
      for (size_t at = begin; at < end;) {
        const bool number = classes_[at] == CharClass::number;
        const size_t stop =
            run(at, end, [&](size_t i) { return (classes_[i] == CharClass::number) == number; });
        digit_triples(at, stop);
        at = stop;
      }
      begin = end;
    }
  }

  void newline_runs() {
    for (size_t at = 0; at < size();) {
      const bool newline = text_[at] == '\n';
      at = run(at, size(), [&](size_t i) { return (text_[i] == '\n') == newline; });
      ends_.push_back(at);
    }
  }

 private:
  template <typename Predicate>
  static size_t run(size_t at, size_t end, Predicate holds) {
    while (at < end && holds(at)) ++at;
    return at;
  }

  bool is_letter(size_t i) const {
    return classes_[i] == CharClass::letter ||
           (marks_are_letters_ && classes_[i] == CharClass::mark);
  }
  bool is_number(size_t i) const { return classes_[i] == CharClass::number; }
  bool is_space(size_t i) const { return classes_[i] == CharClass::space; }
  bool is_newline(size_t i) const { return text_[i] == '\r' || text_[i] == '\n'; }
  bool is_sign(size_t i) const { return !is_space(i) && !is_letter(i) && !is_number(i); }

  bool is_default_mark(size_t i) const {
    if (classes_[i] == CharClass::punctuation) return true;
    const uint32_t c = text_[i];
    return c == '$' || c == '+' || c == '<' || c == '=' || c == '>' || c == '^' || c == '~' ||
           c == '|';
  }

  // Where the character class that an optional space may precede is looked at.
  size_t after_space(size_t at, size_t end) const {
    return text_[at] == ' ' && at + 1 < end ? at + 1 : at;
  }

  // \s+(?!\S)|\s+ : all of the white space, but for the last one when something follows.
  static size_t spaces_word(size_t at, size_t spaces_end, size_t end) {
    return spaces_end - at > 1 && spaces_end < end ? spaces_end - 1 : spaces_end;
  }

  size_t gpt2_word(size_t at, size_t end) const {
    if (const size_t length = contraction(text_, at, end, false)) return at + length;
    const size_t start = after_space(at, end);
    if (is_letter(start)) return run(start, end, [&](size_t i) { return is_letter(i); });
    if (is_number(start)) return run(start, end, [&](size_t i) { return is_number(i); });
    if (is_sign(start)) return run(start, end, [&](size_t i) { return is_sign(i); });
    return spaces_word(at, run(at, end, [&](size_t i) { return is_space(i); }), end);
  }

  size_t llama3_word(size_t at, size_t max_digits) const {
    const size_t end = size();
    if (const size_t length = contraction(text_, at, end, true)) return at + length;
    if (!is_newline(at) && !is_number(at) &&
        (is_letter(at) || (at + 1 < end && is_letter(at + 1)))) {
      return run(at + 1, end, [&](size_t i) { return is_letter(i); });
    }
    if (is_number(at)) {
      return run(at, std::min(end, at + max_digits), [&](size_t i) { return is_number(i); });
    }
    const size_t start = after_space(at, end);
    if (is_sign(start)) {
      const size_t signs_end = run(start, end, [&](size_t i) { return is_sign(i); });
      return run(signs_end, end, [&](size_t i) { return is_newline(i); });
    }
    size_t after_newline = 0;
    const size_t spaces_end = run(at, end, [&](size_t i) {
      if (is_newline(i)) after_newline = i + 1;
      return is_space(i);
    });
    return after_newline ? after_newline : spaces_word(at, spaces_end, end);
  }

  void digit_triples(size_t begin, size_t end) {
    size_t pending = begin;  // start of what no triple has taken yet
    for (size_t at = begin; at + 3 <= end;) {
      if (!is_ascii_digit(text_[at]) || !is_ascii_digit(text_[at + 1]) ||
          !is_ascii_digit(text_[at + 2])) {
        ++at;
        continue;
      }
      if (at > pending) ends_.push_back(at);
      at += 3;
      ends_.push_back(at);
      pending = at;
    }
    if (end > pending) ends_.push_back(end);
  }

  std::span<const uint32_t> text_;
  std::vector<size_t>& ends_;
  std::vector<CharClass> classes_;
  bool marks_are_letters_ = false;
};

}  // namespace

const PreTokenizerRule* find_pre_tokenizer(std::string_view name) {
  if (name.empty()) return &kRules[0];
  for (const PreTokenizerRule& rule : kRules) {
    if (rule.name == name) return &rule;
  }
  return nullptr;
}

std::string pre_tokenizer_names() {
  std::string names;
  for (const PreTokenizerRule& rule : kRules) {
    if (!names.empty()) names += ", ";
    names += rule.name;
  }
  return names;
}

std::vector<size_t> split_words(PreTokenizer pre_tokenizer, std::span<const uint32_t> code_points) {
  std::vector<size_t> ends;
  Splitter splitter(code_points, ends);
  switch (pre_tokenizer) {
    case default_rule:
      splitter.default_words();
      break;
    case gpt2:
      splitter.gpt2_words(0, splitter.size());
      break;
    case smollm:
      splitter.smollm_words();
      break;
    case llama3:
      splitter.llama3_words(3, false);
      break;
    case qwen2:
      splitter.llama3_words(1, false);
      break;
    case qwen35:
      splitter.llama3_words(1, true);
      break;
    case gemma4:
      splitter.newline_runs();
      break;
  }
  return ends;
}

}  // namespace lockstep::text
