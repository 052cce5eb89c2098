// A small random transformer as an op graph, and the state of a sequence, for backend tests. Shaped
// like llama (adjacent pairs, silu) or like gemma3 (halves, head norms, gelu, sliding windows,
// caps); with halves alone and biases like qwen2, with halves and head norms like qwen3.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "random_data.h"

namespace lockstep::kernels::test {

struct ModelShape {
  int64_t n_vocab = 97, n_embd = 256, n_ff = 512, n_layer = 2;
  int64_t n_head = 4, n_head_kv = 2, head_dim = 64;
  TensorType type = TensorType::q4_0;       // of the blocks
  TensorType head_type = TensorType::q8_0;  // of embedding and output
  bool gemma = false;                       // halves, head norms and all else
  bool halves = false;                      // pairs of the rotation
  bool head_norms = false;                  // of q and k
  int64_t window = 0;                       // of even layers
  float softcap = 0.0f;
  bool bias = false;
  RopeSpec rope;
};

class TestModel {
 public:
  TestModel(const ModelShape& shape, uint64_t seed) : shape_(shape), random_(seed) { build(); }
  TestModel(const TestModel&) = delete;

  const Graph& graph() const { return graph_; }
  const ModelShape& shape() const { return shape_; }
  // Flips the top bit of one code (float types: of the fraction) of some weight that all rows pass.
  void flip_a_code_bit(uint64_t seed) {
    Random random(seed);
    OwnedWeight& w = weights_[static_cast<size_t>(random.between(1, 3))];  // q, k, v of layer 0
    const gguf::TypeInfo& info = gguf::type_info(w.weight.type);
    const int64_t n = random.below(w.weight.n_out),
                  block = random.below(w.weight.row_bytes / info.block_bytes);
    // The last byte of a block is a code in every type but some of 256, whose middle is.
    const bool middle = w.weight.type == TensorType::q2_k || w.weight.type == TensorType::q3_k ||
                        w.weight.type == TensorType::q6_k;
    const int64_t byte = middle ? info.block_bytes / 2 : info.block_bytes - 1;
    const int bit = info.block_elements == 1 ? 6 - 4 * (info.block_bytes == 4) : 7;
    w.bytes[static_cast<size_t>(n * w.weight.row_bytes + block * info.block_bytes + byte)] ^=
        std::byte{1} << bit;
  }

 private:
  Slot slot(const std::string& name, int64_t width) {
    graph_.slots.push_back({name, width});
    return static_cast<Slot>(graph_.slots.size() - 1);
  }
  // Scales small enough that a few layers stay finite: the codes are uniform, so a row of n codes
  // of a q-bit type grows by about sqrt(n)·2^q times its scale.
  const Weight* weight(TensorType type, int64_t n_in, int64_t n_out) {
    weights_.push_back(random_weight(random_, type, n_in, n_out));
    OwnedWeight& owned = weights_.back();
    const gguf::TypeInfo& info = gguf::type_info(type);
    const int64_t blocks = owned.weight.row_bytes / info.block_bytes * n_out;
    for (int64_t b = 0; b < blocks; ++b) {
      std::byte* at = owned.bytes.data() + b * info.block_bytes;
      const auto store = [&](std::byte* p, float value) {
        const uint16_t h = f32_to_f16(value);
        std::memcpy(p, &h, 2);
      };
      const float u = random_.uniform();
      switch (type) {
        case TensorType::f32: {
          const float value = u * 0.08f;
          std::memcpy(at, &value, 4);
          break;
        }
        case TensorType::f16:
          store(at, u * 0.08f);
          break;
        case TensorType::bf16: {
          const float value = u * 0.08f;
          std::memcpy(at, reinterpret_cast<const std::byte*>(&value) + 2, 2);
          break;
        }
        case TensorType::q2_k:
          store(at + 80, u * 2e-3f);
          store(at + 82, random_.uniform() * 2e-3f);
          break;
        case TensorType::q3_k:
          store(at + 108, u * 1e-3f);
          break;
        case TensorType::q6_k:
          store(at + 208, u * 2e-5f);
          break;
        case TensorType::iq4_nl:
          store(at, u * 1e-3f);
          break;
        case TensorType::iq4_xs:
          store(at, u * 5e-5f);
          break;
        case TensorType::mxfp4:
          *at = static_cast<std::byte>(random_.between(118, 121));
          break;
        case TensorType::q4_k:
        case TensorType::q5_k:
          store(at, u * 1e-4f);
          store(at + 2, random_.uniform() * 1e-4f);
          break;
        case TensorType::q8_0:
          store(at, u * 1e-3f);
          break;
        default:
          store(at, u * 8e-3f);
          if (type == TensorType::q4_1 || type == TensorType::q5_1)
            store(at + 2, random_.uniform() * 0.02f);
      }
    }
    return &owned.weight;
  }
  const float* vector(int64_t n) {
    vectors_.push_back(random_floats(random_, n, Kind::plain));
    for (float& x : vectors_.back()) x = 1.0f + 0.1f * x;
    return vectors_.back().data();
  }
  void add(OpArgs args, int layer, const char* name) {
    graph_.ops.push_back({std::move(args), layer, name});
  }

