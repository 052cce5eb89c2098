// qwen3: Qwen 3, dense.
// Facts: ggml-org/llama.cpp at b11434, src/models/qwen3.cpp and src/llama-model.cpp.
//
// The plain decoder (decoder.h); q and k are normed per head and rotated in pairs
// (i, i + head_dim/2); no biases.
#include "model/decoder.h"

namespace lockstep::model {
namespace {

void build(const Hyperparameters& hp, Binder& binder, kernels::Graph& graph) {
  DecoderForm form;
  form.head_norms = true;
  build_decoder(hp, form, binder, graph);
}

}  // namespace

const Architecture kQwen3 = {"qwen3", read_qwen, build};

}  // namespace lockstep::model
