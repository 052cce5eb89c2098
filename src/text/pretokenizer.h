// Pre-tokenizers of byte-level BPE: how a text is cut into the words inside which merges happen.
//
// Each is written as a scanner over code-point classes instead of the regular expression it stands
// for: one pass, no backtracking and no match limit, and exactly the words of llama.cpp b11434
// (which scans these same ones by hand, and whose reading of the expressions decides).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::text {

enum class PreTokenizer : uint8_t {
  default_rule,  // no or "default" tokenizer.ggml.pre
  gpt2,          // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  smollm,        // \p{N} alone, then gpt2
  llama3,        // (?i:contractions)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|
                 //  ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
  qwen2,         // llama3 with \p{N} for \p{N}{1,3}
  qwen35,        // qwen2 with [\p{L}\p{M}] for \p{L}
  gemma4,        // [^\n]+|[\n]+ on text whose spaces are U+2581 already
};

struct PreTokenizerRule {
  std::string_view name;  // value of tokenizer.ggml.pre
  PreTokenizer pre_tokenizer;
  bool ignore_merges = false;  // a word that is a token is taken whole
  bool add_bos = false;        // default of tokenizer.ggml.add_bos_token
};

// The rule for a value of tokenizer.ggml.pre; null when it is not known here.
const PreTokenizerRule* find_pre_tokenizer(std::string_view name);
std::string pre_tokenizer_names();  // for messages: "default, gpt-2, …"

// Cuts code points into words: the ascending end index of each. No word is empty.
std::vector<size_t> split_words(PreTokenizer pre_tokenizer, std::span<const uint32_t> code_points);

}  // namespace lockstep::text
