// Text to token ids and back. The ids are those of llama.cpp b11434, bit for bit;
// docs/tokenizers.md says what is known, how it is tested and where the field's tools disagree with
// each other.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/sha256.h"
#include "gguf/file.h"
#include "text/vocabulary.h"

namespace lockstep::text {

// Immutable, and cheap to copy: copies share one vocabulary. All members may be called from any
// thread.
class Tokenizer {
 public:
  // Throws Error(bad_file) naming what the file has and what this version knows.
  static Tokenizer load(const gguf::File& file);
  explicit Tokenizer(const VocabularySource& source);

  // add_special: BOS before and EOS after, where the model asks for them. parse_special: the texts
  // of control tokens in the text become those tokens (what a chat template's output needs, and
  // what text from outside must not get); user-defined tokens are found either way. Text that is
  // not UTF-8 is taken as llama.cpp takes it. Near-linear in time and memory for any text;
  // Error(bad_use) for 512 MiB and more.
  std::vector<int32_t> encode(std::string_view text, bool add_special, bool parse_special) const;

  // The bytes that a token stands for: a part of a character, a character, or several. special:
  // control and unknown tokens give their text instead of nothing. Empty for ids out of range.
  std::string piece(int32_t id, bool special) const;
  // The pieces of ids, one after the other.
  std::string decode(std::span<const int32_t> ids, bool special) const;

  int32_t n_vocab() const;
  std::string_view token_text(int32_t id) const;  // as the file has it; id must be in range
  std::optional<int32_t> find(std::string_view token_text) const;

  // kNoToken (-1) where there is none.
  int32_t bos() const;
  int32_t eos() const;
  int32_t eot() const;  // end of turn
  int32_t pad() const;
  bool add_bos() const;
  bool add_eos() const;
  // Ends a generation: EOS, EOT, EOM and the tokens that llama.cpp knows by their text.
  bool is_eog(int32_t id) const;
  std::vector<int32_t> eog_tokens() const;  // ascending
  bool is_control(int32_t id) const;

  // Covers all that text and ids depend on: kind, pre-tokenizer, token texts and types, scores or
  // merges, and the space prefix.
  const Digest& vocabulary_hash() const;
  // What is wrong with the file and does no harm: one line each, which names the file.
  const std::vector<std::string>& notes() const;
  std::string description() const;  // "BPE, pre-tokenizer smollm, 49152 tokens, 48900 merges"

 private:
  struct Parts;
  std::shared_ptr<const Parts> parts_;
};

// The first thing in which two vocabularies differ, said of `there` as seen from `here`; nullopt
// when their hashes are equal. For example: token 17 is "a" there, "b" here.
std::optional<std::string> first_difference(const Tokenizer& here, const Tokenizer& there);

}  // namespace lockstep::text
