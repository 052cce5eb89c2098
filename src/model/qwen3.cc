// qwen3: Qwen 3, dense.
// Facts: ggml-org/llama.cpp at b11434, src/models/qwen3.cpp and src/llama-model.cpp.
//
//   h = E[token]
//   each layer:  x = norm(h; attn_norm);  q = Wq x, k = Wk x, v = Wv x
//                q, k normed per head (attn_q_norm, attn_k_norm), then rotated, pairs
//                (i, i + head_dim/2);  k, v into the state
//                h = h + Wo attention(q)
//                x = norm(h; ffn_norm);  h = h + Wdown(silu(Wgate x) · Wup x)
//   logits = Wout norm(h; output_norm), Wout = E where the file has no output.weight
#include <fmt/format.h>

#include "model/architecture.h"
#include "model/blocks.h"
#include "model/graph_builder.h"

namespace lockstep::model {
namespace {

using namespace kernels;

Hyperparameters read(const KeyReader& keys) {
  keys.only_text("rope.scaling.type", {"none", "linear", "yarn"});
  Hyperparameters hp = read_common(keys);
  hp.rope.pairing = RopeSpec::Pairing::halves;
  hp.tied_embeddings = keys.file().find_tensor("output.weight") == nullptr;
  keys.only("rope.dimension_count", {static_cast<double>(hp.head_dim)},
            fmt::format("the head size, {} (whole heads are rotated)", hp.head_dim));
  keys.only("rope.dimension_sections", {}, "nothing (positions are single numbers here)");
  keys.only("attention.sliding_window", {0.0}, "0 (this architecture has no sliding window)");
  keys.only("final_logit_softcapping", {0.0}, "0 (this architecture has none)");
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
  const RopeSpec* rope = binder.rope(hp.rope, "");
  g.add("embed", op::Embed{table, hp.embedding_scale, h});

  for (int64_t i = 0; i < hp.n_layer; ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    g.layer(i);
    g.add("attn_norm", bind_norm(binder, block + "attn_norm", hp, h, x));
    g.add("qkv", op::Linear{x, bind_qkv(binder, block, hp, q, k, v, Bias::none)});
    g.add("q_norm", bind_head_norm(binder, block + "attn_q_norm", hp, q));
    g.add("k_norm", bind_head_norm(binder, block + "attn_k_norm", hp, k));
    g.add("rope_q", op::Rope{q, hp.n_head, hp.head_dim, rope});
    g.add("rope_k", op::Rope{k, hp.n_head_kv, hp.head_dim, rope});
    g.add("kv_write", op::KvWrite{k, v});
    g.add("attention",
          op::Attention{q, heads, hp.n_head, hp.head_dim, hp.attention_scale, 0.0f, 0});
    g.add("attn_output",
          op::Linear{heads,
                     {bind_linear(binder, block + "attn_output", n_q, hp.n_embd, y, Bias::none)}});
    g.add("attn_residual", op::Add{h, y, h});
    if (i == hp.n_layer - 1) h = select_rows(g, h, hp.n_embd);
    g.add("ffn_norm", bind_norm(binder, block + "ffn_norm", hp, h, x));
    g.add("gate_up", op::Linear{x, bind_gate_up(binder, block, hp, gate, up, Bias::none)});
    g.add("silu", op::GatedAct{gate, up, gate, Activation::silu});
    g.add("ffn_down",
          op::Linear{gate,
                     {bind_linear(binder, block + "ffn_down", hp.n_ff, hp.n_embd, y, Bias::none)}});
    g.add("ffn_residual", op::Add{h, y, h});
  }
  add_output(g, graph, binder, hp, table, h, x);
}

}  // namespace

const Architecture kQwen3 = {"qwen3", read, build};

}  // namespace lockstep::model
