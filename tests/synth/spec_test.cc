// "synth:…" strings: what is read, and what is said about one that cannot be.
#include <gtest/gtest.h>

#include "base/error.h"
#include "synth/synth.h"

namespace lockstep::synth {
namespace {

using gguf::TensorType;

std::string refusal(std::string_view text) {
  try {
    parse_synth(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_use);
    return error.what();
  }
  return "accepted";
}

void expect_refused(std::string_view text, const std::string& part) {
  const std::string message = refusal(text);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST(SynthSpec, ShapesAndTypes) {
  const SynthSpec spec = parse_synth("synth:llama-8b@q8_0,seed=7");
  EXPECT_EQ(spec.architecture, "llama");
  EXPECT_EQ(spec.layers, 32);
  EXPECT_EQ(spec.embd, 4096);
  EXPECT_EQ(spec.ffn, 14336);
  EXPECT_EQ(spec.heads, 32);
  EXPECT_EQ(spec.kv_heads, 8);
  EXPECT_EQ(spec.head_dim, 128);
  EXPECT_EQ(spec.vocab, 128256);
  EXPECT_EQ(spec.type, TensorType::q8_0);
  EXPECT_EQ(spec.seed, 7u);
  EXPECT_FALSE(spec.tied);
  const SynthSpec k = parse_synth("llama-1.2b@Q4_K");
  EXPECT_EQ(k.type, TensorType::q4_k);
  EXPECT_EQ(k.head_type, TensorType::q6_k);
  EXPECT_EQ(k.better_type, TensorType::q4_k);
  EXPECT_EQ(parse_synth("llama-1.2b@q4_k_m").better_type, TensorType::q6_k);
  EXPECT_EQ(parse_synth("gemma3-270m").type, TensorType::q8_0);
  EXPECT_EQ(parse_synth("gemma3-270m").tokenizer, Tokenizer::spm);
}

TEST(SynthSpec, EveryShapeHasASize) {
  for (const std::string& shape : shape_names()) {
    uint64_t f32 = 0;
    for (const std::string type : {"f32", "q8_0", "q4_k"}) {
      const uint64_t bytes = total_bytes(parse_synth("synth:" + shape + "@" + type));
      if (type == "f32") f32 = bytes;
      EXPECT_GT(bytes, f32 / 10) << shape << type;
      EXPECT_LE(bytes, f32) << shape << type;
    }
  }
  // Within 2 % of the sizes that these models are known by: 1.50 billion weights (untied), 8.03
  // billion.
  EXPECT_NEAR(static_cast<double>(total_bytes(parse_synth("llama-8b@q8_0"))), 8.03e9 * 34 / 32,
              1.7e8);
  EXPECT_NEAR(static_cast<double>(total_bytes(parse_synth("llama-1.2b@f16"))), 2 * 1.50e9, 6e7);
  EXPECT_NEAR(static_cast<double>(total_bytes(parse_synth("qwen2-0.5b@f16"))), 2 * 0.494e9, 2e7);
  EXPECT_NEAR(static_cast<double>(total_bytes(parse_synth("qwen3-0.6b@f16"))), 2 * 0.596e9, 2e7);
  EXPECT_NEAR(static_cast<double>(total_bytes(parse_synth("qwen3-32b@f16"))), 2 * 32.76e9, 7e8);
}

TEST(SynthSpec, Options) {
  const SynthSpec spec = parse_synth(
      "synth:gemma3-tiny,layers=3,embd=64,heads=6,kv_heads=3,head_dim=8,ffn=96,vocab=300,ctx=77,"
      "window=5,tied=false,"
      "rope_scaling=yarn,rope_base=500.5,rope_factor=4,tokenizer=bpe@q4_0,seed="
      "18446744073709551615");
  EXPECT_EQ(spec.layers, 3);
  EXPECT_EQ(spec.embd, 64);
  EXPECT_EQ(spec.heads, 6);
  EXPECT_EQ(spec.kv_heads, 3);
  EXPECT_EQ(spec.head_dim, 8);
  EXPECT_EQ(spec.ffn, 96);
  EXPECT_EQ(spec.vocab, 300);
  EXPECT_EQ(spec.ctx, 77);
  EXPECT_EQ(spec.window, 5);
  EXPECT_FALSE(spec.tied);
  EXPECT_EQ(spec.rope_scaling, RopeScaling::yarn);
  EXPECT_EQ(spec.rope_base, 500.5);
  EXPECT_EQ(spec.rope_factor, 4.0);
  EXPECT_EQ(spec.tokenizer, Tokenizer::bpe);
  EXPECT_EQ(spec.seed, UINT64_MAX);
}

TEST(SynthSpec, TextReadsBackTheSame) {
  for (const char* text :
       {"synth:llama-tiny@q4_k_m,seed=3", "synth:llama-8b,layers=2,tied=true@f16,seed=1",
        "synth:gemma3-4b,rope_scaling=none,rope_base=1234.5,tokenizer=bpe@q6_k,seed=9"}) {
    EXPECT_EQ(parse_synth(text).text(), text);
  }
  EXPECT_EQ(parse_synth("llama-tiny,seed=4").text(), "synth:llama-tiny@q8_0,seed=4");
  EXPECT_EQ(parse_synth("llama-tiny@f32,layers=2,seed=4,vocab=400").text(),
            "synth:llama-tiny,vocab=400@f32,seed=4");
}

TEST(SynthSpec, RefusalsNameThePartAndWhatIsKnown) {
  expect_refused("", "no shape \"\"; known: llama-tiny, ");
  expect_refused("synth:llama-9b", "no shape \"llama-9b\"; known: llama-tiny, ");
  expect_refused("synth:qwen35-27b@q4_k",
                 "synthetic qwen35 models are not there yet; known: llama-tiny, ");
  expect_refused("synth:qwen3-9b", "no shape \"qwen3-9b\"; known: llama-tiny, ");
  expect_refused("qwen2-tiny,rope_scaling=llama3", "qwen2 has none, linear or yarn");
  expect_refused("qwen3-tiny,rope_scaling=factors", "qwen3 files have no rope_freqs");
  expect_refused("qwen3-tiny,window=64", "window=64: qwen3 has no sliding layers");
  expect_refused("llama-tiny@", "no weight type \"\"; known: f32, ");
  expect_refused("llama-tiny@iq2_xxs", "no weight type \"iq2_xxs\"; known: f32, ");
  expect_refused("llama-tiny,depth=3", "no option \"depth\"; known: layers, ");
  expect_refused("llama-tiny,layers", "\"layers\" is not key=value; keys: layers, ");
  expect_refused("llama-tiny,", "\"\" is not key=value");
  expect_refused("llama-tiny,layers=", "layers= must be a number from 1 to 1024");
  expect_refused("llama-tiny,layers=0", "layers=0 must be a number from 1 to 1024");
  expect_refused("llama-tiny,layers=2x", "layers=2x must be a number");
  expect_refused("llama-tiny,layers=99999999999999999999", "must be a number from 1 to 1024");
  expect_refused("llama-tiny,embd=-5", "embd=-5 must be a number from 2 to 4194304");
  expect_refused("llama-tiny,rope_base=nan", "rope_base=nan must be a number");
  expect_refused("llama-tiny,rope_factor=inf", "rope_factor=inf must be a number");
  expect_refused("llama-tiny,tied=maybe", "tied=maybe must be one of: true, false");
  expect_refused("llama-tiny,rope_scaling=ntk",
                 "rope_scaling=ntk must be one of: none, linear, llama3, yarn, factors");
  expect_refused("llama-tiny,tokenizer=wpm", "tokenizer=wpm must be one of: bpe, spm, qwen");
  expect_refused("llama-tiny,seed=-1", "seed=-1 must be a number from 0 to 18446744073709551615");
  expect_refused("llama-tiny,heads=6,kv_heads=4", "heads=6 is not a multiple of kv_heads=4");
  expect_refused("llama-tiny,head_dim=7", "head_dim=7 is odd");
  expect_refused("llama-tiny,window=64", "window=64: llama has no sliding layers");
  expect_refused("gemma3-tiny,rope_scaling=factors", "gemma3 files have no rope_freqs");
  expect_refused("llama-tiny,vocab=259", "vocab=259 must be 260 to ");
  expect_refused("gemma3-tiny,vocab=262", "vocab=262 must be 263 to ");
  expect_refused("llama-tiny,vocab=1000000", "vocab=1000000 must be 260 to ");
  expect_refused("synth:\x1B[31mred", "\\x1B[31mred");
}

TEST(SynthSpec, AbsurdModelsAreRefusedWithTheirSize) {
  const SynthSpec spec = parse_synth("llama-8b,layers=1024,embd=4194304,ffn=4194304@f32");
  EXPECT_GT(total_bytes(spec), uint64_t{1} << 57);
  try {
    make_in_memory(spec);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::resource);
    EXPECT_NE(std::string(error.what()).find(std::to_string(total_bytes(spec))), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lockstep::synth
