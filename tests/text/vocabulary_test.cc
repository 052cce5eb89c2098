// Vocabularies that are wrong: an error of one line, or what llama.cpp tolerates.
#include "text/vocabulary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "gguf/writer.h"
#include "synthetic_vocabulary.h"
#include "text/tokenizer.h"

namespace lockstep::text {
namespace {

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_file);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "no error";
}

using Change = std::function<void(SyntheticVocabulary&)>;

std::string bpe_error(const Change& change) {
  auto v = SyntheticVocabulary::byte_bpe("gpt-2");
  change(v);
  return error_of([&] { Tokenizer(v.source()); });
}

std::string spm_error(const Change& change) {
  auto v = SyntheticVocabulary::spm(true);
  change(v);
  return error_of([&] { Tokenizer(v.source()); });
}

TEST(HostileVocabulary, IsRefusedInOneLine) {
  EXPECT_EQ(bpe_error([](auto& v) { v.source().pre = "mystery\n"; }).substr(0, 71),
            "synthetic: pre-tokenizer \"mystery\\n\" is not known to this version (know");
  EXPECT_EQ(bpe_error([](auto& v) { v.source().kind = "bert"; }),
            "synthetic: tokenizer model \"bert\" is not known to this version (known: gpt2, llama, "
            "gemma4)");
  EXPECT_EQ(bpe_error([](auto& v) { v.source().has_merges = false; }),
            "synthetic: no tokenizer.ggml.merges, which tokenizer model \"gpt2\" needs");
  EXPECT_EQ(bpe_error([](auto& v) { v.source().tokens[9] = v.source().tokens[4]; }),
            "synthetic: tokens 4 and 9 are both \"\xC4\x84\"");
  EXPECT_EQ(bpe_error([](auto& v) { v.source().tokens.clear(); }),
            "synthetic: tokenizer.ggml.tokens is empty");
  EXPECT_EQ(spm_error([](auto& v) {
              v.source().scores.pop_back();
            }).find("synthetic: tokenizer.ggml.scores has "),
            0u);
  EXPECT_EQ(spm_error([](auto& v) {
              v.source().types.pop_back();
            }).find("synthetic: tokenizer.ggml.token_type has "),
            0u);
  EXPECT_EQ(spm_error([](auto& v) { v.source().scores[3] = std::nan(""); }),
            "synthetic: the score of token 3 \"<|im_start|>\" is NaN");
  EXPECT_EQ(bpe_error([](auto& v) {
              v.source().add_bos = true;
              v.source().roles.fill(std::nullopt);
              v.source().tokens.resize(5);
              v.source().types.clear();
              v.source().scores.clear();
            }),
            "synthetic: tokenizer.ggml.add_bos_token is set, but there is no valid bos_token_id");
  EXPECT_EQ(spm_error([](auto& v) {
              v.source().roles[static_cast<size_t>(Role::unk)] = 0;
              const auto byte =
                  std::find(v.source().tokens.begin(), v.source().tokens.end(), "<0x07>");
              *byte = "gone";
            }),
            "no error");  // the unknown token stands in
}

TEST(HostileVocabulary, WhatLlamaCppToleratesIsTolerated) {
  auto v = SyntheticVocabulary::byte_bpe("gpt-2");
  v.add_token("", 1);
  v.source().merges.push_back("nospace");
  v.source().merges.push_back("");
  v.source().merges.push_back(" ");
  v.source().merges.push_back("un known");
  v.source().merges.push_back("a ");
  v.source().merges.push_back(v.source().merges[0]);
  v.source().types[5] = 77;
  v.source().types.push_back(1);  // more types and scores than tokens
  v.source().scores.push_back(1);
  v.source().roles[static_cast<size_t>(Role::eos)] = std::nullopt;
  v.source().roles[static_cast<size_t>(Role::pad)] = -5;
  const Tokenizer t(v.source());
  EXPECT_EQ(t.token_text(t.n_vocab() - 1), "[EMPTY_" + std::to_string(t.n_vocab() - 1) + "]");
  EXPECT_EQ(t.eos(), 11);  // the default
  EXPECT_EQ(t.pad(), kNoToken);
  EXPECT_EQ(t.decode(t.encode("the unknown a", false, false), false), "the unknown a");
  const std::string last = std::to_string(t.n_vocab() - 1);
  ASSERT_EQ(t.notes().size(), 2u);
  EXPECT_EQ(
      t.notes()[0],
      "synthetic: metadata key \"tokenizer.ggml.padding_token_id\" is -5, and tokens are 0 to " +
          last + "; the key is ignored");
  EXPECT_NE(t.notes()[1].find("tokenizer.ggml.merges are not two tokens with one space between"),
            std::string::npos)
      << t.notes()[1];
  EXPECT_NE(t.notes()[1].find("\"nospace\""), std::string::npos) << t.notes()[1];
}

TEST(HostileVocabulary, AnIdThatWouldBeUsedAndIsNoTokenIsRefused) {
  const auto refused = [](SyntheticVocabulary v, Role role, int64_t id, const std::string& key) {
    v.source().roles[static_cast<size_t>(role)] = id;
    EXPECT_EQ(error_of([&] { Tokenizer(v.source()); }),
              "synthetic: metadata key \"tokenizer.ggml." + key + "\" is " + std::to_string(id) +
                  "; accepted: the id of a token, 0 to " +
                  std::to_string(v.source().tokens.size() - 1));
  };
  for (const auto& [role, key] : {std::pair{Role::bos, "bos_token_id"},
                                  {Role::eos, "eos_token_id"},
                                  {Role::eot, "eot_token_id"},
                                  {Role::eom, "eom_token_id"}}) {
    const auto v = SyntheticVocabulary::byte_bpe("gpt-2");
    refused(v, role, static_cast<int64_t>(v.source().tokens.size()), key);
    refused(v, role, -1, key);
    refused(SyntheticVocabulary::spm(true), role, int64_t{1} << 40, key);
  }
  refused(SyntheticVocabulary::spm(true), Role::unk, 99999, "unknown_token_id");
}

