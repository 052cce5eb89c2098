// Byte-pair encoding, byte-level (GPT-2 and descendants) and over UTF-8 characters (Gemma 4).
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/merge.h"
#include "text/vocabulary.h"

namespace lockstep::text {

// GPT-2's printable stand-in for a byte (itself, or U+0100 and on), as UTF-8.
std::string_view byte_stand_in(uint8_t byte);
// The bytes that a token's text stands for; a character that stands for no byte is kept as it is.
std::string bytes_of_stand_ins(std::string_view token_text);

class Bpe {
 public:
  // vocabulary must outlive the Bpe. Merges without a space are ignored, of several spaces the
  // first divides, and pieces that are no tokens may take part in merges, all as in llama.cpp;
  // odd_merges() counts them.
  Bpe(const Vocabulary& vocabulary, const std::vector<std::string_view>& merges);
  Bpe(const Bpe&) = delete;
  Bpe& operator=(const Bpe&) = delete;

  // Appends the ids of a text without special tokens (for Gemma 4: spaces as U+2581 already).
  void encode(std::string_view text, std::vector<int32_t>& ids) const;

  size_t n_merges() const { return merges_.size(); }
  // Entries that are not two tokens with one space between, and the first of them.
  size_t odd_merges() const { return odd_merges_; }
  size_t first_odd_merge() const { return first_odd_merge_; }
  // The merges in order of rank, as bytes for a hash.
  void append_merges(std::string& bytes) const;

 private:
  struct Scratch {
    std::string text;  // of one word: bytes, or UTF-8 for Gemma 4
    std::string stand_ins;
    std::vector<Symbol> symbols;
    std::vector<uint64_t> heap;
  };

  int32_t intern(std::string_view piece);
  int32_t piece_id(std::string_view piece) const;
  PairMerge look_up(const Symbol& left, const Symbol& right) const;
  bool whole_word(Scratch& scratch, std::vector<int32_t>& ids) const;
  void encode_word(Scratch& scratch, std::vector<int32_t>& ids) const;
  void spell(std::string_view bytes, std::vector<int32_t>& ids) const;

  static uint64_t pair_key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  const Vocabulary& vocabulary_;
  size_t odd_merges_ = 0, first_odd_merge_ = 0;
  bool byte_level_;
  // Merges work on numbers: a token's id, or for a piece that is no token a number after them.
  std::deque<std::string> extra_pieces_;
  std::unordered_map<std::string_view, int32_t> extra_ids_;
  std::unordered_map<uint64_t, PairMerge> merges_;
  std::array<int32_t, 256> byte_pieces_;  // of each byte's stand-in
  std::array<int32_t, 256> byte_tokens_;  // what spells a byte where no token covers a piece
};

}  // namespace lockstep::text
