// Synthetic models load, tokenize, and give sane logits.
#include "model/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/sha256.h"
#include "kernels/backend.h"
#include "state/kv_cache.h"
#include "synth/synth.h"
#include "synth/tokenizer.h"
#include "temp_dir.h"
#include "text/tokenizer.h"

namespace lockstep::synth {
namespace {

TEST(SynthModel, SaysThatItIsSynthetic) {
  const gguf::File file = make_in_memory(parse_synth("llama-tiny@q8_0,seed=3"));
  EXPECT_EQ(file.boolean("lockstep.synthetic"), true);
  EXPECT_EQ(file.string("lockstep.synthetic.spec"), "synth:llama-tiny@q8_0,seed=3");
  EXPECT_NE(file.string("general.name")->find("synthetic"), std::string::npos);
  EXPECT_EQ(file.name(), "synth:llama-tiny@q8_0,seed=3");
  EXPECT_TRUE(model::Model::load(file)->synthetic());
}

TEST(SynthModel, TheFileIsTheModelInMemory) {
  const test::TempDir dir;
  const SynthSpec spec = parse_synth("gemma3-tiny@q4_k_m,seed=3");
  uint64_t last = 0;
  write(spec, dir / "m.gguf", [&](uint64_t bytes) {
    EXPECT_GT(bytes, last);
    last = bytes;
  });
  const gguf::File file = gguf::File::open(dir / "m.gguf"), memory = make_in_memory(spec);
  EXPECT_EQ(file.total_bytes(), total_bytes(spec));
  EXPECT_EQ(sha256(file.parts()[0]), sha256(memory.parts()[0]));
}

TEST(SynthModel, RowsThatKQuantsDoNotDivide) {
  // 576 = 2.25 x 256: as llama.cpp, attention rows fall back and ffn_down (1536) does not.
  const gguf::File file = make_in_memory(parse_synth("llama-135m,layers=1,vocab=300@q4_k"));
  EXPECT_EQ(file.find_tensor("blk.0.attn_q.weight")->type, gguf::TensorType::q5_0);
  EXPECT_EQ(file.find_tensor("blk.0.ffn_down.weight")->type, gguf::TensorType::q4_k);
  EXPECT_EQ(file.find_tensor("token_embd.weight")->type, gguf::TensorType::q8_0);
  const gguf::File odd = make_in_memory(parse_synth("llama-tiny,embd=72,layers=1@q5_1"));
  EXPECT_EQ(odd.find_tensor("blk.0.attn_q.weight")->type, gguf::TensorType::f16);
}

TEST(SynthModel, MoreBitsWhereQ4KMHasThem) {
  const gguf::File file = make_in_memory(parse_synth("llama-tiny,layers=8@q4_k_m"));
  const auto type = [&](int layer, const char* name) {
    return file.find_tensor("blk." + std::to_string(layer) + "." + name + ".weight")->type;
  };
  const bool better[8] = {true, false, false, true, false, false, true, true};
  for (int layer = 0; layer < 8; ++layer) {
    const auto expected = better[layer] ? gguf::TensorType::q6_k : gguf::TensorType::q4_k;
    EXPECT_EQ(type(layer, "attn_v"), expected) << layer;
    EXPECT_EQ(type(layer, "ffn_down"), expected) << layer;
    EXPECT_EQ(type(layer, "ffn_up"), gguf::TensorType::q4_k) << layer;
  }
  EXPECT_EQ(file.find_tensor("output.weight")->type, gguf::TensorType::q6_k);
}

class SynthLogits : public testing::TestWithParam<std::string> {};

TEST_P(SynthLogits, AreSane) {
  const auto model = model::Model::load(make_in_memory(parse_synth(GetParam())));
  const auto backend = kernels::make_cpu_backend("", 1);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 40; ++i) tokens.push_back((i * 37 + 5) % 300);
  state::KvCache cache(model->kv_spec(kernels::KvType::f16, kernels::KvType::f16, 64), nullptr);
  const auto n_vocab = static_cast<size_t>(model->hyperparameters().n_vocab);
  std::vector<float> logits(n_vocab * tokens.size());
  kernels::Pass pass;
  pass.segments.push_back({tokens, 0, cache.append(static_cast<int64_t>(tokens.size())), 0});
  pass.logits = logits;
  backend->run(model->graph(), pass);
  EXPECT_TRUE(pass.faults.empty());
  double sum = 0, squares = 0;
  for (const float logit : logits) {
    ASSERT_TRUE(std::isfinite(logit));
    sum += logit;
    squares += static_cast<double>(logit) * logit;
  }
  const auto count = static_cast<double>(logits.size());
  EXPECT_LT(std::fabs(sum / count), 0.2);
  EXPECT_GT(std::sqrt(squares / count), 0.4);
  EXPECT_LT(std::sqrt(squares / count), 2.5);
  // Rows differ: the model listens to its input.
  EXPECT_NE(std::memcmp(logits.data(), logits.data() + n_vocab, n_vocab * 4), 0);
}

std::vector<std::string> logit_cases() {
  std::vector<std::string> cases;
  for (const std::string& type : type_names()) {
    cases.push_back("synth:llama-tiny@" + type);
    cases.push_back("synth:gemma3-tiny@" + type);
    cases.push_back("synth:qwen2-tiny@" + type);
    cases.push_back("synth:qwen3-tiny@" + type);
  }
  for (const char* options :
       {"tied=true", "rope_scaling=linear", "rope_scaling=llama3", "rope_scaling=yarn",
        "rope_scaling=factors", "tokenizer=spm", "layers=20", "kv_heads=8", "head_dim=64"}) {
    cases.push_back(std::string("synth:llama-tiny,") + options + "@q8_0");
  }
  for (const char* options : {"tied=false", "rope_scaling=linear", "tokenizer=bpe", "window=0",
                              "window=3", "kv_heads=1"}) {
    cases.push_back(std::string("synth:gemma3-tiny,") + options + "@q8_0");
  }
  for (const char* shape : {"qwen2-tiny", "qwen3-tiny"}) {
    for (const char* options : {"tied=true", "tied=false", "rope_scaling=linear",
                                "rope_scaling=yarn", "layers=20", "kv_heads=1"}) {
      cases.push_back(std::string("synth:") + shape + "," + options + "@q8_0");
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, SynthLogits, testing::ValuesIn(logit_cases()), [](const auto& test) {
  std::string name = test.param.substr(6);
  for (char& letter : name) {
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  }
  return name;
});

class SynthTokenizer : public testing::TestWithParam<std::string> {};

TEST_P(SynthTokenizer, EncodesAndDecodes) {
  for (const int64_t vocab :
       {int64_t{263}, int64_t{300}, int64_t{512}, int64_t{1500}, int64_t{32000}}) {
    const std::string spec =
        GetParam() + ",layers=1,embd=32,ffn=32,heads=1,kv_heads=1,vocab=" + std::to_string(vocab);
    const gguf::File file = make_in_memory(parse_synth(spec + "@q8_0"));
    const text::Tokenizer tokenizer = text::Tokenizer::load(file);
    EXPECT_EQ(tokenizer.n_vocab(), vocab);
    for (const std::string text :
         {"the quick brown fox", "Numbers 12345, punctuation!?\n\ttabs", "caf\xC3\xA9 \xE2\x82\xAC",
          "\xF0\x9F\x98\x80 emoji", "  two  spaces  "}) {
      const std::vector<int32_t> ids = tokenizer.encode(text, false, false);
      EXPECT_EQ(tokenizer.decode(ids, false), text) << spec;
    }
    // More words, fewer tokens.
    const size_t n =
        tokenizer.encode("the quick brown fox jumps over the lazy dog", false, false).size();
    if (vocab >= 32000) {
      EXPECT_LT(n, 20u) << spec;
    } else if (vocab == 263) {
      EXPECT_GT(n, 40u) << spec;
    }
    EXPECT_TRUE(tokenizer.is_eog(tokenizer.eos()));
    EXPECT_TRUE(tokenizer.is_eog(tokenizer.eot()));
    EXPECT_GE(tokenizer.bos(), 0);
    if (tokenizer.n_vocab() == vocab && GetParam().find("qwen") != std::string::npos) {
      EXPECT_FALSE(tokenizer.encode("word", true, false).front() == tokenizer.bos()) << spec;
      EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{tokenizer.eos()}, true), "<|im_end|>");
      EXPECT_EQ(tokenizer.eog_tokens(), (std::vector<int32_t>{257, 259}));  // <|endoftext|>
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SynthTokenizer,
                         testing::Values("synth:llama-tiny", "synth:llama-tiny,tokenizer=spm",
                                         "synth:qwen2-tiny"),
                         [](const auto& test) {
                           return test.index == 0 ? "bpe" : test.index == 1 ? "spm" : "qwen";
                         });

TEST(SynthModel, TheSmallestVocabularies) {
  for (const auto& [name, tokenizer] :
       {std::pair{"bpe", Tokenizer::bpe}, std::pair{"spm", Tokenizer::spm}}) {
    for (const int64_t vocab :
         {min_vocab(tokenizer), min_vocab(tokenizer) + 1, min_vocab(tokenizer) + 97}) {
      const gguf::File file = make_in_memory(
          parse_synth("llama-tiny,layers=1,embd=32,ffn=32,tokenizer=" + std::string(name) +
                      ",vocab=" + std::to_string(vocab)));
      const text::Tokenizer loaded = text::Tokenizer::load(file);
      EXPECT_EQ(loaded.decode(loaded.encode("any text", false, false), false), "any text");
    }
  }
}

}  // namespace
}  // namespace lockstep::synth
