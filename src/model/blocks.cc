#include "model/blocks.h"

namespace lockstep::model {

using namespace kernels;

namespace {

const float* bind_bias(Binder& binder, const std::string& name, int64_t n, Bias bias) {
  switch (bias) {
    case Bias::none:
      return nullptr;
    case Bias::optional:
      return binder.vector_if(name + ".bias", n);
    case Bias::required:
      return binder.vector(name + ".bias", n);
  }
  return nullptr;
}

}  // namespace

op::LinearOut bind_linear(Binder& binder, const std::string& name, int64_t n_in, int64_t n_out,
                          Slot out, Bias bias) {
  return {binder.matrix(name + ".weight", n_in, n_out), bind_bias(binder, name, n_out, bias), out};
}

op::RmsNorm bind_norm(Binder& binder, const std::string& name, const Hyperparameters& hp, Slot in,
                      Slot out) {
  return {in, out, binder.vector(name + ".weight", hp.n_embd), hp.n_embd, hp.rms_eps};
}

op::RmsNorm bind_head_norm(Binder& binder, const std::string& name, const Hyperparameters& hp,
                           Slot heads) {
  return {heads, heads, binder.vector(name + ".weight", hp.head_dim), hp.head_dim, hp.rms_eps};
}

std::vector<op::LinearOut> bind_qkv(Binder& binder, const std::string& block,
                                    const Hyperparameters& hp, Slot q, Slot k, Slot v, Bias bias) {
  const int64_t n_q = hp.n_head * hp.head_dim, n_kv = hp.n_head_kv * hp.head_dim;
  const Weight* fused = binder.matrix_if(block + "attn_qkv.weight", hp.n_embd, n_q + 2 * n_kv);
  if (fused == nullptr) {
    return {bind_linear(binder, block + "attn_q", hp.n_embd, n_q, q, bias),
            bind_linear(binder, block + "attn_k", hp.n_embd, n_kv, k, bias),
            bind_linear(binder, block + "attn_v", hp.n_embd, n_kv, v, bias)};
  }
  op::LinearOut out_q{binder.rows_of(*fused, 0, n_q), nullptr, q};
  op::LinearOut out_k{binder.rows_of(*fused, n_q, n_kv), nullptr, k};
  op::LinearOut out_v{binder.rows_of(*fused, n_q + n_kv, n_kv), nullptr, v};
  if (bias == Bias::none) return {out_q, out_k, out_v};
  if (const float* all = binder.vector_if(block + "attn_qkv.bias", n_q + 2 * n_kv)) {
    out_q.bias = all;
    out_k.bias = all + n_q;
    out_v.bias = all + n_q + n_kv;
  } else {  // some files keep the biases apart
    out_q.bias = bind_bias(binder, block + "attn_q", n_q, bias);
    out_k.bias = bind_bias(binder, block + "attn_k", n_kv, bias);
    out_v.bias = bind_bias(binder, block + "attn_v", n_kv, bias);
  }
  return {out_q, out_k, out_v};
}

std::vector<op::LinearOut> bind_gate_up(Binder& binder, const std::string& block,
                                        const Hyperparameters& hp, Slot gate, Slot up, Bias bias) {
  return {bind_linear(binder, block + "ffn_gate", hp.n_embd, hp.n_ff, gate, bias),
          bind_linear(binder, block + "ffn_up", hp.n_embd, hp.n_ff, up, bias)};
}

Slot select_rows(GraphBuilder& g, Slot in, int64_t width) {
  const Slot kept = g.slot("h_kept", width);
  g.add("select_rows", op::SelectRows{in, kept});
  return kept;
}

void add_output(GraphBuilder& g, Graph& graph, Binder& binder, const Hyperparameters& hp,
                const Weight* table, Slot h, Slot x) {
  const Slot logits = g.slot("logits", hp.n_vocab);
  g.layer(-1);
  g.add("output_norm", bind_norm(binder, "output_norm", hp, h, x));
  const Weight* output =
      hp.tied_embeddings ? table : binder.matrix("output.weight", hp.n_embd, hp.n_vocab);
  g.add("output", op::Linear{x, {{output, nullptr, logits}}});
  if (hp.logits_softcap != 0.0f) g.add("softcap", op::Softcap{logits, hp.logits_softcap});
  graph.logits = logits;
  graph.n_vocab = hp.n_vocab;
}

}  // namespace lockstep::model
