// SentencePiece-style pair merging by score (Llama 2, Gemma 1 to 3).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace lockstep::text {

class Spm {
 public:
  // vocabulary must outlive the Spm. A byte without a token (neither <0xHH> nor itself) becomes the
  // unknown token; Error(bad_file) when there is none, for some text could not be encoded at all.
  Spm(const Vocabulary& vocabulary, const std::string& file);

  // Appends the ids of a text without special tokens, spaces as U+2581 already.
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

 private:
  const Vocabulary& vocabulary_;
  std::array<int32_t, 256> byte_tokens_;
};

}  // namespace lockstep::text
