// Small random models of every architecture, made in memory; every key and tensor can be changed
// before the file is written, so that tests can make odd and broken ones.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gguf/file.h"
#include "gguf/writer.h"
#include "model/model.h"
#include "quant/quantize.h"

namespace lockstep::model {

struct TinyTensor {
  gguf::TensorType type = gguf::TensorType::f32;
  std::vector<int64_t> ne;
  std::vector<float> values;
};

struct TinyShape {
  std::string architecture = "llama";
  int64_t n_layer = 2, n_embd = 48, n_ff = 80, n_head = 4, n_head_kv = 2, head_dim = 16,
          n_vocab = 61;
  gguf::TensorType type = gguf::TensorType::f32;  // of matrices
  bool tied = true, biases = false, fused_qkv = false;
  uint64_t seed = 1;
};

class TinyModel {
 public:
  using AddKey = std::function<void(gguf::Writer&, const std::string& key)>;

  std::map<std::string, AddKey> keys;
  std::map<std::string, TinyTensor> tensors;
  std::string architecture;

  explicit TinyModel(const TinyShape& s) : architecture(s.architecture), random_(s.seed) {
    set("general.architecture", std::string(s.architecture));
    u32("context_length", 4096);
    u32("block_count", s.n_layer);
    u32("embedding_length", s.n_embd);
    u32("feed_forward_length", s.n_ff);
    u32("attention.head_count", s.n_head);
    u32("attention.head_count_kv", s.n_head_kv);
    u32("attention.key_length", s.head_dim);
    u32("attention.value_length", s.head_dim);
    f32("attention.layer_norm_rms_epsilon", 1e-5f);

    const int64_t n_q = s.n_head * s.head_dim, n_kv = s.n_head_kv * s.head_dim;
    const bool gemma = s.architecture == "gemma3", qwen2 = s.architecture == "qwen2",
               qwen3 = s.architecture == "qwen3";
    matrix("token_embd.weight", s.type, s.n_embd, s.n_vocab);
    if (!s.tied) matrix("output.weight", s.type, s.n_embd, s.n_vocab);
    norm("output_norm.weight", s.n_embd);
    for (int64_t i = 0; i < s.n_layer; ++i) {
      const std::string b = "blk." + std::to_string(i) + ".";
      const auto linear = [&](const std::string& name, int64_t n_in, int64_t n_out) {
        matrix(b + name + ".weight", s.type, n_in, n_out);
        // qwen2 has them on q, k and v, and there alone; qwen3 has none.
        const bool biased = qwen2 ? name != "attn_output" && name.starts_with("attn_") : s.biases;
        if (biased) vector(b + name + ".bias", n_out, -0.3f, 0.3f);
      };
      norm(b + "attn_norm.weight", s.n_embd);
      norm(b + "ffn_norm.weight", s.n_embd);
      if (s.fused_qkv) {
        linear("attn_qkv", s.n_embd, n_q + 2 * n_kv);
      } else {
        linear("attn_q", s.n_embd, n_q);
        linear("attn_k", s.n_embd, n_kv);
        linear("attn_v", s.n_embd, n_kv);
      }
      linear("attn_output", n_q, s.n_embd);
      linear("ffn_gate", s.n_embd, s.n_ff);
      linear("ffn_up", s.n_embd, s.n_ff);
      linear("ffn_down", s.n_ff, s.n_embd);
      if (gemma || qwen3) {
        norm(b + "attn_q_norm.weight", s.head_dim);
        norm(b + "attn_k_norm.weight", s.head_dim);
      }
      if (gemma) {
        norm(b + "post_attention_norm.weight", s.n_embd);
        norm(b + "post_ffw_norm.weight", s.n_embd);
      }
    }
  }

  // Keys without a dot-separated prefix of their own get the architecture's.
  void u32(const std::string& name, int64_t value) {
    keys[full(name)] = [value](gguf::Writer& w, const std::string& key) {
      w.add_u32(key, static_cast<uint32_t>(value));
    };
  }
  void i32(const std::string& name, int32_t value) {
    keys[full(name)] = [value](gguf::Writer& w, const std::string& key) { w.add_i32(key, value); };
  }
  void f32(const std::string& name, float value) {
    keys[full(name)] = [value](gguf::Writer& w, const std::string& key) { w.add_f32(key, value); };
  }
  void boolean(const std::string& name, bool value) {
    keys[full(name)] = [value](gguf::Writer& w, const std::string& key) { w.add_bool(key, value); };
  }
  void text(const std::string& name, const std::string& value) {
    keys[full(name)] = [value](gguf::Writer& w, const std::string& key) {
      w.add_string(key, value);
    };
  }
  void u32s(const std::string& name, const std::vector<uint32_t>& values) {
    keys[full(name)] = [values](gguf::Writer& w, const std::string& key) {
      w.add_u32s(key, values);
    };
  }
  void bools(const std::string& name, const std::vector<bool>& values) {
    keys[full(name)] = [values](gguf::Writer& w, const std::string& key) {
      w.add_bools(key, values);
    };
  }
  void erase(const std::string& name) { keys.erase(full(name)); }
  void set(const std::string& key, const std::string& value) {
    keys[key] = [value](gguf::Writer& w, const std::string& k) { w.add_string(k, value); };
  }

  void matrix(const std::string& name, gguf::TensorType type, int64_t n_in, int64_t n_out) {
    const float range = 1.7f / std::sqrt(static_cast<float>(n_in));
    tensors[name] = {type, {n_in, n_out}, uniform(n_in * n_out, -range, range)};
  }
  void vector(const std::string& name, int64_t n, float low, float high) {
    tensors[name] = {gguf::TensorType::f32, {n}, uniform(n, low, high)};
  }
  void norm(const std::string& name, int64_t n) { vector(name, n, 0.5f, 1.5f); }

  std::shared_ptr<std::vector<std::byte>> bytes() const {
    gguf::Writer writer;
    keys.at("general.architecture")(writer, "general.architecture");
    for (const auto& [key, add] : keys) {
      if (key != "general.architecture") add(writer, key);
    }
    for (const auto& [name, tensor] : tensors) {
      const TinyTensor* t = &tensor;
      writer.add_tensor(name, t->type, t->ne, [t](std::span<std::byte> out) {
        const int64_t n = t->ne[0];
        const auto rows = static_cast<int64_t>(t->values.size()) / n;
        const auto row_bytes = static_cast<int64_t>(out.size()) / rows;
        for (int64_t row = 0; row < rows; ++row) {
          quant::quantize_row(t->type, t->values.data() + row * n, out.data() + row * row_bytes, n);
        }
      });
    }
    return std::make_shared<std::vector<std::byte>>(writer.to_memory());
  }
  gguf::File file() const { return gguf::File::from_memory(bytes(), "tiny.gguf"); }
  std::shared_ptr<const Model> load() const { return Model::load(file()); }

  std::string full(const std::string& name) const {
    return name.starts_with("general.") || name.starts_with("tokenizer.")
               ? name
               : architecture + "." + name;
  }

 private:
  std::vector<float> uniform(int64_t n, float low, float high) {
    std::vector<float> values(static_cast<size_t>(n));
    for (float& value : values) {
      value = low + (high - low) * static_cast<float>(random_() >> 40) * 0x1p-24f;
    }
    return values;
  }

  std::mt19937_64 random_;
};

inline std::vector<int32_t> random_tokens(int64_t n, int64_t n_vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (int32_t& token : tokens)
    token = static_cast<int32_t>(random() % static_cast<uint64_t>(n_vocab));
  return tokens;
}

}  // namespace lockstep::model
