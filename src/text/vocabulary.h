// The tokens of a GGUF file and what they are for. Follows llama.cpp b11434 in what is found by the
// text of a token (end-of-generation tokens above all) and in what a broken file may still do.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "text/pretokenizer.h"
#include "text/text_index.h"

namespace lockstep::text {

inline constexpr int32_t kNoToken = -1;

// tokenizer.ggml.model: gpt2, llama, gemma4.
enum class VocabularyKind : uint8_t {
  byte_bpe,  // merges over GPT-2's printable stand-ins for bytes
  spm,       // scores, U+2581 for spaces, <0xHH> for bytes
  raw_bpe,   // merges over UTF-8 characters, U+2581 for spaces, <0xHH> for bytes
};

// What a token is: bits, because llama.cpp adds `control` to end-of-generation tokens that a file
// calls normal.
enum TokenFlag : uint8_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 4,
  kUserDefined = 8,
  kUnused = 16,
  kByte = 32,
};

// The special roles. The fim_* are fill-in-the-middle marks.
enum class Role : uint8_t {
  bos,
  eos,
  eot,
  eom,
  unk,
  pad,
  fim_prefix,
  fim_suffix,
  fim_middle,
  fim_pad,
  fim_repo,
  fim_separator,
};
inline constexpr size_t kRoles = 12;

// What a file says about its vocabulary, unchecked. The views point into the file.
struct VocabularySource {
  std::string file;        // name for messages
  std::string kind;        // tokenizer.ggml.model
  std::string pre;         // tokenizer.ggml.pre, empty if absent
  std::string model_name;  // general.name, empty if absent
  std::vector<std::string_view> tokens;
  std::vector<std::string_view> merges;
  std::vector<double> scores;  // empty: absent
  std::vector<int64_t> types;  // GGUF's numbers; empty: absent
  bool has_merges = false;
  std::array<std::optional<int64_t>, kRoles> roles;
  std::optional<bool> add_bos, add_eos, add_space_prefix;

  static VocabularySource read(const gguf::File& file);
};

class Vocabulary {
 public:
  // Throws Error(bad_file) naming the file, the token or merge, and what is wrong with it.
  explicit Vocabulary(const VocabularySource& source);
  Vocabulary(const Vocabulary&) = delete;
  Vocabulary& operator=(const Vocabulary&) = delete;

  VocabularyKind kind() const { return kind_; }
  const PreTokenizerRule& pre_tokenizer() const { return *pre_tokenizer_; }
  int32_t size() const { return static_cast<int32_t>(texts_.size()); }
  std::string_view text(int32_t id) const { return texts_[static_cast<size_t>(id)]; }
  float score(int32_t id) const { return scores_[static_cast<size_t>(id)]; }
  uint8_t flags(int32_t id) const { return flags_[static_cast<size_t>(id)]; }
  int32_t find(std::string_view text) const;  // kNoToken when it is no token
  size_t max_token_bytes() const { return max_token_bytes_; }

  int32_t role(Role role) const { return roles_[static_cast<size_t>(role)]; }
  bool is_eog(int32_t id) const { return id >= 0 && id < size() && eog_[static_cast<size_t>(id)]; }
  bool add_bos() const { return add_bos_; }
  bool add_eos() const { return add_eos_; }
  bool add_space_prefix() const { return add_space_prefix_; }
  // What is wrong with the file and changes no token: one line each, which names the file.
  const std::vector<std::string>& notes() const { return notes_; }
  // White space after special tokens is dropped (Phi-3).
  bool strips_right(int32_t id) const;

 private:
  void copy_tokens(const VocabularySource& source);
  void set_roles(const VocabularySource& source);
  void find_roles_by_text();
  void find_eog();

  std::string file_;
  VocabularyKind kind_ = VocabularyKind::byte_bpe;
  const PreTokenizerRule* pre_tokenizer_ = nullptr;
  std::vector<char> arena_;  // the bytes behind texts_
  std::vector<std::string_view> texts_;
  TextIndex ids_;
  std::vector<float> scores_;
  std::vector<uint8_t> flags_;
  std::vector<bool> eog_;
  std::array<int32_t, kRoles> roles_;
  std::vector<std::string> notes_;
  size_t max_token_bytes_ = 0;
  bool add_bos_ = false, add_eos_ = false, add_space_prefix_ = false, phi3_ = false;
};

}  // namespace lockstep::text
