// llama: Llama 1 to 3, Mistral, SmolLM2 and everything else whose files say "llama".
// Facts: ggml-org/llama.cpp at b11434, src/models/llama.cpp and src/llama-model.cpp.
//
// The plain decoder (decoder.h); q and k are rotated in pairs (2i, 2i + 1), and any product of a
// layer may have a bias.
#include "model/decoder.h"

namespace lockstep::model {
namespace {

Hyperparameters read(const KeyReader& keys) {
  Hyperparameters hp = read_common(keys);
  hp.rope.pairing = kernels::RopeSpec::Pairing::adjacent;
  hp.tied_embeddings = keys.file().find_tensor("output.weight") == nullptr;
  refuse_window_and_softcap(keys);
  return hp;
}

void build(const Hyperparameters& hp, Binder& binder, kernels::Graph& graph) {
  DecoderForm form;
  form.qkv_bias = form.other_bias = Bias::optional;
  form.rope_factors = "rope_freqs.weight";
  build_decoder(hp, form, binder, graph);
}

}  // namespace

const Architecture kLlama = {"llama", read, build};

}  // namespace lockstep::model
