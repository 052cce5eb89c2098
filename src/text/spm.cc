#include "text/spm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "text/merge.h"
#include "text/unicode.h"

namespace lockstep::text {
namespace {

// A number that is the lower the higher the score is. The score is no NaN, so kNever is not
// reached.
uint32_t priority_of(float score) {
  const auto bits = std::bit_cast<uint32_t>(score == 0.0f ? 0.0f : score);  // -0 equals 0
  return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}

}  // namespace

Spm::Spm(const Vocabulary& vocabulary, const std::string& file) : vocabulary_(vocabulary) {
  for (int byte = 0; byte < 256; ++byte) {
    const char raw = static_cast<char>(byte);
    int32_t id = vocabulary.find(fmt::format("<0x{:02X}>", byte));
    if (id == kNoToken && byte != 0) id = vocabulary.find({&raw, 1});
    if (id == kNoToken) id = vocabulary.role(Role::unk);
    if (id == kNoToken) {
      throw Error(ExitCode::bad_file,
                  fmt::format("{}: the vocabulary has no token for byte <0x{:02X}> and no "
                              "unknown token",
                              file, byte));
    }
    byte_tokens_[static_cast<size_t>(byte)] = id;
  }
}

void Spm::encode(std::string_view text, std::vector<int32_t>& ids) const {
  std::vector<Symbol> symbols;
  symbols.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    // By the lead byte alone: in broken UTF-8 a symbol may take in whatever follows, as in
    // llama.cpp.
    const size_t length =
        std::min(announced_length(static_cast<uint8_t>(text[at])), text.size() - at);
    const int32_t id = vocabulary_.find(text.substr(at, length));
    symbols.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(at + length), id});
    at += length;
  }
  std::vector<uint64_t> heap;
  merge_pairs(symbols, heap, [&](const Symbol& left, const Symbol& right) -> PairMerge {
    const size_t length = right.end - left.begin;
    if (length > vocabulary_.max_token_bytes()) return {};
    const int32_t id = vocabulary_.find(text.substr(left.begin, length));
    if (id == kNoToken) return {};
    return {priority_of(vocabulary_.score(id)), id};
  });
  if (symbols.empty()) return;
  for (int32_t i = 0; i >= 0; i = symbols[static_cast<size_t>(i)].next) {
    const Symbol& symbol = symbols[static_cast<size_t>(i)];
    if (symbol.id != kNoToken) {
      ids.push_back(symbol.id);
      continue;
    }
    for (size_t at = symbol.begin; at < symbol.end; ++at) {
      ids.push_back(byte_tokens_[static_cast<uint8_t>(text[at])]);
    }
  }
}

}  // namespace lockstep::text
