#include "model/decoder.h"

#include <fmt/format.h>

#include "model/graph_builder.h"

namespace lockstep::model {

using namespace kernels;

void build_decoder(const Hyperparameters& hp, const DecoderForm& form, Binder& binder,
                   Graph& graph) {
  GraphBuilder g(graph);
  const int64_t n_q = hp.n_head * hp.head_dim, n_kv = hp.n_head_kv * hp.head_dim;
  Slot h = g.slot("h", hp.n_embd);
  const Slot x = g.slot("x", hp.n_embd), y = g.slot("y", hp.n_embd);
  const Slot q = g.slot("q", n_q), k = g.slot("k", n_kv), v = g.slot("v", n_kv);
  const Slot heads = g.slot("heads", n_q);
  const Slot gate = g.slot("gate", hp.n_ff), up = g.slot("up", hp.n_ff);

  const Weight* table = binder.matrix("token_embd.weight", hp.n_embd, hp.n_vocab);
  const RopeSpec* rope = binder.rope(hp.rope, form.rope_factors);
  g.add("embed", op::Embed{table, hp.embedding_scale, h});

  for (int64_t i = 0; i < hp.n_layer; ++i) {
    const std::string block = fmt::format("blk.{}.", i);
    const auto linear = [&](const char* name, int64_t n_in, int64_t n_out, Slot out) {
      return bind_linear(binder, block + name, n_in, n_out, out, form.other_bias);
    };
    g.layer(i);
    g.add("attn_norm", bind_norm(binder, block + "attn_norm", hp, h, x));
    g.add("qkv", op::Linear{x, bind_qkv(binder, block, hp, q, k, v, form.qkv_bias)});
    if (form.head_norms) {
      g.add("q_norm", bind_head_norm(binder, block + "attn_q_norm", hp, q));
      g.add("k_norm", bind_head_norm(binder, block + "attn_k_norm", hp, k));
    }
    g.add("rope_q", op::Rope{q, hp.n_head, hp.head_dim, rope});
    g.add("rope_k", op::Rope{k, hp.n_head_kv, hp.head_dim, rope});
    g.add("kv_write", op::KvWrite{k, v});
    g.add("attention",
          op::Attention{q, heads, hp.n_head, hp.head_dim, hp.attention_scale, 0.0f, 0});
    g.add("attn_output", op::Linear{heads, {linear("attn_output", n_q, hp.n_embd, y)}});
    g.add("attn_residual", op::Add{h, y, h});
    if (i == hp.n_layer - 1) h = select_rows(g, h, hp.n_embd);
    g.add("ffn_norm", bind_norm(binder, block + "ffn_norm", hp, h, x));
    g.add("gate_up", op::Linear{x, bind_gate_up(binder, block, hp, gate, up, form.other_bias)});
    g.add("silu", op::GatedAct{gate, up, gate, Activation::silu});
    g.add("ffn_down", op::Linear{gate, {linear("ffn_down", hp.n_ff, hp.n_embd, y)}});
    g.add("ffn_residual", op::Add{h, y, h});
  }
  add_output(g, graph, binder, hp, table, h, x);
}

void refuse_window_and_softcap(const KeyReader& keys) {
  keys.only("attention.sliding_window", {0.0}, "0 (this architecture has no sliding window)");
  keys.only("final_logit_softcapping", {0.0}, "0 (this architecture has none)");
}

Hyperparameters read_qwen(const KeyReader& keys) {
  keys.only_text("rope.scaling.type", {"none", "linear", "yarn"});
  Hyperparameters hp = read_common(keys);
  hp.rope.pairing = RopeSpec::Pairing::halves;
  hp.tied_embeddings = keys.file().find_tensor("output.weight") == nullptr;
  keys.only("rope.dimension_count", {static_cast<double>(hp.head_dim)},
            fmt::format("the head size, {} (whole heads are rotated)", hp.head_dim));
  keys.only("rope.dimension_sections", {}, "nothing (positions are single numbers here)");
  refuse_window_and_softcap(keys);
  return hp;
}

}  // namespace lockstep::model