  void build() {
    const ModelShape& s = shape_;
    const int64_t q_width = s.n_head * s.head_dim, kv_width = s.n_head_kv * s.head_dim;
    if (shape_.rope.n_rot == 0) shape_.rope.n_rot = static_cast<int32_t>(s.head_dim);
    shape_.rope.pairing =
        s.gemma || s.halves ? RopeSpec::Pairing::halves : RopeSpec::Pairing::adjacent;
    const Slot h = slot("h", s.n_embd), x = slot("x", s.n_embd), branch = slot("branch", s.n_embd);
    const Slot q = slot("q", q_width), k = slot("k", kv_width), v = slot("v", kv_width);
    const Slot attn = slot("attn", q_width), gate = slot("gate", s.n_ff), up = slot("up", s.n_ff);
    const Slot last = slot("last", s.n_embd), logits = slot("logits", s.n_vocab);
    const Weight* table = weight(s.head_type, s.n_embd, s.n_vocab);
    const float eps = 1e-5f;
    const auto bias = [&](int64_t n) { return s.bias ? vector(n) : nullptr; };
    add(op::Embed{table, s.gemma ? 16.0f : 1.0f, h}, -1, "embed");
    for (int layer = 0; layer < s.n_layer; ++layer) {
      add(op::RmsNorm{h, x, vector(s.n_embd), s.n_embd, eps}, layer, "attn_norm");
      add(op::Linear{x,
                     {{weight(s.type, s.n_embd, q_width), bias(q_width), q},
                      {weight(s.type, s.n_embd, kv_width), bias(kv_width), k},
                      {weight(s.head_type, s.n_embd, kv_width), bias(kv_width), v}}},
          layer, "qkv");
      if (s.gemma || s.head_norms) {
        add(op::RmsNorm{q, q, vector(s.head_dim), s.head_dim, eps}, layer, "q_norm");
        add(op::RmsNorm{k, k, vector(s.head_dim), s.head_dim, eps}, layer, "k_norm");
      }
      add(op::Rope{q, s.n_head, s.head_dim, &shape_.rope}, layer, "q_rope");
      add(op::Rope{k, s.n_head_kv, s.head_dim, &shape_.rope}, layer, "k_rope");
      add(op::KvWrite{k, v}, layer, "kv_write");
      add(op::Attention{q, attn, s.n_head, s.head_dim, 0.17677669f, s.softcap,
                        layer % 2 == 0 ? s.window : 0},
          layer, "attention");
      add(op::Linear{attn, {{weight(s.type, q_width, s.n_embd), nullptr, branch}}}, layer,
          "attn_out");
      add(op::Add{h, branch, h}, layer, "attn_add");
      add(op::RmsNorm{h, x, vector(s.n_embd), s.n_embd, eps}, layer, "ffn_norm");
      add(op::Linear{x,
                     {{weight(s.type, s.n_embd, s.n_ff), nullptr, gate},
                      {weight(s.type, s.n_embd, s.n_ff), nullptr, up}}},
          layer, "ffn_in");
      add(op::GatedAct{gate, up, gate, s.gemma ? Activation::gelu_tanh : Activation::silu}, layer,
          "ffn_act");
      add(op::Linear{gate, {{weight(s.type, s.n_ff, s.n_embd), nullptr, branch}}}, layer,
          "ffn_out");
      add(op::Add{h, branch, h}, layer, "ffn_add");
    }
    add(op::SelectRows{h, last}, -1, "select");
    add(op::RmsNorm{last, last, vector(s.n_embd), s.n_embd, eps}, -1, "norm");
    add(op::Linear{last, {{table, nullptr, logits}}}, -1, "logits");
    if (s.softcap != 0.0f) add(op::Softcap{logits, s.softcap}, -1, "cap");
    graph_.logits = logits;
    graph_.n_vocab = s.n_vocab;
  }

  ModelShape shape_;
  Random random_;
  std::deque<OwnedWeight> weights_;
  std::deque<std::vector<float>> vectors_;
  Graph graph_;
};

// The pages of one sequence, all layers, filled with junk so that a read of what was never written
// shows.
class TestState {
 public:
  TestState(const ModelShape& s, int64_t positions, KvType k_type, KvType v_type)
      : n_pages_((positions + kPagePositions - 1) / kPagePositions) {
    for (int64_t layer = 0; layer < s.n_layer; ++layer) {
      Layer& l = layers_.emplace_back();
      for (int64_t p = 0; p < n_pages_; ++p) {
        l.k.push_back(page(s.n_head_kv * kPagePositions * kv_row_bytes(k_type, s.head_dim)));
        l.v.push_back(page(s.n_head_kv * kPagePositions * kv_row_bytes(v_type, s.head_dim)));
      }
      views_.push_back({k_type, v_type, static_cast<int32_t>(s.n_head_kv),
                        static_cast<int32_t>(s.head_dim), l.k.data(), l.v.data(), n_pages_});
    }
  }
  TestState(const TestState&) = delete;
  std::span<const KvLayerView> views() const { return views_; }
  // Every byte of every page.
  std::vector<std::byte> contents() const {
    std::vector<std::byte> all;
    for (const auto& bytes : memory_) all.insert(all.end(), bytes.begin(), bytes.end());
    return all;
  }
  // Makes the page absent, as a sliding layer's is once no row can see it.
  void drop_page(int64_t layer, int64_t p) {
    layers_[static_cast<size_t>(layer)].k[static_cast<size_t>(p)] = nullptr;
    layers_[static_cast<size_t>(layer)].v[static_cast<size_t>(p)] = nullptr;
  }

 private:
  std::byte* page(int64_t bytes) {
    memory_.emplace_back(static_cast<size_t>(bytes), std::byte{0x7E});
    return memory_.back().data();
  }
  struct Layer {
    std::vector<std::byte*> k, v;
  };
  int64_t n_pages_;
  std::deque<std::vector<std::byte>> memory_;
  std::deque<Layer> layers_;
  std::vector<KvLayerView> views_;
};

}  // namespace lockstep::kernels::test
