// Reading the fields of a payload from left to right.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

namespace lockstep::lab::log {

// Every step skips blanks before it, and once one has failed all the following do.
class Scan {
 public:
  explicit Scan(std::string_view text) : rest_(text) {}

  bool ok() const { return ok_; }
  std::string_view rest() const { return rest_; }

  Scan& word(std::string_view word) {
    skip_blanks();
    if (ok_ && rest_.starts_with(word)) {
      rest_.remove_prefix(word.size());
    } else {
      ok_ = false;
    }
    return *this;
  }
  // Takes the word along where it is there.
  bool maybe(std::string_view word) {
    skip_blanks();
    if (!ok_ || !rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  // Everything up to the word, which must be there, and the word.
  Scan& past(std::string_view word) {
    const size_t at = rest_.find(word);
    if (at == std::string_view::npos) {
      ok_ = false;
    } else {
      rest_.remove_prefix(at + word.size());
    }
    return *this;
  }
  // A whole number of at most `largest` in size: by default one that millions of can be added up
  // (counts of tokens, ids).
  Scan& integer(int64_t& value, int64_t largest = int64_t{1} << 36) {
    skip_blanks();
    int64_t read = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), read);
    if (!ok_ || error != std::errc{} || read > largest || read < -largest) {
      ok_ = false;
      return *this;
    }
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    value = read;
    return *this;
  }
  // A finite number below 1e15 in size (times in milliseconds, rates).
  Scan& number(double& value) {
    skip_blanks();
    double read = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), read);
    if (!ok_ || error != std::errc{} || !std::isfinite(read) || std::abs(read) > 1e15) {
      ok_ = false;
      return *this;
    }
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    value = read;
    return *this;
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && (rest_[0] == ' ' || rest_[0] == '\t')) rest_.remove_prefix(1);
  }
  std::string_view rest_;
  bool ok_ = true;
};

// The first word of `text`, without quotes, commas and bars around it.
inline std::string_view first_word(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t'\"");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_first_of(" \t,'\"|", begin) - begin);
}

}  // namespace lockstep::lab::log
