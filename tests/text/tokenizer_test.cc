#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/writer.h"
#include "synthetic_vocabulary.h"
#include "text/unicode.h"

namespace lockstep::text {
namespace {

std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text,
                                bool parse_special = false) {
  std::vector<std::string> out;
  for (const int32_t id : tokenizer.encode(text, false, parse_special)) {
    out.push_back(tokenizer.piece(id, true));
  }
  return out;
}

using Pieces = std::vector<std::string>;

TEST(Tokenizer, ByteLevelBpeSplitsAndMerges) {
  const Tokenizer t(SyntheticVocabulary::byte_bpe("gpt-2").source());
  EXPECT_EQ(pieces(t, "the thing"), (Pieces{"the", " ", "th", "ing"}));
  EXPECT_EQ(pieces(t, "x    y"), (Pieces{"x", "   ", " ", "y"}));
  EXPECT_EQ(pieces(t, "\xC3\xA9"), (Pieces{"\xC3\xA9"}));
  EXPECT_EQ(pieces(t, ""), Pieces());
  // "q" + "u" merges to a piece that is no token: it is spelled again.
  EXPECT_EQ(pieces(t, "qu"), (Pieces{"q", "u"}));
}

TEST(Tokenizer, SpecialTokensAreParsedOnlyWhenAskedFor) {
  for (const Tokenizer& t : {Tokenizer(SyntheticVocabulary::byte_bpe("qwen2").source()),
                             Tokenizer(SyntheticVocabulary::spm(false).source()),
                             Tokenizer(SyntheticVocabulary::raw_bpe().source())}) {
    const int32_t im_end = *t.find("<|im_end|>");
    EXPECT_EQ(t.encode("<|im_end|>", false, true), std::vector<int32_t>{im_end});
    const std::vector<int32_t> plain = t.encode("<|im_end|>", false, false);
    EXPECT_EQ(std::count(plain.begin(), plain.end(), im_end), 0);
    // User-defined tokens are found either way.
    EXPECT_EQ(t.encode("<b>", false, false), std::vector<int32_t>{*t.find("<b>")});
    EXPECT_TRUE(t.is_eog(im_end));
    EXPECT_TRUE(t.is_control(im_end));
    EXPECT_EQ(t.piece(im_end, false), "");
    EXPECT_EQ(t.piece(im_end, true), "<|im_end|>");
    EXPECT_EQ(t.piece(*t.find("<b>"), false), "<b>");
  }
}

TEST(Tokenizer, SentencePieceEscapesSpacesAndSpellsBytes) {
  const Tokenizer t(SyntheticVocabulary::spm(true).source());
  EXPECT_EQ(pieces(t, "the"), (Pieces{" the"}));  // the space prefix
  EXPECT_EQ(pieces(t, "a<b>b"), (Pieces{" a", "<b>", " ", "b"}));
  EXPECT_EQ(t.piece(t.encode("\x01", false, false)[1], false), "\x01");
  const Tokenizer without(SyntheticVocabulary::spm(false).source());
  EXPECT_EQ(pieces(without, "the"), (Pieces{"the"}));
  EXPECT_EQ(pieces(without, "a\n\n\n\n\n\nb"), (Pieces{"a", "\n\n\n\n\n", "\n", "b"}));
}

TEST(Tokenizer, AddsBosAndEosWhereTheModelAsks) {
  auto v = SyntheticVocabulary::byte_bpe("gpt-2");
  v.source().add_bos = true;
  v.source().add_eos = true;
  const Tokenizer t(v.source());
  const int32_t bos = *t.find("<s>"), eos = *t.find("</s>");
  EXPECT_EQ(t.encode("", true, false), (std::vector<int32_t>{bos, eos}));
  EXPECT_EQ(t.encode("", false, false), std::vector<int32_t>());
  EXPECT_EQ(t.bos(), bos);
  EXPECT_EQ(t.eos(), eos);
  EXPECT_EQ(t.pad(), kNoToken);
}

TEST(Tokenizer, BytesComeBackAtByteLevel) {
  std::mt19937 random(4);
  for (const char* pre : {"", "gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35"}) {
    const Tokenizer t(SyntheticVocabulary::byte_bpe(pre).source());
    for (int round = 0; round < 500; ++round) {
      std::string text;
      for (size_t i = 0; i < random() % 40; ++i)
        append_utf8(text, random() % (random() % 2 ? 0x80 : 0x11000));
      EXPECT_EQ(t.decode(t.encode(text, false, false), false), text);
    }
  }
}

TEST(Tokenizer, IdsOutOfRangeHaveNoPiece) {
  const Tokenizer t(SyntheticVocabulary::byte_bpe("gpt-2").source());
  EXPECT_EQ(t.piece(-1, true), "");
  EXPECT_EQ(t.piece(t.n_vocab(), true), "");
  EXPECT_FALSE(t.is_eog(-1));
  EXPECT_FALSE(t.is_control(t.n_vocab()));
}

TEST(Tokenizer, NamesTheFirstDifferenceOfTwoVocabularies) {
  const auto base = SyntheticVocabulary::byte_bpe("gpt-2");
  const Tokenizer here(base.source());
  EXPECT_EQ(first_difference(here, Tokenizer(base.source())), std::nullopt);

  auto other = base;
  other.source().tokens[17] = "something\nelse";
  EXPECT_EQ(first_difference(here, Tokenizer(other.source())),
            "token 17 is \"something\\nelse\" there, \"\xC4\x91\" here");
  auto longer = base;
  longer.add_token("one more", 1);
  EXPECT_EQ(first_difference(here, Tokenizer(longer.source())),
            std::to_string(here.n_vocab() + 1) + " tokens there, " +
                std::to_string(here.n_vocab()) + " here");
  auto merges = base;
  std::swap(merges.source().merges[0], merges.source().merges[1]);
  EXPECT_EQ(first_difference(here, Tokenizer(merges.source())),
            "the same tokens, but other token types, scores or merges");
  EXPECT_NE(first_difference(here, Tokenizer(SyntheticVocabulary::byte_bpe("qwen2").source())),
            std::nullopt);
}

TEST(Tokenizer, TheHashCoversTypesScoresAndPrefix) {
  const auto base = SyntheticVocabulary::spm(false);
  const Tokenizer t(base.source());
  auto score = base;
  score.source().scores[300] -= 0.5;
  EXPECT_NE(Tokenizer(score.source()).vocabulary_hash(), t.vocabulary_hash());
  auto type = base;
  type.source().types[300] = 3;
  EXPECT_NE(Tokenizer(type.source()).vocabulary_hash(), t.vocabulary_hash());
  EXPECT_NE(Tokenizer(SyntheticVocabulary::spm(true).source()).vocabulary_hash(),
            t.vocabulary_hash());
  EXPECT_EQ(Tokenizer(base.source()).vocabulary_hash(), t.vocabulary_hash());
}

TEST(Tokenizer, LoadsFromAFile) {
  gguf::Writer writer;
  writer.add_string("tokenizer.ggml.model", "gpt2");
  writer.add_string("tokenizer.ggml.pre", "gpt-2");
  writer.add_strings("tokenizer.ggml.tokens", {"a", "b", "ab", "<|endoftext|>"});
  writer.add_i32s("tokenizer.ggml.token_type", {1, 1, 1, 3});
  writer.add_strings("tokenizer.ggml.merges", {"a b"});
  writer.add_u32("tokenizer.ggml.eos_token_id", 3);
  writer.add_bool("tokenizer.ggml.add_eos_token", true);
  const auto file = gguf::File::from_memory(
      std::make_shared<const std::vector<std::byte>>(writer.to_memory()), "made.gguf");
  const Tokenizer t = Tokenizer::load(file);
  EXPECT_EQ(t.encode("abba", true, false), (std::vector<int32_t>{2, 1, 0, 3}));
  EXPECT_EQ(t.eog_tokens(), std::vector<int32_t>{3});
  EXPECT_EQ(t.description(), "BPE, pre-tokenizer gpt-2, 4 tokens, 1 merges");
}

TEST(Tokenizer, RefusesTextsThatAreTooLong) {
  const Tokenizer t(SyntheticVocabulary::byte_bpe("gpt-2").source());
  // Nothing of the text is looked at, so nothing needs to be there.
  EXPECT_THROW(t.encode(std::string_view("x", size_t{512} << 20), false, false), Error);
}

}  // namespace
}  // namespace lockstep::text
