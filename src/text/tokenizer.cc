#include "text/tokenizer.h"

#include <fmt/format.h>
#include <malloc.h>

#include <algorithm>

#include "base/error.h"
#include "base/mapped_file.h"
#include "text/bpe.h"
#include "text/special_tokens.h"
#include "text/spm.h"

namespace lockstep::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr size_t kMaxTextBytes = size_t{512} << 20;  // 32-bit offsets hold it with spaces tripled

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  out.reserve(text.size());
  size_t at = 0;
  for (size_t hit; (hit = text.find(from, at)) != std::string_view::npos; at = hit + from.size()) {
    out.append(text.substr(at, hit - at)).append(to);
  }
  return out.append(text.substr(at));
}

std::vector<SpecialToken> special_tokens(const Vocabulary& vocabulary) {
  std::vector<SpecialToken> tokens;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const uint8_t flags = vocabulary.flags(id);
    if (!(flags & (kControl | kUserDefined | kUnknown))) continue;
    const bool always = !(flags & (kControl | kUnknown));
    tokens.push_back({id, vocabulary.text(id), always, vocabulary.strips_right(id)});
  }
  return tokens;
}

// <0xHH>
std::optional<char> byte_of(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const int high = digit(text[3]), low = digit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high << 4 | low);
}

std::string_view kind_name(VocabularyKind kind) {
  switch (kind) {
    case VocabularyKind::byte_bpe:
      return "BPE";
    case VocabularyKind::spm:
      return "SPM";
    case VocabularyKind::raw_bpe:
      return "BPE over characters";
  }
  return "";
}

}  // namespace

struct Tokenizer::Parts {
  explicit Parts(const VocabularySource& source)
      : vocabulary(source), specials(special_tokens(vocabulary)), notes(vocabulary.notes()) {
    if (vocabulary.kind() == VocabularyKind::spm) {
      spm.emplace(vocabulary, source.file);
    } else {
      bpe.emplace(vocabulary, source.merges);
      if (bpe->odd_merges() > 0) {
        const size_t first = bpe->first_odd_merge();
        notes.push_back(
            fmt::format("{}: {} of {} tokenizer.ggml.merges are not two tokens with one space "
                        "between, the first "
                        "at {}: \"{}\"; they are taken as llama.cpp takes them",
                        source.file, bpe->odd_merges(), source.merges.size(), first,
                        shorten(source.merges[first])));
      }
    }
    hash = compute_hash();
  }

  Digest compute_hash() const;
  void encode_spm(std::string_view text, const std::vector<Fragment>& fragments,
                  std::vector<int32_t>& ids) const;
  void encode_bpe(std::string_view text, const std::vector<Fragment>& fragments,
                  std::vector<int32_t>& ids) const;

  Vocabulary vocabulary;
  SpecialTokens specials;
  std::vector<std::string> notes;
  std::optional<Bpe> bpe;
  std::optional<Spm> spm;
  Digest hash;
};

Digest Tokenizer::Parts::compute_hash() const {
  std::string bytes;  // gathered first: a quarter of a million tokens are too many small updates
  const auto put = [&](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  };
  put(static_cast<uint8_t>(vocabulary.kind()));
  put(static_cast<uint8_t>(vocabulary.pre_tokenizer().pre_tokenizer));
  put(static_cast<uint8_t>(vocabulary.pre_tokenizer().ignore_merges));
  put(static_cast<uint8_t>(vocabulary.add_space_prefix()));
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const std::string_view text = vocabulary.text(id);
    put(static_cast<uint64_t>(text.size()));
    bytes += text;
    put(vocabulary.flags(id));
    if (spm) put(vocabulary.score(id));
  }
  if (bpe) bpe->append_merges(bytes);
  return sha256(std::as_bytes(std::span(bytes)));
}

void Tokenizer::Parts::encode_spm(std::string_view text, const std::vector<Fragment>& fragments,
                                  std::vector<int32_t>& ids) const {
  bool after_special = true;  // the start of the text counts as one
  for (const Fragment& fragment : fragments) {
    if (fragment.token >= 0) {
      ids.push_back(fragment.token);
      after_special = true;
      continue;
    }
    const std::string_view raw = text.substr(fragment.begin, fragment.end - fragment.begin);
    std::string escaped = replace_all(raw, " ", kSpaceMark);
    if (after_special && vocabulary.add_space_prefix()) escaped.insert(0, kSpaceMark);
    spm->encode(escaped, ids);
    after_special = false;
  }
}

void Tokenizer::Parts::encode_bpe(std::string_view text, const std::vector<Fragment>& fragments,
                                  std::vector<int32_t>& ids) const {
  for (const Fragment& fragment : fragments) {
    const std::string_view raw = text.substr(fragment.begin, fragment.end - fragment.begin);
    if (fragment.token >= 0) {
      ids.push_back(fragment.token);
    } else if (vocabulary.kind() == VocabularyKind::raw_bpe) {
      bpe->encode(replace_all(raw, " ", kSpaceMark), ids);
    } else {
      bpe->encode(raw, ids);
    }
  }
}

Tokenizer Tokenizer::load(const gguf::File& file) {
  Tokenizer tokenizer(VocabularySource::read(file));
  // The lists that it was made from, and the pages of the file they lie in, weigh more than what is
  // kept of them, and the weights are to come.
  if (file.mapped()) {
    for (const auto part : file.parts()) release_mapped(part);
  }
  ::malloc_trim(0);
  return tokenizer;
}

