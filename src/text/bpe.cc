#include "text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/pretokenizer.h"
#include "text/unicode.h"

namespace lockstep::text {
namespace {

struct StandIns {
  std::array<std::string, 256> of_byte;
  std::array<int16_t, 0x144> to_byte;  // by code point; -1: stands for nothing
  StandIns() {
    to_byte.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t byte = 0; byte < 256; ++byte) {
      const bool printable =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const uint32_t code_point = printable ? byte : next++;
      append_utf8(of_byte[byte], code_point);
      to_byte[code_point] = static_cast<int16_t>(byte);
    }
  }
};

const StandIns& stand_ins() {
  static const StandIns table;
  return table;
}

}  // namespace

std::string_view byte_stand_in(uint8_t byte) {
  return stand_ins().of_byte[byte];
}

std::string bytes_of_stand_ins(std::string_view token_text) {
  std::string bytes;
  for (const uint32_t c : lenient_code_points(token_text)) {
    const int byte = c < stand_ins().to_byte.size() ? stand_ins().to_byte[c] : -1;
    if (byte >= 0) {
      bytes.push_back(static_cast<char>(byte));
    } else {
      append_utf8(bytes, c);
    }
  }
  return bytes;
}

Bpe::Bpe(const Vocabulary& vocabulary, const std::vector<std::string_view>& merges)
    : vocabulary_(vocabulary), byte_level_(vocabulary.kind() == VocabularyKind::byte_bpe) {
  merges_.reserve(merges.size());
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const std::string_view merge = merges[rank];
    const size_t space = merge.find(' ', 1);
    const auto is_odd = [&] {
      if (odd_merges_++ == 0) first_odd_merge_ = rank;
    };
    if (space == std::string_view::npos) {
      is_odd();
      continue;
    }
    const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
    joined.assign(left).append(right);
    const int32_t left_id = intern(left), right_id = intern(right);
    if (left_id >= vocabulary.size() || right_id >= vocabulary.size() ||
        merge.find(' ', space + 1) != std::string_view::npos) {
      is_odd();
    }
    const uint64_t key = pair_key(left_id, right_id);
    // The first of two equal merges counts.
    merges_.try_emplace(key, PairMerge{static_cast<uint32_t>(rank), intern(joined)});
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto b = static_cast<uint8_t>(byte);
    byte_pieces_[b] = piece_id(byte_stand_in(b));
    const char raw = static_cast<char>(b);
    byte_tokens_[b] =
        byte_level_ ? vocabulary.find({&raw, 1}) : vocabulary.find(fmt::format("<0x{:02X}>", byte));
  }
}

int32_t Bpe::piece_id(std::string_view piece) const {
  const int32_t id = vocabulary_.find(piece);
  if (id != kNoToken) return id;
  const auto it = extra_ids_.find(piece);
  return it == extra_ids_.end() ? -1 : it->second;
}

int32_t Bpe::intern(std::string_view piece) {
  const int32_t known = piece_id(piece);
  if (known >= 0) return known;
  const auto id = vocabulary_.size() + static_cast<int32_t>(extra_pieces_.size());
  extra_ids_.emplace(extra_pieces_.emplace_back(piece), id);
  return id;
}

PairMerge Bpe::look_up(const Symbol& left, const Symbol& right) const {
  if (left.id < 0 || right.id < 0) return {};
  const auto it = merges_.find(pair_key(left.id, right.id));
  return it == merges_.end() ? PairMerge{} : it->second;
}

void Bpe::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const std::vector<uint32_t> code_points = lenient_code_points(text);
  Scratch scratch;
  size_t begin = 0;
  for (const size_t end : split_words(vocabulary_.pre_tokenizer().pre_tokenizer, code_points)) {
    scratch.text.clear();
    for (; begin < end; ++begin) append_utf8(scratch.text, code_points[begin]);
    if (!whole_word(scratch, ids)) encode_word(scratch, ids);
  }
}

// Words that are taken as one token without looking at merges.
bool Bpe::whole_word(Scratch& scratch, std::vector<int32_t>& ids) const {
  int32_t id = kNoToken;
  if (byte_level_ && vocabulary_.pre_tokenizer().ignore_merges) {
    if (scratch.text.size() > vocabulary_.max_token_bytes()) return false;
    scratch.stand_ins.clear();
    for (const char c : scratch.text) scratch.stand_ins += byte_stand_in(static_cast<uint8_t>(c));
    id = vocabulary_.find(scratch.stand_ins);
  } else if (!byte_level_ && scratch.text[0] == '\n') {
    id = vocabulary_.find(scratch.text);  // a run of newlines
  }
  if (id == kNoToken) return false;
  ids.push_back(id);
  return true;
}

void Bpe::encode_word(Scratch& scratch, std::vector<int32_t>& ids) const {
  const std::string& text = scratch.text;
  scratch.symbols.clear();
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<uint8_t>(text[at]);
    const size_t length = byte_level_ ? 1 : announced_length(lead);
    const int32_t id =
        byte_level_ ? byte_pieces_[lead] : piece_id(std::string_view(text).substr(at, length));
    scratch.symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + length), id});
    at += length;
  }
  merge_pairs(scratch.symbols, scratch.heap,
              [this](const Symbol& left, const Symbol& right) { return look_up(left, right); });
  for (int32_t i = 0; i >= 0; i = scratch.symbols[static_cast<size_t>(i)].next) {
    const Symbol& symbol = scratch.symbols[static_cast<size_t>(i)];
    if (symbol.id >= 0 && symbol.id < vocabulary_.size()) {
      ids.push_back(symbol.id);
    } else {
      spell(std::string_view(text).substr(symbol.begin, symbol.end - symbol.begin), ids);
    }
  }
}

// llama.cpp spells a piece that is no token byte by byte, and drops the bytes that have no token.
// At byte level it spells the stand-ins, so that only printable ASCII comes out.
void Bpe::spell(std::string_view bytes, std::vector<int32_t>& ids) const {
  const auto put = [&](char c) {
    const int32_t id = byte_tokens_[static_cast<uint8_t>(c)];
    if (id != kNoToken) ids.push_back(id);
  };
  for (const char c : bytes) {
    if (!byte_level_) {
      put(c);
    } else {
      for (const char part : byte_stand_in(static_cast<uint8_t>(c))) put(part);
    }
  }
}

void Bpe::append_merges(std::string& bytes) const {
  std::vector<std::pair<uint32_t, uint64_t>> by_rank;
  by_rank.reserve(merges_.size());
  for (const auto& [key, merge] : merges_) by_rank.emplace_back(merge.priority, key);
  std::sort(by_rank.begin(), by_rank.end());
  const auto put = [&](uint64_t value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  for (const std::string& piece : extra_pieces_) {
    put(piece.size());
    bytes += piece;
  }
  for (const auto& [rank, key] : by_rank) put(key);
}

}  // namespace lockstep::text
