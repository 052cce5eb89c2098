#include "synth/tokenizer.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::synth {
namespace {

// tokenizer.ggml.token_type
enum : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";

// Words of two letters, then of three, then of four; the first letter may be a space. Each is the
// one before it in length with a letter added, so that merges reach it.
constexpr int64_t kFirst = 27, kNext = 26;
constexpr int64_t kWords = kFirst * kNext * (1 + kNext + kNext * kNext);

struct Word {
  std::string stem, letter;  // the merge that makes it
};

// Calls take(word) for the first n words.
template <typename Take>
void for_words(int64_t n, std::string_view space, Take take) {
  std::vector<std::string> stems{std::string(space)}, longer;
  for (const char letter : kLetters) stems.emplace_back(1, letter);
  while (n > 0) {
    longer.clear();
    for (const std::string& stem : stems) {
      for (const char letter : kLetters) {
        if (n-- <= 0) return;
        take(Word{stem, std::string(1, letter)});
        longer.push_back(stem + letter);
      }
    }
    stems.swap(longer);
  }
}

std::string utf8(uint32_t code_point) {  // below 0x800
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 0x3F))};
}

struct Vocabulary {
  std::vector<std::string> tokens, merges;
  std::vector<int32_t> types;
  std::vector<float> scores;
  void add(std::string token, int32_t type, float score = 0.0f) {
    tokens.push_back(std::move(token));
    types.push_back(type);
    scores.push_back(score);
  }
};

constexpr std::string_view kBpeSpecials[] = {"<|bos|>", "<|endoftext|>", "<|im_start|>",
                                             "<|im_end|>"};

// GPT-2's byte level: a printable byte stands for itself, the others for U+0100 and up in order.
Vocabulary bpe_vocabulary(int64_t n) {
  Vocabulary v;
  uint32_t next = 0x100;
  std::string space;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
    const std::string token = utf8(printable ? byte : next++);
    if (byte == ' ') space = token;
    v.add(token, kNormal);
  }
  for (const std::string_view special : kBpeSpecials) v.add(std::string(special), kControl);
  for_words(n - static_cast<int64_t>(v.tokens.size()), space, [&](const Word& word) {
    v.add(word.stem + word.letter, kNormal);
    v.merges.push_back(word.stem + " " + word.letter);
  });
  return v;
}

constexpr std::string_view kSpmSpecials[] = {"<pad>", "<eos>",           "<bos>",
                                             "<unk>", "<start_of_turn>", "<end_of_turn>"};
constexpr int32_t kSpmUnknown = 3;

// As Gemma's: specials, bytes, then pieces; the earlier piece has the higher score. Single
// characters come first while there is room, and whatever has no piece is spelt in bytes.
Vocabulary spm_vocabulary(int64_t n) {
  const std::string space = "\xE2\x96\x81";
  Vocabulary v;
  for (const std::string_view special : kSpmSpecials) {
    v.add(std::string(special), v.tokens.size() == kSpmUnknown ? kUnknown : kControl);
  }
  for (int byte = 0; byte < 256; ++byte) v.add(fmt::format("<0x{:02X}>", byte), kByte);
  const auto left = [&] { return n - static_cast<int64_t>(v.tokens.size()); };
  const auto add_piece = [&](std::string piece) {
    v.add(std::move(piece), kNormal, -static_cast<float>(v.tokens.size()));
  };
  add_piece(space);
  for (char letter = '!'; letter <= '~' && left() > 0; ++letter) add_piece(std::string(1, letter));
  for_words(left(), space, [&](const Word& word) { add_piece(word.stem + word.letter); });
  return v;
}

constexpr const char* kChatMl =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ "
    "'<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' "
    "}}{% endif %}";
constexpr const char* kTurns =
    "{{ bos_token }}{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\n' + "
    "message['content'] + '<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ "
    "'<start_of_turn>model\n' }}{% endif %}";

}  // namespace

int64_t min_vocab(Tokenizer tokenizer) {
  constexpr auto kBpe = static_cast<int64_t>(256 + std::size(kBpeSpecials));
  constexpr auto kSpm = static_cast<int64_t>(256 + std::size(kSpmSpecials) + 1);  // and the space
  return tokenizer == Tokenizer::spm ? kSpm : kBpe;
}
int64_t max_vocab() {
  return 260 + kWords;
}

void add_tokenizer(gguf::Writer& writer, Tokenizer tokenizer, int64_t n) {
  const bool bpe = tokenizer != Tokenizer::spm, qwen = tokenizer == Tokenizer::qwen;
  const Vocabulary v = bpe ? bpe_vocabulary(n) : spm_vocabulary(n);
  writer.add_string("tokenizer.ggml.model", bpe ? "gpt2" : "llama");
  writer.add_string("tokenizer.ggml.pre", qwen ? "qwen2" : bpe ? "gpt-2" : "default");
  writer.add_strings("tokenizer.ggml.tokens", v.tokens);
  writer.add_i32s("tokenizer.ggml.token_type", v.types);
  if (bpe) {
    writer.add_strings("tokenizer.ggml.merges", v.merges);
    if (qwen) {  // as Qwen's files: a turn's end is the text's, and no token begins it
      writer.add_u32("tokenizer.ggml.bos_token_id", 257);
      writer.add_u32("tokenizer.ggml.eos_token_id", 259);
      writer.add_u32("tokenizer.ggml.padding_token_id", 257);
    } else {
      writer.add_u32("tokenizer.ggml.bos_token_id", 256);
      writer.add_u32("tokenizer.ggml.eos_token_id", 257);
      writer.add_u32("tokenizer.ggml.eot_token_id", 259);
    }
  } else {
    writer.add_f32s("tokenizer.ggml.scores", v.scores);
    writer.add_u32("tokenizer.ggml.bos_token_id", 2);
    writer.add_u32("tokenizer.ggml.eos_token_id", 1);
    writer.add_u32("tokenizer.ggml.unknown_token_id", kSpmUnknown);
    writer.add_u32("tokenizer.ggml.padding_token_id", 0);
    writer.add_u32("tokenizer.ggml.eot_token_id", 5);
    writer.add_bool("tokenizer.ggml.add_space_prefix", false);
  }
  writer.add_bool("tokenizer.ggml.add_bos_token", !bpe);
  writer.add_string("tokenizer.chat_template", bpe ? kChatMl : kTurns);
}

}  // namespace lockstep::synth