// Each odd entry of the merges is counted, and a good list has none.
TEST(HostileVocabulary, OddMergesAreCounted) {
  EXPECT_TRUE(Tokenizer(SyntheticVocabulary::byte_bpe("gpt-2").source()).notes().empty());
  EXPECT_TRUE(Tokenizer(SyntheticVocabulary::raw_bpe().source()).notes().empty());
  for (const char* odd : {"nospace", "", " ", "t h e", "t ", "the zz", "zz the"}) {
    auto v = SyntheticVocabulary::byte_bpe("gpt-2");
    const std::string at = std::to_string(v.source().merges.size());
    v.source().merges.push_back(odd);
    const Tokenizer t(v.source());
    ASSERT_EQ(t.notes().size(), 1u) << odd;
    EXPECT_EQ(t.notes()[0].find("synthetic: 1 of "), 0u) << t.notes()[0];
    EXPECT_NE(t.notes()[0].find("at " + at + ": \"" + odd + "\""), std::string::npos)
        << t.notes()[0];
  }
}

TEST(HostileVocabulary, InfiniteAndEqualScoresAreInOrder) {
  auto v = SyntheticVocabulary::spm(false);
  v.add_token("zy", 1, std::numeric_limits<double>::infinity());
  v.add_token("yz", 1, -std::numeric_limits<double>::infinity());
  const Tokenizer t(v.source());
  const auto ids = t.encode("yzyz", false, false);
  ASSERT_EQ(ids.size(), 3u);
  EXPECT_EQ(t.token_text(ids[1]), "zy");
}

gguf::File file_of(const std::function<void(gguf::Writer&)>& add) {
  gguf::Writer writer;
  add(writer);
  return gguf::File::from_memory(std::make_shared<const std::vector<std::byte>>(writer.to_memory()),
                                 "made.gguf");
}

TEST(HostileVocabulary, KeysOfOtherTypesAreRefusedByName) {
  const auto load = [](const std::function<void(gguf::Writer&)>& add) {
    return error_of([&] { Tokenizer::load(file_of(add)); });
  };
  EXPECT_EQ(load([](auto&) {}).find("made.gguf: no tokenizer.ggml.model"), 0u);
  EXPECT_EQ(load([](auto& w) {
              w.add_string("tokenizer.ggml.model", "gpt2");
            }).find("made.gguf: no tokenizer.ggml.tokens"),
            0u);
  EXPECT_NE(load([](auto& w) {
              w.add_string("tokenizer.ggml.model", "llama");
              w.add_u32s("tokenizer.ggml.tokens", {1, 2});
            }).find("tokenizer.ggml.tokens is not an array of strings"),
            std::string::npos);
  EXPECT_NE(load([](auto& w) {
              w.add_string("tokenizer.ggml.model", "llama");
              w.add_strings("tokenizer.ggml.tokens", {"a"});
              w.add_f32s("tokenizer.ggml.token_type", {1.5f});
            }).find("tokenizer.ggml.token_type is not an array of integers"),
            std::string::npos);
  EXPECT_NE(load([](auto& w) {
              w.add_string("tokenizer.ggml.model", "llama");
              w.add_strings("tokenizer.ggml.tokens", {"a"});
              w.add_strings("tokenizer.ggml.scores", {"high"});
            }).find("tokenizer.ggml.scores is not an array of numbers"),
            std::string::npos);
  EXPECT_NE(load([](auto& w) {
              w.add_string("tokenizer.ggml.model", "llama");
              w.add_strings("tokenizer.ggml.tokens", {"a", "b", "c"});
              w.add_string("tokenizer.ggml.bos_token_id", "one");
            }).find("tokenizer.ggml.bos_token_id"),
            std::string::npos);
}

TEST(EndOfGeneration, IsFoundByText) {
  auto v = SyntheticVocabulary::byte_bpe("gpt-2");
  const int end = v.add_token("<|end|>", 1), ret = v.add_token("<|return|>", 3);
  {
    const Tokenizer t(v.source());
    EXPECT_TRUE(t.is_eog(end));
    EXPECT_TRUE(t.is_control(end));  // though the file calls it normal
    EXPECT_TRUE(t.is_eog(ret));
  }
  // gpt-oss: <|end|> ends a message only, and the channel marks are printed.
  const int call = v.add_token("<|call|>", 3), channel = v.add_token("<|channel|>", 3);
  const Tokenizer t(v.source());
  EXPECT_FALSE(t.is_eog(end));
  EXPECT_FALSE(t.is_control(end));
  EXPECT_TRUE(t.is_eog(call));
  EXPECT_EQ(t.piece(channel, false), "<|channel|>");
}

TEST(EndOfGeneration, ClosingTagIsNormalForGemma4) {
  auto v = SyntheticVocabulary::raw_bpe();
  v.add_token("<|tool_response>", 3);
  v.source().roles[static_cast<size_t>(Role::eos)] = std::nullopt;
  const Tokenizer t(v.source());
  EXPECT_FALSE(t.is_eog(*t.find("</s>")));
  EXPECT_FALSE(t.is_control(*t.find("</s>")));
  EXPECT_TRUE(t.add_bos());  // always, for this kind
}

}  // namespace
}  // namespace lockstep::text
