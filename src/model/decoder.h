// The plain decoder that llama, qwen2 and qwen3 share: norm, attention, norm, gated feed-forward,
// in blocks with residuals, as a list of ops.
//
//   h = E[token]
//   each layer:  x = norm(h; attn_norm);  q = Wq x, k = Wk x, v = Wv x
//                (q, k normed per head)
//                q, k rotated;  k, v into the state
//                h = h + Wo attention(q)
//                x = norm(h; ffn_norm);  h = h + Wdown(silu(Wgate x) · Wup x)
//   logits = Wout norm(h; output_norm), Wout = E where the file has no output.weight
#pragma once

#include <string>

#include "model/architecture.h"
#include "model/blocks.h"

namespace lockstep::model {

// Where the architectures of this form differ.
struct DecoderForm {
  Bias qkv_bias = Bias::none;    // of Wq, Wk, Wv
  Bias other_bias = Bias::none;  // of the other products of a layer
  bool head_norms = false;       // attn_q_norm and attn_k_norm
  std::string rope_factors;      // tensor of factors for the frequencies, where files have one
};

void build_decoder(const Hyperparameters& hp, const DecoderForm& form, Binder& binder,
                   kernels::Graph& graph);

// Refuses what files of other architectures say and this form has no meaning for.
void refuse_window_and_softcap(const KeyReader& keys);

// What the files of the dense Qwen models say.
Hyperparameters read_qwen(const KeyReader& keys);

}  // namespace lockstep::model
