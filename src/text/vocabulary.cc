#include "text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"

namespace lockstep::text {
namespace {

using Names = std::span<const std::string_view>;

constexpr std::string_view kRoleKeys[kRoles] = {
    "bos_token_id",     "eos_token_id",     "eot_token_id",     "eom_token_id",
    "unknown_token_id", "padding_token_id", "fim_pre_token_id", "fim_suf_token_id",
    "fim_mid_token_id", "fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id"};

// The texts by which llama.cpp b11434 knows a role when the file does not name its token. Where a
// vocabulary has several, the first one here wins (llama.cpp takes whichever its hash table meets
// first).
constexpr std::string_view kEotNames[] = {
    "<|eot_id|>",        "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>",
    "<|end_of_text|>",   "<EOT>",      "_<EOT>",  "[EOT]",         "<｜end▁of▁sentence｜>",
    "<end_of_utterance>"};
constexpr std::string_view kEomNames[] = {"<|eom_id|>"};
constexpr std::string_view kFimPrefixNames[] = {"<|fim_prefix|>",  "<fim-prefix>", "<fim_prefix>",
                                                "<｜fim▁begin｜>", "<PRE>",        "▁<PRE>",
                                                "<|code_prefix|>", "<|prefix|>"};
constexpr std::string_view kFimSuffixNames[] = {"<|fim_suffix|>",  "<fim-suffix>", "<fim_suffix>",
                                                "<｜fim▁hole｜>",  "<SUF>",        "▁<SUF>",
                                                "<|code_suffix|>", "<|suffix|>"};
constexpr std::string_view kFimMiddleNames[] = {"<|fim_middle|>",  "<fim-middle>", "<fim_middle>",
                                                "<｜fim▁end｜>",   "<MID>",        "▁<MID>",
                                                "<|code_middle|>", "<|middle|>"};
constexpr std::string_view kFimPadNames[] = {"<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>",
                                             "[PAD]"};
constexpr std::string_view kFimRepoNames[] = {"<|fim_repo|>", "<|repo_name|>", "<fim-repo>",
                                              "<REPO>", "<reponame>"};
constexpr std::string_view kFimSeparatorNames[] = {"<|file_sep|>"};

constexpr std::string_view kEogNames[] = {"<|eot_id|>",
                                          "<|im_end|>",
                                          "<|end|>",
                                          "<|return|>",
                                          "<|call|>",
                                          "<|flush|>",
                                          "<|calls|>",
                                          "<end_of_turn>",
                                          "<|endoftext|>",
                                          "</s>",
                                          "<|eom_id|>",
                                          "<EOT>",
                                          "_<EOT>",
                                          "[EOT]",
                                          "[EOS]",
                                          "<|end_of_text|>",
                                          "<end_of_utterance>",
                                          "<eos>",
                                          "<turn|>",
                                          "<|tool_response>",
                                          "<｜end▁of▁sentence｜>",
                                          "[e~["};
// gpt-oss: always printed.
constexpr std::string_view kPrintedNames[] = {"<|channel|>", "<|message|>", "<|start|>",
                                              "<|constrain|>"};

uint8_t flags_of_type(int64_t type) {
  switch (type) {
    case 1:
      return kNormal;
    case 2:
      return kUnknown;
    case 3:
      return kControl;
    case 4:
      return kUserDefined;
    case 5:
      return kUnused;
    case 6:
      return kByte;
    default:
      return 0;
  }
}

template <typename To>
std::vector<To> numbers(const gguf::File& file, const std::string& key, const gguf::Array& array) {
  std::vector<To> out;
  out.reserve(array.size());
  const auto copy = [&](const auto& values) {
    for (const auto& value : values) out.push_back(static_cast<To>(value));
  };
  if (const auto* u = std::get_if<std::vector<uint64_t>>(&array.elements)) {
    copy(*u);
  } else if (const auto* i = std::get_if<std::vector<int64_t>>(&array.elements)) {
    copy(*i);
  } else if (const auto* d = std::get_if<std::vector<double>>(&array.elements);
             d && std::is_floating_point_v<To>) {
    copy(*d);
  } else {
    file.fail(fmt::format("{} is not an array of {}", key,
                          std::is_floating_point_v<To> ? "numbers" : "integers"));
  }
  return out;
}

const std::vector<std::string_view>& strings(const gguf::File& file, const std::string& key,
                                             const gguf::Array& array) {
  const auto* values = std::get_if<std::vector<std::string_view>>(&array.elements);
  if (!values) file.fail(key + " is not an array of strings");
  return *values;
}

}  // namespace

VocabularySource VocabularySource::read(const gguf::File& file) {
  const std::string prefix = "tokenizer.ggml.";
  VocabularySource source;
  source.file = file.name();
  const auto kind = file.string(prefix + "model");
  if (!kind) {
    file.fail(
        "no tokenizer.ggml.model: the file has no vocabulary (convert it again with its "
        "tokenizer)");
  }
  source.kind = *kind;
  source.pre = file.string(prefix + "pre").value_or("");
  source.model_name = file.string("general.name").value_or("");
  const auto tokens = file.array(prefix + "tokens");
  if (!tokens) file.fail("no tokenizer.ggml.tokens: the file has no vocabulary");
  source.tokens = strings(file, prefix + "tokens", *tokens);
  if (const auto scores = file.array(prefix + "scores")) {
    source.scores = numbers<double>(file, prefix + "scores", *scores);
  }
  if (const auto types = file.array(prefix + "token_type")) {
    source.types = numbers<int64_t>(file, prefix + "token_type", *types);
  }
  if (const auto merges = file.array(prefix + "merges")) {
    source.merges = strings(file, prefix + "merges", *merges);
    source.has_merges = true;
  }
  constexpr int64_t any_min = std::numeric_limits<int64_t>::min();
  constexpr int64_t any_max = std::numeric_limits<int64_t>::max();
  for (size_t i = 0; i < kRoles; ++i) {
    source.roles[i] = file.integer(prefix + std::string(kRoleKeys[i]), any_min, any_max);
  }
  source.add_bos = file.boolean(prefix + "add_bos_token");
  source.add_eos = file.boolean(prefix + "add_eos_token");
  source.add_space_prefix = file.boolean(prefix + "add_space_prefix");
  return source;
}

Vocabulary::Vocabulary(const VocabularySource& source) : file_(source.file) {
  const auto fail = [&](const std::string& what) {
    throw Error(ExitCode::bad_file, file_ + ": " + what);
  };
  roles_.fill(kNoToken);
  if (source.kind == "gpt2") {
    kind_ = VocabularyKind::byte_bpe;
    pre_tokenizer_ = find_pre_tokenizer(source.pre);
    if (!pre_tokenizer_ || pre_tokenizer_->pre_tokenizer == PreTokenizer::gemma4) {
      fail(fmt::format("pre-tokenizer \"{}\" is not known to this version (known: {})", source.pre,
                       pre_tokenizer_names()));
    }
    roles_[static_cast<size_t>(Role::bos)] = 11;
    roles_[static_cast<size_t>(Role::eos)] = 11;
    add_bos_ = pre_tokenizer_->add_bos;
  } else if (source.kind == "llama") {
    kind_ = VocabularyKind::spm;
    pre_tokenizer_ = find_pre_tokenizer("default");  // has no effect on this kind
    roles_[static_cast<size_t>(Role::bos)] = 1;
    roles_[static_cast<size_t>(Role::eos)] = 2;
    roles_[static_cast<size_t>(Role::unk)] = 0;
    add_bos_ = true;
    add_space_prefix_ = source.add_space_prefix.value_or(true);
  } else if (source.kind == "gemma4") {
    kind_ = VocabularyKind::raw_bpe;
    pre_tokenizer_ = find_pre_tokenizer("gemma4");
  } else {
    fail(
        fmt::format("tokenizer model \"{}\" is not known to this version (known: gpt2, llama, "
                    "gemma4)",
                    source.kind));
  }
  if (kind_ != VocabularyKind::spm && !source.has_merges) {
    fail("no tokenizer.ggml.merges, which tokenizer model \"" + source.kind + "\" needs");
  }
  std::string lower = source.model_name;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  phi3_ = lower.find("phi-3") != std::string::npos || lower.find("phi3") != std::string::npos;

  copy_tokens(source);
  set_roles(source);
  add_bos_ = source.add_bos.value_or(add_bos_);
  add_eos_ = source.add_eos.value_or(add_eos_);
  if (kind_ == VocabularyKind::raw_bpe) add_bos_ = true;  // llama.cpp's override for Gemma 4
  find_roles_by_text();
  find_eog();
  if (add_bos_ && role(Role::bos) == kNoToken) {
    fail("tokenizer.ggml.add_bos_token is set, but there is no valid bos_token_id");
  }
  if (add_eos_ && role(Role::eos) == kNoToken) {
    fail("tokenizer.ggml.add_eos_token is set, but there is no valid eos_token_id");
  }
}

void Vocabulary::copy_tokens(const VocabularySource& source) {
  const auto fail = [&](const std::string& what) {
    throw Error(ExitCode::bad_file, file_ + ": " + what);
  };
  const size_t n = source.tokens.size();
  if (n == 0) fail("tokenizer.ggml.tokens is empty");
  if (n > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    fail(fmt::format("tokenizer.ggml.tokens has {} tokens, more than ids can name", n));
  }
  // Longer arrays than needed are tolerated, as llama.cpp does.
  if (!source.scores.empty() && source.scores.size() < n) {
    fail(
        fmt::format("tokenizer.ggml.scores has {} entries for {} tokens", source.scores.size(), n));
  }
  if (!source.types.empty() && source.types.size() < n) {
    fail(fmt::format("tokenizer.ggml.token_type has {} entries for {} tokens", source.types.size(),
                     n));
  }
  const auto name_of_empty = [](size_t id) {
    return fmt::format("[EMPTY_{}]", id);
  };  // llama.cpp's
  size_t bytes = 0;
  for (size_t i = 0; i < n; ++i) {
    bytes += source.tokens[i].empty() ? name_of_empty(i).size() : source.tokens[i].size();
  }
  arena_.reserve(bytes);  // never grows after this, so the views stay
  texts_.reserve(n);
  ids_ = TextIndex(n);
  scores_.assign(n, 0.0f);
  flags_.assign(n, kNormal);
  for (size_t i = 0; i < n; ++i) {
    const std::string empty_name = source.tokens[i].empty() ? name_of_empty(i) : std::string();
    const std::string_view text = source.tokens[i].empty() ? empty_name : source.tokens[i];
    const char* begin = arena_.data() + arena_.size();
    arena_.insert(arena_.end(), text.begin(), text.end());
    texts_.emplace_back(begin, text.size());
    max_token_bytes_ = std::max(max_token_bytes_, text.size());
    const auto text_of = [this](int32_t id) { return this->text(id); };
    const int32_t same = ids_.add(static_cast<int32_t>(i), text_of);
    if (same != kNoToken) fail(fmt::format("tokens {} and {} are both \"{}\"", same, i, text));
    if (!source.scores.empty()) {
      scores_[i] = static_cast<float>(source.scores[i]);
      if (std::isnan(scores_[i])) fail(fmt::format("the score of token {} \"{}\" is NaN", i, text));
    }
    if (!source.types.empty()) flags_[i] = flags_of_type(source.types[i]);
  }
}

void Vocabulary::set_roles(const VocabularySource& source) {
  for (size_t i = 0; i < kRoles; ++i) {
    if (roles_[i] >= size()) roles_[i] = kNoToken;
    if (!source.roles[i]) continue;
    const int64_t id = *source.roles[i];
    if (id >= 0 && id < size()) {
      roles_[i] = static_cast<int32_t>(id);
      continue;
    }
    // llama.cpp warns and takes its default, which may be any token of this vocabulary: text would
    // begin or end with it. Padding and fill-in-the-middle marks have no use here that needs the
    // id.
    const auto role = static_cast<Role>(i);
    const bool used = role == Role::bos || role == Role::eos || role == Role::eot ||
                      role == Role::eom || (role == Role::unk && kind_ == VocabularyKind::spm);
    const std::string what =
        fmt::format("metadata key \"tokenizer.ggml.{}\" is {}", kRoleKeys[i], id);
    if (used) {
      throw Error(ExitCode::bad_file, fmt::format("{}: {}; accepted: the id of a token, 0 to {}",
                                                  file_, what, size() - 1));
    }
    notes_.push_back(
        fmt::format("{}: {}, and tokens are 0 to {}; the key is ignored", file_, what, size() - 1));
  }
}

int32_t Vocabulary::find(std::string_view text) const {
  return ids_.find(text, [this](int32_t id) { return this->text(id); });
}

void Vocabulary::find_roles_by_text() {
  const auto detect = [&](Role role, Names names) {
    int32_t& id = roles_[static_cast<size_t>(role)];
    for (size_t i = 0; id == kNoToken && i < names.size(); ++i) {
      id = find(names[i]);
      if (id != kNoToken) flags_[static_cast<size_t>(id)] |= kControl;
    }
  };
  detect(Role::eot, kEotNames);
  detect(Role::eom, kEomNames);
  detect(Role::fim_prefix, kFimPrefixNames);
  detect(Role::fim_suffix, kFimSuffixNames);
  detect(Role::fim_middle, kFimMiddleNames);
  detect(Role::fim_pad, kFimPadNames);
  detect(Role::fim_repo, kFimRepoNames);
  detect(Role::fim_separator, kFimSeparatorNames);
}

void Vocabulary::find_eog() {
  eog_.assign(static_cast<size_t>(size()), false);
  const auto add = [&](int32_t id) {
    if (id != kNoToken) eog_[static_cast<size_t>(id)] = true;
  };
  add(role(Role::fim_pad));
  add(role(Role::fim_repo));
  add(role(Role::fim_separator));
  for (const std::string_view name : kEogNames) {
    const int32_t id = find(name);
    add(id);
    if (id != kNoToken) flags_[static_cast<size_t>(id)] |= kControl;
  }
  for (const std::string_view name : kPrintedNames) {
    const int32_t id = find(name);
    if (id != kNoToken) flags_[static_cast<size_t>(id)] = kUserDefined;
  }
  add(role(Role::eos));
  add(role(Role::eot));
  add(role(Role::eom));

  const auto ends = [&](std::string_view name) { return is_eog(find(name)); };
  const auto demote = [&](std::string_view name, TokenFlag flag) {
    const auto id = static_cast<size_t>(find(name));
    eog_[id] = false;
    flags_[id] = flag;
  };
  // gpt-oss and Solar: <|end|> ends a message, not the answer.
  const bool call = ends("<|call|>") || ends("<|calls|>");
  if (call && ends("<|end|>") && (ends("<|return|>") || ends("<|flush|>"))) {
    demote("<|end|>", kUserDefined);
  }
  // Gemma 4 and PLaMo: </s> is an HTML tag.
  if (ends("</s>") && (ends("<|tool_response>") || ends("<|plamo:eos|>"))) demote("</s>", kNormal);
}

bool Vocabulary::strips_right(int32_t id) const {
  if (!phi3_) return false;
  const std::string_view t = text(id);
  return t == "</s>" || ((flags(id) & (kControl | kUserDefined | kUnknown)) != 0 && t != "<unk>" &&
                         t != "<s>" && t != "<|endoftext|>");
}

}  // namespace lockstep::text
