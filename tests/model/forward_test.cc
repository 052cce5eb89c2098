// The op lists of every architecture against a plain binary64 forward pass (forward64.cc). With F32
// weights and an F32 cache the engine only differs by binary32 roundings, so the bound is tight;
// every variation must also matter: the plain model's logits are far outside the bound.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "forward64.h"
#include "runner.h"
#include "sanitized.h"
#include "tiny_model.h"

namespace lockstep::model {
namespace {

constexpr double kBound = 5e-5;  // of logits whose spread is about 1
constexpr int64_t kPositions = 90;

struct Variation {
  std::string name;
  TinyShape shape;
  std::function<void(TinyModel&)> change;  // null: this is a base
};

TinyShape gemma() {
  TinyShape shape;
  shape.architecture = "gemma3";
  shape.n_layer = 3;
  return shape;
}
TinyShape qwen(const char* architecture) {
  TinyShape shape;
  shape.architecture = architecture;
  return shape;
}
TinyShape with(TinyShape shape, const std::function<void(TinyShape&)>& change) {
  change(shape);
  return shape;
}

// A gemma3 whose middle layer is global.
void windowed(TinyModel& m, uint32_t window) {
  m.u32("attention.sliding_window", window);
  m.bools("attention.sliding_window_pattern", {true, false, true});
}

std::vector<Variation> variations() {
  const TinyShape llama, qwen2 = qwen("qwen2"), qwen3 = qwen("qwen3");
  const auto yarn = [](TinyModel& m) {
    m.text("rope.scaling.type", "yarn");
    m.f32("rope.scaling.factor", 4.0f);
    m.u32("rope.scaling.original_context_length", 256);
  };
  const auto linear = [](TinyModel& m) {
    m.text("rope.scaling.type", "linear");
    m.f32("rope.scaling.factor", 4.0f);
  };
  std::vector<Variation> list = {
      {"llama", llama, nullptr},
      {"llama untied", with(llama, [](auto& s) { s.tied = false; }), nullptr},
      {"llama biases", with(llama, [](auto& s) { s.biases = true; }), nullptr},
      {"llama fused qkv", with(llama, [](auto& s) { s.fused_qkv = true; }), nullptr},
      {"llama fused qkv with bias", with(llama, [](auto& s) { s.fused_qkv = s.biases = true; }),
       nullptr},
      {"llama one kv head", with(llama, [](auto& s) { s.n_head_kv = 1; }), nullptr},
      {"llama as many kv heads", with(llama, [](auto& s) { s.n_head_kv = 4; }), nullptr},
      {"llama odd widths",
       with(llama, [](auto& s) { s.n_embd = 45, s.n_ff = 77, s.head_dim = 14; }), nullptr},
      {"llama fused qkv, biases apart", with(llama, [](auto& s) { s.fused_qkv = true; }),
       [](TinyModel& m) {
         for (const char* block : {"blk.0.", "blk.1."}) {
           m.vector(std::string(block) + "attn_q.bias", 64, -1, 1);
           m.vector(std::string(block) + "attn_k.bias", 32, -1, 1);
           m.vector(std::string(block) + "attn_v.bias", 32, -1, 1);
         }
       }},
      {"llama half rotated", llama, [](TinyModel& m) { m.u32("rope.dimension_count", 8); }},
      {"llama base", llama, [](TinyModel& m) { m.f32("rope.freq_base", 500.0f); }},
      {"llama linear", llama,
       [](TinyModel& m) {
         m.text("rope.scaling.type", "linear");
         m.f32("rope.scaling.factor", 4.0f);
       }},
      {"llama linear by its old key", llama,
       [](TinyModel& m) { m.f32("rope.scale_linear", 3.0f); }},
      {"llama rope_freqs", llama, [](TinyModel& m) { m.vector("rope_freqs.weight", 8, 1, 8); }},
      {"llama rope_freqs and linear", llama,
       [](TinyModel& m) {
         m.vector("rope_freqs.weight", 8, 1, 8);
         m.f32("rope.scaling.factor", 2.0f);
       }},
      {"llama llama3", llama,
       [](TinyModel& m) {
         m.text("rope.scaling.type", "llama3");
         m.f32("rope.scaling.factor", 8.0f);
         m.u32("rope.scaling.original_context_length", 64);
       }},
      {"llama yarn", llama,
       [](TinyModel& m) {
         m.text("rope.scaling.type", "yarn");
         m.f32("rope.scaling.factor", 4.0f);
         m.u32("rope.scaling.original_context_length", 256);
       }},
      {"llama yarn with everything", llama,
       [](TinyModel& m) {
         m.text("rope.scaling.type", "yarn");
         m.f32("rope.scaling.factor", 4.0f);
         m.u32("rope.scaling.original_context_length", 64);
         m.f32("rope.scaling.yarn_ext_factor", 0.75f);
         m.f32("rope.scaling.yarn_beta_fast", 8.0f);
         m.f32("rope.scaling.yarn_beta_slow", 0.5f);
         m.f32("rope.scaling.attn_factor", 0.8f);
       }},
      {"llama yarn without extrapolation", llama,
       [](TinyModel& m) {
         m.text("rope.scaling.type", "yarn");
         m.f32("rope.scaling.factor", 4.0f);
         m.f32("rope.scaling.yarn_ext_factor", 0.0f);
       }},
      {"gemma3", gemma(), nullptr},
      {"gemma3 untied", with(gemma(), [](auto& s) { s.tied = false; }), nullptr},
      {"gemma3 fused qkv", with(gemma(), [](auto& s) { s.fused_qkv = true; }), nullptr},
      {"gemma3 window", gemma(), [](TinyModel& m) { windowed(m, 7); }},
      {"gemma3 window of a page and more", gemma(), [](TinyModel& m) { windowed(m, 70); }},
      {"gemma3 window, other bases", gemma(),
       [](TinyModel& m) {
         windowed(m, 7);
         m.f32("rope.freq_base", 1e6f);
         m.f32("rope.freq_base_swa", 300.0f);
       }},
      {"gemma3 window, period 3", gemma(),
       [](TinyModel& m) {
         m.u32("attention.sliding_window", 7);
         m.u32("attention.sliding_window_pattern", 3);
       }},
      {"gemma3 window, period by default", gemma(),
       [](TinyModel& m) { m.u32("attention.sliding_window", 7); }},
      {"gemma3 window, linear on global layers only", gemma(),
       [](TinyModel& m) {
         windowed(m, 7);
         m.text("rope.scaling.type", "linear");
         m.f32("rope.scaling.factor", 8.0f);
       }},
      {"gemma3 yarn", gemma(),
       [](TinyModel& m) {
         m.text("rope.scaling.type", "yarn");
         m.f32("rope.scaling.factor", 4.0f);
         m.u32("rope.scaling.original_context_length", 256);
       }},
      {"gemma3 capped logits", gemma(),
       [](TinyModel& m) { m.f32("final_logit_softcapping", 1.5f); }},
      {"gemma3 of 62 layers",
       with(gemma(), [](auto& s) { s.n_layer = 62, s.n_head = 3, s.n_head_kv = 1; }), nullptr},
      {"qwen2", qwen2, nullptr},
      {"qwen2 untied", with(qwen2, [](auto& s) { s.tied = false; }), nullptr},
      {"qwen2 fused qkv with bias", with(qwen2, [](auto& s) { s.fused_qkv = true; }), nullptr},
      {"qwen2 fused qkv, biases apart", with(qwen2, [](auto& s) { s.fused_qkv = true; }),
       [](TinyModel& m) {
         for (const char* block : {"blk.0.", "blk.1."}) {
           m.tensors.erase(std::string(block) + "attn_qkv.bias");
           m.vector(std::string(block) + "attn_q.bias", 64, -1, 1);
           m.vector(std::string(block) + "attn_k.bias", 32, -1, 1);
           m.vector(std::string(block) + "attn_v.bias", 32, -1, 1);
         }
       }},
      {"qwen2 without a bias", qwen2,
       [](TinyModel& m) {
         std::erase_if(m.tensors, [](const auto& t) { return t.first.ends_with(".bias"); });
       }},
      {"qwen2 base", qwen2, [](TinyModel& m) { m.f32("rope.freq_base", 500.0f); }},
      {"qwen2 linear", qwen2, linear},
      {"qwen2 yarn", qwen2, yarn},
      {"qwen3", qwen3, nullptr},
      {"qwen3 untied", with(qwen3, [](auto& s) { s.tied = false; }), nullptr},
      {"qwen3 fused qkv", with(qwen3, [](auto& s) { s.fused_qkv = true; }), nullptr},
      {"qwen3 wide heads", with(qwen3, [](auto& s) { s.head_dim = 64; }), nullptr},
      {"qwen3 base", qwen3, [](TinyModel& m) { m.f32("rope.freq_base", 500.0f); }},
      {"qwen3 linear", qwen3, linear},
      {"qwen3 yarn", qwen3, yarn},
  };
  return list;
}

double distance(const std::vector<std::vector<float>>& a,
                const std::vector<std::vector<double>>& b) {
  double most = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    for (size_t i = 0; i < a[t].size(); ++i) {
      most = std::max(most,
                      std::abs(static_cast<double>(a[t][i]) - b[t][i]) / (1 + std::abs(b[t][i])));
    }
  }
  return most;
}

// Root mean square of the differences, over that of the exact logits.
double spread(const std::vector<std::vector<float>>& a, const std::vector<std::vector<double>>& b) {
  double difference = 0, size = 0;
  for (size_t t = 0; t < a.size(); ++t) {
    for (size_t i = 0; i < a[t].size(); ++i) {
      difference += std::pow(static_cast<double>(a[t][i]) - b[t][i], 2);
      size += b[t][i] * b[t][i];
    }
  }
  return std::sqrt(difference / size);
}

std::vector<std::vector<float>> engine(const TinyModel& tiny, const std::vector<int32_t>& tokens,
                                       state::KvType kv = state::KvType::f32) {
  Runner runner(tiny.load(), kernels::make_cpu_backend("", 1), kv, kv, 4096);
  return runner.history(tokens, 32);
}

TEST(Forward, FollowsTheFormulas) {
  double worst = 0;
  for (const Variation& variation : variations()) {
    SCOPED_TRACE(variation.name);
    TinyModel tiny(variation.shape);
    const auto tokens = random_tokens(kPositions, variation.shape.n_vocab, 7);
    const auto plain = engine(tiny, tokens);
    if (variation.change) {
      variation.change(tiny);
      // The variation itself must be far outside the bound, or this test would not see it missed.
      EXPECT_GT(distance(plain, forward64(tiny.file(), tokens)), 200 * kBound);
    }
    const double error = distance(engine(tiny, tokens), forward64(tiny.file(), tokens));
    EXPECT_LT(error, kBound);
    worst = std::max(worst, error);
  }
  std::printf("%zu variations, %lld positions each: worst error %.2e, bound %.0e\n",
              variations().size(), static_cast<long long>(kPositions), worst, kBound);
}

// Quantised weights and caches: the binary64 pass reads the same dequantised weights, so what is
// left is the rounding of activations and of the cache.
TEST(Forward, StaysCloseWithEveryWeightAndCacheType) {
  using gguf::TensorType;
  double worst = 0;
  for (const char* architecture : {"llama", "gemma3", "qwen2", "qwen3"}) {
    for (const TensorType type :
         {TensorType::f16, TensorType::bf16, TensorType::q4_0, TensorType::q4_1, TensorType::q5_0,
          TensorType::q5_1, TensorType::q8_0, TensorType::q2_k, TensorType::q3_k, TensorType::q4_k,
          TensorType::q5_k, TensorType::q6_k, TensorType::iq4_nl, TensorType::iq4_xs,
          TensorType::mxfp4}) {
      if (lockstep::test::kSanitized && type != TensorType::q4_k) continue;
      TinyShape shape;
      shape.architecture = architecture;
      shape.n_embd = shape.n_ff = 256;
      shape.head_dim = 64;
      shape.type = type;
      const TinyModel tiny(shape);
      const auto tokens = random_tokens(40, shape.n_vocab, 3);
      const auto exact = forward64(tiny.file(), tokens);
      for (const state::KvType kv : kernels::kKvTypes) {
        const double error = spread(engine(tiny, tokens, kv), exact);
        const bool floats = type == TensorType::f16 || type == TensorType::bf16;
        const double bound = kv == state::KvType::q4_0   ? 0.3
                             : !floats                   ? 0.04
                             : kv == state::KvType::q8_0 ? 0.02
                             : kv == state::KvType::f16  ? 2e-3
                                                         : kBound;
        worst = std::max(worst, error / bound);
        EXPECT_LT(error, bound) << architecture << " " << gguf::type_info(type).name << " "
                                << kernels::kv_type_name(kv);
      }
    }
  }
  std::printf("worst error %.0f %% of its bound\n", 100 * worst);
}

}  // namespace
}  // namespace lockstep::model
