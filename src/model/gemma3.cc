// gemma3: Gemma 3 text models.
// Facts: ggml-org/llama.cpp at b11434, src/models/gemma3.cpp. A GGUF file's norm weights have
// Gemma's
// "+1" folded in, so norms here are like llama's.
//
//   h = E[token] · sqrt(n_embd)
//   each layer:  x = norm(h; attn_norm);  q = Wq x, k = Wk x, v = Wv x
//                q, k normed per head (attn_q_norm, attn_k_norm), then rotated, pairs (i, i +
//                n_rot/2); sliding layers with their own base, unscaled;  k, v into the state h = h
//                + norm(Wo attention(q); post_attention_norm) x = norm(h; ffn_norm);  h = h +
//                norm(Wdown(gelu(Wgate x) · Wup x); post_ffw_norm)
//   logits = Wout norm(h; output_norm), Wout = E where the file has no output.weight;
//   capped where final_logit_softcapping says so
#include <fmt/format.h>

#include <cmath>

#include "model/architecture.h"
#include "model/blocks.h"
#include "model/graph_builder.h"

namespace lockstep::model {
namespace {

using namespace kernels;

// Layers that see only the window: an array of one flag a layer, or "all but each n-th", n = 6
// where the file says nothing.
void read_sliding_pattern(const KeyReader& keys, Hyperparameters& hp) {
  const char* name = "attention.sliding_window_pattern";
  const gguf::Value* value = keys.file().find(keys.key(name));
  if (value != nullptr && value->type == gguf::ValueType::array) {
    const auto array = keys.file().array(keys.key(name));
    if (static_cast<int64_t>(array->size()) != hp.n_layer) {
      keys.refuse(name, fmt::format("an array of {}", array->size()),
                  fmt::format("one flag for each of the {} layers", hp.n_layer));
    }
    if (const auto* flags = std::get_if<std::vector<bool>>(&array->elements)) {
      hp.sliding = *flags;
      return;
    }
    const auto take = [&](const auto& numbers) {
      for (size_t i = 0; i < numbers.size(); ++i) hp.sliding[i] = numbers[i] != 0;
    };
    if (const auto* numbers = std::get_if<std::vector<uint64_t>>(&array->elements))
      return take(*numbers);
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(&array->elements))
      return take(*numbers);
    keys.refuse(name, "an array of something else", "bools or integers");
  }
  const int64_t period = keys.integer_if(name, 0, 1024).value_or(6);
  for (int64_t i = 0; i < hp.n_layer; ++i) {
    hp.sliding[static_cast<size_t>(i)] = period == 0 || i % period < period - 1;
  }
}

Hyperparameters read(const KeyReader& keys) {
  Hyperparameters hp = read_common(keys);
  hp.rope.pairing = RopeSpec::Pairing::halves;
  hp.tied_embeddings = keys.file().find_tensor("output.weight") == nullptr;
  hp.embedding_scale = std::sqrt(static_cast<float>(hp.n_embd));
  // The 27B model alone scales by its width, not by its head size.
  if (hp.n_layer == 62) {
    hp.attention_scale =
        static_cast<float>(1.0 / std::sqrt(static_cast<double>(hp.n_embd / hp.n_head)));
  }
  hp.logits_softcap = keys.number_if("final_logit_softcapping", 0.0, 1e6).value_or(0.0f);
  for (const char* name : {"attention.key_length_swa", "attention.value_length_swa"}) {
    keys.only(name, {static_cast<double>(hp.head_dim)},
              fmt::format("attention.key_length, {}", hp.head_dim));
  }
  keys.only("rope.dimension_count_swa", {static_cast<double>(hp.rope.n_rot)},
            fmt::format("rope.dimension_count, {}", hp.rope.n_rot));
  keys.only("rope.scaling.attn_factor", {1.0}, "1 (with sliding layers its reach is not settled)");

  hp.window = keys.integer_if("attention.sliding_window", 0, (int64_t{1} << 31) - 1).value_or(0);
  hp.rope_swa.pairing = hp.rope.pairing;
  hp.rope_swa.n_rot = hp.rope.n_rot;
  hp.rope_swa.base = keys.number_if("rope.freq_base_swa", 1.0 + 1e-6, 1e12).value_or(10000.0f);
  if (hp.window > 0) read_sliding_pattern(keys, hp);
  return hp;
}

void build(const Hyperparameters& hp, Binder& binder, Graph& graph) {
  GraphBuilder g(graph);
  const int64_t n_q = hp.n_head * hp.head_dim, n_kv = hp.n_head_kv * hp.head_dim;
  Slot h = g.slot("h", hp.n_embd);
  const Slot x = g.slot("x", hp.n_embd), y = g.slot("y", hp.n_embd);
  const Slot q = g.slot("q", n_q), k = g.slot("k", n_kv), v = g.slot("v", n_kv);
  const Slot heads = g.slot("heads", n_q);
  const Slot gate = g.slot("gate", hp.n_ff), up = g.slot("up", hp.n_ff);

  const Weight* table = binder.matrix("token_embd.weight", hp.n_embd, hp.n_vocab);
  const RopeSpec* rope_global = binder.rope(hp.rope, "");
  const RopeSpec* rope_sliding = binder.rope(hp.rope_swa, "");
  g.add("embed", op::Embed{table, hp.embedding_scale, h});

  for (int64_t i = 0; i < hp.n_layer; ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    const bool sliding = hp.sliding[static_cast<size_t>(i)];
    const RopeSpec* rope = sliding ? rope_sliding : rope_global;
    g.layer(i);
    g.add("attn_norm", bind_norm(binder, block + "attn_norm", hp, h, x));
    g.add("qkv", op::Linear{x, bind_qkv(binder, block, hp, q, k, v)});
    g.add("q_norm", bind_head_norm(binder, block + "attn_q_norm", hp, q));
    g.add("k_norm", bind_head_norm(binder, block + "attn_k_norm", hp, k));
    g.add("rope_q", op::Rope{q, hp.n_head, hp.head_dim, rope});
    g.add("rope_k", op::Rope{k, hp.n_head_kv, hp.head_dim, rope});
    g.add("kv_write", op::KvWrite{k, v});
    g.add("attention", op::Attention{q, heads, hp.n_head, hp.head_dim, hp.attention_scale, 0.0f,
                                     sliding ? hp.window : 0});
    g.add("attn_output",
          op::Linear{heads, {bind_linear(binder, block + "attn_output", n_q, hp.n_embd, y)}});
    g.add("post_attn_norm", bind_norm(binder, block + "post_attention_norm", hp, y, y));
    g.add("attn_residual", op::Add{h, y, h});
    if (i == hp.n_layer - 1) h = select_rows(g, h, hp.n_embd);
    g.add("ffn_norm", bind_norm(binder, block + "ffn_norm", hp, h, x));
    g.add("gate_up", op::Linear{x, bind_gate_up(binder, block, hp, gate, up)});
    g.add("gelu", op::GatedAct{gate, up, gate, Activation::gelu_tanh});
    g.add("ffn_down",
          op::Linear{gate, {bind_linear(binder, block + "ffn_down", hp.n_ff, hp.n_embd, y)}});
    g.add("post_ffw_norm", bind_norm(binder, block + "post_ffw_norm", hp, y, y));
    g.add("ffn_residual", op::Add{h, y, h});
  }
  add_output(g, graph, binder, hp, table, h, x);
}

}  // namespace

const Architecture kGemma3 = {"gemma3", read, build};

}  // namespace lockstep::model
