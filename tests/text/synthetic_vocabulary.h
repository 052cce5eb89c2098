// Small vocabularies of each kind, made in memory.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace lockstep::text {

// Owns the strings that its source points to.
class SyntheticVocabulary {
 public:
  // All 256 bytes, merges for a few hundred frequent strings, and special tokens.
  static SyntheticVocabulary byte_bpe(std::string_view pre);
  // Scores, <0xHH>, runs of spaces and newlines as user-defined tokens.
  static SyntheticVocabulary spm(bool add_space_prefix);
  static SyntheticVocabulary raw_bpe();  // Gemma 4's kind

  const VocabularySource& source() const { return source_; }
  VocabularySource& source() { return source_; }

  int add_token(std::string_view text, int type, double score = 0);
  void add_merge(std::string_view left, std::string_view right);

 private:
  void add_specials();
  void add_bytes_by_name();
  std::deque<std::string> strings_;
  VocabularySource source_;
};

// What the special tokens of these vocabularies are called.
const std::vector<std::string>& synthetic_specials();

}  // namespace lockstep::text
