// What Model::load takes from a file, what it refuses, and that whatever turns out not to be finite
// in a pass is a named fault, never text.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"
#include "runner.h"
#include "synth/synth.h"
#include "tiny_model.h"

namespace lockstep::model {
namespace {

using kernels::RopeSpec;

TinyShape gemma() {
  TinyShape shape;
  shape.architecture = "gemma3";
  shape.n_layer = 12;
  return shape;
}

TinyShape qwen(const char* architecture) {
  TinyShape shape;
  shape.architecture = architecture;
  return shape;
}

TEST(Load, DefaultsOfAbsentKeys) {
  TinyShape shape;
  shape.n_head_kv = 4;
  shape.head_dim = 12;  // 48 / 4
  TinyModel tiny(shape);
  for (const char* key :
       {"attention.head_count_kv", "attention.key_length", "attention.value_length"}) {
    tiny.erase(key);
  }
  const auto model = tiny.load();
  const Hyperparameters& hp = model->hyperparameters();
  EXPECT_EQ(hp.architecture, "llama");
  EXPECT_EQ(hp.n_vocab, 61);
  EXPECT_EQ(hp.n_head_kv, 4);
  EXPECT_EQ(hp.head_dim, 12);
  EXPECT_EQ(hp.rope.n_rot, 12);
  EXPECT_EQ(hp.rope.base, 10000.0f);
  EXPECT_EQ(hp.rope.scaling, RopeSpec::Scaling::none);
  EXPECT_EQ(hp.rope.pairing, RopeSpec::Pairing::adjacent);
  EXPECT_EQ(hp.attention_scale, static_cast<float>(1 / std::sqrt(12.0)));
  EXPECT_EQ(hp.embedding_scale, 1.0f);
  EXPECT_TRUE(hp.tied_embeddings);
  EXPECT_FALSE(model->synthetic());
}

TEST(Load, GemmaWindowsAndBases) {
  TinyModel tiny(gemma());
  tiny.f32("rope.freq_base", 1e6f);
  {
    const auto model = tiny.load();  // no window: every layer is global
    const Hyperparameters& hp = model->hyperparameters();
    EXPECT_EQ(hp.window, 0);
    EXPECT_EQ(std::count(hp.sliding.begin(), hp.sliding.end(), true), 0);
    EXPECT_EQ(hp.rope.base, 1e6f);
    EXPECT_EQ(hp.rope.pairing, RopeSpec::Pairing::halves);
    EXPECT_EQ(hp.embedding_scale, std::sqrt(48.0f));
  }
  tiny.u32("attention.sliding_window", 512);
  {
    const auto model = tiny.load();
    const Hyperparameters& hp = model->hyperparameters();
    for (size_t i = 0; i < 12; ++i) EXPECT_EQ(hp.sliding[i], i % 6 != 5) << i;
    EXPECT_EQ(hp.rope_swa.base, 10000.0f);
    const state::KvSpec spec = model->kv_spec(state::KvType::f16, state::KvType::q8_0, 777);
    ASSERT_EQ(spec.layers.size(), 12u);
    EXPECT_EQ(spec.layers[4].window, 512);
    EXPECT_EQ(spec.layers[5].window, 0);
    EXPECT_EQ(spec.context, 777);
  }
  tiny.u32("attention.sliding_window_pattern", 0);  // llama.cpp: all of them slide
  EXPECT_TRUE(tiny.load()->hyperparameters().sliding[5]);
  tiny.u32("attention.sliding_window_pattern", 1);
  EXPECT_FALSE(tiny.load()->hyperparameters().sliding[4]);
}

TEST(Load, QwenHeadsPairsAndBases) {
  for (const char* architecture : {"qwen2", "qwen3"}) {
    TinyModel tiny(qwen(architecture));
    {
      const auto model = tiny.load();
      const Hyperparameters& hp = model->hyperparameters();
      EXPECT_EQ(hp.architecture, architecture);
      EXPECT_EQ(hp.head_dim, 16);  // not 48 / 4
      EXPECT_EQ(hp.rope.n_rot, 16);
      EXPECT_EQ(hp.rope.base, 10000.0f);
      EXPECT_EQ(hp.rope.pairing, RopeSpec::Pairing::halves);
      EXPECT_EQ(hp.rope.scaling, RopeSpec::Scaling::none);
      EXPECT_EQ(hp.attention_scale, 0.25f);
      EXPECT_EQ(hp.embedding_scale, 1.0f);
      EXPECT_TRUE(hp.tied_embeddings);
      EXPECT_EQ(std::count(hp.sliding.begin(), hp.sliding.end(), true), 0);
    }
    // What a file may say and mean nothing by it.
    tiny.u32("rope.dimension_count", 16);
    tiny.u32("attention.sliding_window", 0);
    tiny.text("rope.scaling.type", "none");
    tiny.f32("rope.scaling.factor", 4.0f);
    EXPECT_EQ(tiny.load()->hyperparameters().rope.scaling, RopeSpec::Scaling::none);
    tiny.text("rope.scaling.type", "yarn");
    EXPECT_EQ(tiny.load()->hyperparameters().rope.scaling, RopeSpec::Scaling::yarn);
  }
  TinyShape shape = qwen("qwen3");
  shape.head_dim = 12;
  TinyModel tiny(shape);
  tiny.erase("attention.key_length");
  tiny.erase("attention.value_length");
  EXPECT_EQ(tiny.load()->hyperparameters().head_dim, 12);
}

TEST(Load, ArraysThatSayTheSameForEveryLayer) {
  TinyModel tiny{TinyShape{}};
  tiny.u32s("attention.head_count", {4, 4});
  tiny.u32s("attention.head_count_kv", {2, 2});
  tiny.u32s("feed_forward_length", {80, 80});
  EXPECT_EQ(tiny.load()->hyperparameters().n_head_kv, 2);
}

// Where there are tokens nothing reads the key, so that a wrong one is told and no more.
TEST(Load, AVocabularySizeThatIsNotThatOfTheTokensIsNoted) {
  for (const TinyShape& shape : {TinyShape{}, gemma()}) {
    TinyModel tiny(shape);
    tiny.keys["tokenizer.ggml.tokens"] = [](gguf::Writer& w, const std::string& k) {
      std::vector<std::string> tokens;
      for (int i = 0; i < 61; ++i) tokens.push_back(std::to_string(i));
      w.add_strings(k, tokens);
    };
    tiny.u32("vocab_size", 61);
    EXPECT_TRUE(tiny.load()->notes().empty());
    tiny.u32("vocab_size", 60);
    const auto model = tiny.load();
    ASSERT_EQ(model->notes().size(), 1u);
    EXPECT_NE(model->notes()[0].find(": metadata key \"" + shape.architecture +
                                     ".vocab_size\" is 60, and there are 61 tokens"),
              std::string::npos)
        << model->notes()[0];
  }
}

TEST(Load, OldRotaryTablesAreIgnored) {
  TinyModel tiny{TinyShape{}};
  tiny.vector("blk.0.attn_rot_embd.weight", 8, 0, 1);
  EXPECT_NO_THROW(tiny.load());
}

TEST(Load, NormsMayBeHalfPrecision) {
  TinyModel tiny{TinyShape{}};
  for (auto& [name, tensor] : tiny.tensors) {
    if (tensor.ne.size() == 1) {
      for (float& value : tensor.values)
        value = std::ldexp(std::round(value * 64), -6);  // exact in both
    }
  }
  const auto tokens = random_tokens(5, 61, 1);
  const auto logits = [&] {
    Runner runner(tiny.load(), kernels::make_cpu_backend("", 1), state::KvType::f16,
                  state::KvType::f16, 100);
    return runner.history(tokens, 5);
  };
  const auto plain = logits();
  for (const auto type : {gguf::TensorType::f16, gguf::TensorType::bf16}) {
    for (auto& [name, tensor] : tiny.tensors) {
      if (tensor.ne.size() == 1) tensor.type = type;
    }
    EXPECT_EQ(logits(), plain);
  }
}

TEST(Load, CountsBytes) {
  TinyShape shape;
  shape.type = gguf::TensorType::q8_0;
  shape.n_embd = 64;
  shape.n_ff = 96;
  shape.biases = true;
  const auto model = TinyModel(shape).load();
  // Per layer: q 64, k 32, v 32, gate 96, up 96 rows of 64; output 64 rows of 64, down 64 of 96.
  const int64_t row64 = 2 * 34, row96 = 3 * 34;
  const int64_t layer = (64 + 32 + 32 + 96 + 96 + 64) * row64 + 64 * row96 +
                        4 * (64 + 32 + 32 + 96 + 96 + 64 + 64) + 4 * 2 * 64;
  EXPECT_EQ(model->weight_bytes_per_pass(1), 2 * layer + 61 * row64 + 4 * 64 + row64);
  EXPECT_EQ(model->weight_bytes_per_pass(8) - model->weight_bytes_per_pass(1), 7 * row64);

  TinyModel sliding(gemma());
  sliding.u32("attention.sliding_window", 100);
  const auto other = sliding.load();
  const auto spec = other->kv_spec(state::KvType::f16, state::KvType::f32, 5000);
  const int64_t position = 2 * 16 * (2 + 4);
  EXPECT_EQ(other->kv_bytes_read(spec, 0), 12 * position);
  EXPECT_EQ(other->kv_bytes_read(spec, 999), (10 * 100 + 2 * 1000) * position);
}

TEST(Load, HashesTheFile) {
  const TinyModel tiny{TinyShape{}};
  EXPECT_EQ(tiny.load()->file_sha256(), sha256(*tiny.bytes()));
}

TEST(Load, SyntheticModelsSaySo) {
  for (const char* spec : {"synth:llama-tiny@q8_0", "synth:gemma3-tiny@q4_k_m",
                           "synth:qwen2-tiny@q8_0", "synth:qwen3-tiny@q4_k"}) {
    const auto model = Model::load(synth::make_in_memory(synth::parse_synth(spec)));
    EXPECT_TRUE(model->synthetic());
    Runner runner(model, kernels::make_cpu_backend("", 2), state::KvType::f16, state::KvType::f16,
                  1000);
    const auto tokens = random_tokens(100, model->hyperparameters().n_vocab, 3);
    EXPECT_EQ(runner.history(tokens, 64).size(), 100u);
  }
}

TEST(Load, ContextHasBounds) {
  const auto model = TinyModel{TinyShape{}}.load();
  for (const int64_t context : {int64_t{-1}, int64_t{0}, kMaxContext + 1}) {
    EXPECT_THROW(model->kv_spec(state::KvType::f16, state::KvType::f16, context), Error);
  }
  EXPECT_NO_THROW(model->kv_spec(state::KvType::f16, state::KvType::f16, kMaxContext));
}

struct Refusal {
  std::string name;
  TinyShape shape;
  std::function<void(TinyModel&)> change;
  std::string expect;  // part of the message
};

std::vector<Refusal> refusals() {
  const TinyShape llama;
  std::vector<Refusal> list;
  const auto yarn = [](TinyModel& m) {
    m.text("rope.scaling.type", "yarn");
    m.f32("rope.scaling.factor", 4.0f);
  };
  const auto key = [&](const TinyShape& shape, const char* name, auto set, const char* expect) {
    list.push_back({shape.architecture + " " + name, shape, set, expect});
  };
  key(
      llama, "unknown architecture", [](auto& m) { m.set("general.architecture", "mamba"); },
      "architecture \"mamba\" is not known to this program; known: gemma3, llama, qwen2, qwen3");
  for (const char* name : {"qwen2moe", "qwen3moe"}) {
    key(
        llama, name, [name](auto& m) { m.set("general.architecture", std::string(name)); },
        "is not known to this program; known: gemma3, llama, qwen2, qwen3");
  }
  key(
      llama, "longrope", [](auto& m) { m.text("rope.scaling.type", "longrope"); },
      "\"llama.rope.scaling.type\" is \"longrope\"; accepted: \"none\", \"linear\", \"llama3\", "
      "\"yarn\"");
  key(
      llama, "su", [](auto& m) { m.text("rope.scaling.type", "su"); }, "is \"su\"; accepted");
  key(
      llama, "yarn attention factor",
      [=](auto& m) { yarn(m), m.f32("rope.scaling.yarn_attn_factor", 2.0f); },
      "\"llama.rope.scaling.yarn_attn_factor\" is 2; accepted: 1");
  key(
      llama, "yarn log multiplier",
      [=](auto& m) { yarn(m), m.f32("rope.scaling.yarn_log_multiplier", 0.1f); },
      "yarn_log_multiplier");
  key(
      llama, "yarn ext factor",
      [=](auto& m) { yarn(m), m.f32("rope.scaling.yarn_ext_factor", 1.5f); },
      "\"llama.rope.scaling.yarn_ext_factor\" is 1.5; accepted: 0 to 1");
  key(
      llama, "attn_factor without yarn", [](auto& m) { m.f32("rope.scaling.attn_factor", 1.2f); },
      "rope.scaling.attn_factor");
  key(
      llama, "llama3 bounds",
      [](auto& m) {
        m.text("rope.scaling.type", "llama3");
        m.f32("rope.scaling.factor", 8.0f);
        m.f32("rope.scaling.high_freq_factor", 1.0f);
      },
      "\"llama.rope.scaling.high_freq_factor\" is 1; accepted: more than low_freq_factor, 1");
  key(
      llama, "base 1", [](auto& m) { m.f32("rope.freq_base", 1.0f); }, "rope.freq_base\" is 1;");
  key(
      llama, "odd rotated elements", [](auto& m) { m.u32("rope.dimension_count", 7); },
      "an even number");
  key(
      llama, "head sizes differ", [](auto& m) { m.u32("attention.value_length", 8); },
      "\"llama.attention.value_length\" is 8; accepted: the same as attention.key_length, 16");
  key(
      llama, "value length by default", [](auto& m) { m.erase("attention.value_length"); },
      "\"llama.attention.value_length\" is 12");
  key(
      llama, "heads that don't divide", [](auto& m) { m.u32("attention.head_count_kv", 3); },
      "\"llama.attention.head_count_kv\" is 3; accepted: a divisor of attention.head_count, 4");
  key(
      llama, "kv heads by layer",
      [](auto& m) {
        m.u32s("attention.head_count_kv", {2, 4});
      },
      "\"llama.attention.head_count_kv\" is an array with 2 and 4 in it; accepted: the same number "
      "for every layer");
  key(
      llama, "array of heads, 0",
      [](auto& m) {
        m.u32s("attention.head_count", {0, 0});
      },
      "accepted: 1 to 4096");
  key(
      llama, "experts", [](auto& m) { m.u32("expert_count", 8); },
      "\"llama.expert_count\" is 8; accepted: 0 (mixture of experts is not known to this program "
      "yet)");
  key(
      llama, "not causal", [](auto& m) { m.boolean("attention.causal", false); },
      "\"llama.attention.causal\" is false; accepted: true");
  key(
      llama, "logit scale", [](auto& m) { m.f32("logit_scale", 0.25f); },
      "\"llama.logit_scale\" is 0.25;");
  key(
      llama, "residual scale", [](auto& m) { m.f32("residual_scale", 0.22f); },
      "llama.residual_scale");
  key(
      llama, "window", [](auto& m) { m.u32("attention.sliding_window", 4096); },
      "\"llama.attention.sliding_window\" is 4096; accepted: 0");
  key(
      llama, "logits cap", [](auto& m) { m.f32("final_logit_softcapping", 30.0f); },
      "final_logit_softcapping");
  key(
      llama, "next-token layers", [](auto& m) { m.u32("nextn_predict_layers", 1); },
      "nextn_predict_layers");
  key(
      llama, "vocabulary size", [](auto& m) { m.u32("vocab_size", 60); },
      "\"llama.vocab_size\" is 60; accepted: the number of rows of token_embd.weight, 61");
  key(
      llama, "tokenizer size",
      [](auto& m) {
        m.keys["tokenizer.ggml.tokens"] = [](gguf::Writer& w, const std::string& k) {
          w.add_strings(k, {"a", "b"});
        };
      },
      "has 2 tokens and tensor \"token_embd.weight\" 61 rows");
  key(
      llama, "heads don't divide width",
      [](auto& m) {
        m.u32("attention.head_count", 5);
        m.u32("attention.head_count_kv", 5);
        m.erase("attention.key_length");
      },
      "attention.key_length must be there");
  key(
      llama, "qwen's q norm", [](auto& m) { m.norm("blk.1.attn_q_norm.weight", 16); },
      "tensor \"blk.1.attn_q_norm.weight\" has no place in the forward pass");
  key(
      llama, "norm of other length", [](auto& m) { m.norm("blk.1.ffn_norm.weight", 47); },
      "tensor \"blk.1.ffn_norm.weight\" has shape [47]; accepted: [48]");
  key(
      llama, "fused and apart",
      [](auto& m) { m.matrix("blk.0.attn_qkv.weight", gguf::TensorType::f32, 48, 128); },
      "tensor \"blk.0.attn_k.weight\" has no place");
  key(
      llama, "bias not finite",
      [](auto& m) {
        m.vector("blk.0.attn_q.bias", 64, 0, 1);
        m.tensors["blk.0.attn_q.bias"].values[5] = std::numeric_limits<float>::infinity();
      },
      "tensor \"blk.0.attn_q.bias\" has inf at element 5");
  key(
      llama, "weight not finite",
      [](auto& m) { m.tensors["blk.1.ffn_up.weight"].values[48 * 7 + 1] = std::nanf(""); },
      "tensor \"blk.1.ffn_up.weight\" has a scale or element that is not finite in row 7");
  key(
      llama, "negative rope factor", [](auto& m) { m.vector("rope_freqs.weight", 8, -2, -1); },
      "rotary parameters: every element of the factors");
  key(
      gemma(), "swa head size", [](auto& m) { m.u32("attention.key_length_swa", 8); },
      "attention.key_length_swa");
  key(
      gemma(), "attention cap", [](auto& m) { m.f32("attn_logit_softcapping", 50.0f); },
      "attn_logit_softcapping");
  key(
      gemma(), "yarn attn_factor",
      [=](auto& m) { yarn(m), m.f32("rope.scaling.attn_factor", 1.5f); },
      "rope.scaling.attn_factor");
  key(
      gemma(), "pattern of text",
      [](auto& m) {
        m.u32("attention.sliding_window", 8);
        m.keys["gemma3.attention.sliding_window_pattern"] = [](gguf::Writer& w,
                                                               const std::string& k) {
          w.add_strings(k, std::vector<std::string>(12, "local"));
        };
      },
      "accepted: bools or integers");
  key(
      gemma(), "llama's rope_freqs", [](auto& m) { m.vector("rope_freqs.weight", 8, 1, 2); },
      "tensor \"rope_freqs.weight\" has no place");
  key(
      gemma(), "missing norm", [](auto& m) { m.tensors.erase("blk.3.post_ffw_norm.weight"); },
      "tensor \"blk.3.post_ffw_norm.weight\" is missing");
  for (const TinyShape& shape : {qwen("qwen2"), qwen("qwen3")}) {
    key(
        shape, "window", [](auto& m) { m.u32("attention.sliding_window", 4096); },
        ".attention.sliding_window\" is 4096; accepted: 0");
    for (const char* kind : {"llama3", "longrope", "mrope"}) {
      key(
          shape, kind, [kind](auto& m) { m.text("rope.scaling.type", kind); },
          "\"; accepted: \"none\", \"linear\", \"yarn\"");
    }
    key(
        shape, "sections",
        [](auto& m) {
          m.u32s("rope.dimension_sections", {4, 2, 2, 0});
        },
        ".rope.dimension_sections\" is an array; accepted: nothing");
    key(
        shape, "half rotated", [](auto& m) { m.u32("rope.dimension_count", 8); },
        ".rope.dimension_count\" is 8; accepted: the head size, 16");
    key(
        shape, "experts", [](auto& m) { m.u32("expert_count", 8); },
        ".expert_count\" is 8; accepted: 0");
    key(
        shape, "llama's rope_freqs", [](auto& m) { m.vector("rope_freqs.weight", 8, 1, 2); },
        "tensor \"rope_freqs.weight\" has no place");
    key(
        shape, "bias of the output", [](auto& m) { m.vector("blk.0.attn_output.bias", 48, 0, 1); },
        "tensor \"blk.0.attn_output.bias\" has no place");
  }
  key(
      qwen("qwen2"), "missing bias", [](auto& m) { m.tensors.erase("blk.1.attn_k.bias"); },
      "tensor \"blk.1.attn_k.bias\" is missing");
  key(
      qwen("qwen2"), "bias of one layer",
      [](auto& m) {
        for (const char* name : {"q", "k", "v"})
          m.tensors.erase(std::string("blk.0.attn_") + name + ".bias");
      },
      "tensor \"blk.0.attn_q.bias\" is missing");
  key(
      qwen("qwen2"), "bias of other length",
      [](auto& m) { m.vector("blk.0.attn_v.bias", 64, 0, 1); },
      "tensor \"blk.0.attn_v.bias\" has shape [64]; accepted: [32]");
  key(
      qwen("qwen2"), "qwen3's norm", [](auto& m) { m.norm("blk.0.attn_q_norm.weight", 16); },
      "tensor \"blk.0.attn_q_norm.weight\" has no place");
  key(
      qwen("qwen3"), "qwen2's bias", [](auto& m) { m.vector("blk.0.attn_q.bias", 64, 0, 1); },
      "tensor \"blk.0.attn_q.bias\" has no place");
  key(
      qwen("qwen3"), "missing q norm", [](auto& m) { m.tensors.erase("blk.1.attn_q_norm.weight"); },
      "tensor \"blk.1.attn_q_norm.weight\" is missing");
  key(
      qwen("qwen3"), "q norm over all heads",
      [](auto& m) { m.norm("blk.1.attn_q_norm.weight", 64); },
      "tensor \"blk.1.attn_q_norm.weight\" has shape [64]; accepted: [16]");
  return list;
}

TEST(Load, RefusesByNameInOneLine) {
  for (const Refusal& refusal : refusals()) {
    SCOPED_TRACE(refusal.name);
    TinyModel tiny(refusal.shape);
    refusal.change(tiny);
    try {
      tiny.load();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      const std::string message = error.what();
      EXPECT_EQ(error.code(), ExitCode::bad_file);
      EXPECT_TRUE(message.starts_with("tiny.gguf: ")) << message;
      EXPECT_EQ(message.find('\n'), std::string::npos) << message;
      EXPECT_NE(message.find(refusal.expect), std::string::npos) << message;
    }
  }
}

// A scale that stops being finite after the file was opened (the mapping is the file): every row
// that reads it must fault, in every matrix, however the NaN travels.
TEST(Faults, NothingThatIsNotFinitePassesUnseen) {
  using gguf::TensorType;
  int64_t planted = 0;
  for (const char* architecture : {"llama", "gemma3", "qwen2", "qwen3"}) {
    for (const TensorType type : {TensorType::f32, TensorType::f16, TensorType::q8_0,
                                  TensorType::q4_1, TensorType::q6_k, TensorType::mxfp4}) {
      TinyShape shape;
      shape.architecture = architecture;
      shape.n_embd = shape.n_ff = 256;
      shape.head_dim = 64;
      shape.type = type;
      shape.tied = false;
      TinyModel tiny(shape);
      if (shape.architecture == "gemma3") tiny.f32("final_logit_softcapping", 5.0f);
      for (const bool infinite : {false, true}) {
        for (const auto& [name, tensor] : tiny.tensors) {
          if (tensor.ne.size() == 1) continue;  // kept as a copy
          const auto bytes = tiny.bytes();
          const auto file = gguf::File::from_memory(bytes, "tiny.gguf");
          const auto model = Model::load(file);
          const gguf::Tensor& found = *file.find_tensor(name);
          // The scale of the first block (Q6_K keeps it at the end), or the first element.
          const auto offset = static_cast<size_t>(found.data.data() - bytes->data()) +
                              (type == TensorType::q6_k ? 208 : 0);
          const uint32_t bits = type == TensorType::f32 ? (infinite ? 0x7F800000u : 0x7FC00000u)
                                                        : (infinite ? 0x7C00u : 0x7E00u);
          std::memcpy(bytes->data() + offset, &bits, type == TensorType::f32 ? 4 : 2);
          if (type == TensorType::mxfp4) (*bytes)[offset] = std::byte{0xFF};  // its one special
          Runner runner(model, kernels::make_cpu_backend("", 1), state::KvType::f32,
                        state::KvType::f32, 100);
          const std::vector<int32_t> tokens = {0, 0, 0};  // the embedding row that was spoilt
          const Runner::Result result = runner.pass(tokens);
          EXPECT_EQ(result.faults.size(), 3u) << architecture << " " << gguf::type_info(type).name
                                              << " " << name << (infinite ? " inf" : " NaN");
          ++planted;
        }
      }
    }
  }
  std::printf("%lld scales and elements spoilt, all faulted\n", static_cast<long long>(planted));
}

}  // namespace
}  // namespace lockstep::model