Tokenizer::Tokenizer(const VocabularySource& source)
    : parts_(std::make_shared<const Parts>(source)) {}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special,
                                       bool parse_special) const {
  if (text.size() >= kMaxTextBytes) {
    throw Error(ExitCode::bad_use,
                fmt::format("a text of {} bytes is too long to encode (limit {})", text.size(),
                            kMaxTextBytes));
  }
  std::vector<int32_t> ids;
  if (add_special && add_bos()) ids.push_back(bos());
  const std::vector<Fragment> fragments = parts_->specials.split(text, parse_special);
  if (parts_->spm) {
    parts_->encode_spm(text, fragments, ids);
  } else {
    parts_->encode_bpe(text, fragments, ids);
  }
  if (add_special && add_eos()) ids.push_back(eos());
  return ids;
}

std::string Tokenizer::piece(int32_t id, bool special) const {
  const Vocabulary& vocabulary = parts_->vocabulary;
  if (id < 0 || id >= vocabulary.size()) return {};
  const uint8_t flags = vocabulary.flags(id);
  const std::string_view text = vocabulary.text(id);
  if (flags & (kControl | kUnknown)) return special ? std::string(text) : std::string();
  if (flags & kUserDefined) return std::string(text);
  if (flags & kNormal) {
    return vocabulary.kind() == VocabularyKind::byte_bpe ? bytes_of_stand_ins(text)
                                                         : replace_all(text, kSpaceMark, " ");
  }
  if (flags & kByte) {
    const auto byte = byte_of(text);
    return byte ? std::string(1, *byte) : std::string(text);
  }
  return {};
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool special) const {
  std::string bytes;
  for (const int32_t id : ids) bytes += piece(id, special);
  return bytes;
}

int32_t Tokenizer::n_vocab() const {
  return parts_->vocabulary.size();
}

std::string_view Tokenizer::token_text(int32_t id) const {
  return parts_->vocabulary.text(id);
}

std::optional<int32_t> Tokenizer::find(std::string_view token_text) const {
  const int32_t id = parts_->vocabulary.find(token_text);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

int32_t Tokenizer::bos() const {
  return parts_->vocabulary.role(Role::bos);
}
int32_t Tokenizer::eos() const {
  return parts_->vocabulary.role(Role::eos);
}
int32_t Tokenizer::eot() const {
  return parts_->vocabulary.role(Role::eot);
}
int32_t Tokenizer::pad() const {
  return parts_->vocabulary.role(Role::pad);
}
bool Tokenizer::add_bos() const {
  return parts_->vocabulary.add_bos();
}
bool Tokenizer::add_eos() const {
  return parts_->vocabulary.add_eos();
}
bool Tokenizer::is_eog(int32_t id) const {
  return parts_->vocabulary.is_eog(id);
}

std::vector<int32_t> Tokenizer::eog_tokens() const {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < n_vocab(); ++id) {
    if (is_eog(id)) ids.push_back(id);
  }
  return ids;
}

bool Tokenizer::is_control(int32_t id) const {
  return id >= 0 && id < n_vocab() && (parts_->vocabulary.flags(id) & kControl) != 0;
}

const Digest& Tokenizer::vocabulary_hash() const {
  return parts_->hash;
}

const std::vector<std::string>& Tokenizer::notes() const {
  return parts_->notes;
}

std::string Tokenizer::description() const {
  const Vocabulary& vocabulary = parts_->vocabulary;
  std::string text(kind_name(vocabulary.kind()));
  if (vocabulary.kind() == VocabularyKind::byte_bpe) {
    text += fmt::format(", pre-tokenizer {}", vocabulary.pre_tokenizer().name);
  }
  text += fmt::format(", {} tokens", vocabulary.size());
  if (parts_->bpe) text += fmt::format(", {} merges", parts_->bpe->n_merges());
  return text;
}

std::optional<std::string> first_difference(const Tokenizer& here, const Tokenizer& there) {
  if (here.vocabulary_hash() == there.vocabulary_hash()) return std::nullopt;
  const int32_t n = std::min(here.n_vocab(), there.n_vocab());
  for (int32_t id = 0; id < n; ++id) {
    const std::string_view a = here.token_text(id), b = there.token_text(id);
    if (a != b) {
      return fmt::format("token {} is \"{}\" there, \"{}\" here", id, escape(b, 80), escape(a, 80));
    }
  }
  if (here.n_vocab() != there.n_vocab()) {
    return fmt::format("{} tokens there, {} here", there.n_vocab(), here.n_vocab());
  }
  for (int32_t id = 0; id < n; ++id) {
    if (here.is_control(id) != there.is_control(id)) {
      return fmt::format("token {} \"{}\" is {}a control token there, and {} here", id,
                         escape(here.token_text(id), 80), there.is_control(id) ? "" : "not ",
                         here.is_control(id) ? "is one" : "is none");
    }
  }
  if (here.description() != there.description()) {
    return fmt::format("{} there, {} here", there.description(), here.description());
  }
  return "the same tokens, but other token types, scores or merges";
}

}  // namespace lockstep::text
