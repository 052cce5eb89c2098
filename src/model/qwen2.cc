// qwen2: Qwen 1.5, 2 and 2.5, dense, and models of other names that have their form.
// Facts: ggml-org/llama.cpp at b11434, src/models/qwen2.cpp and src/llama-model.cpp.
//
// The plain decoder (decoder.h); q and k are rotated in pairs (i, i + head_dim/2); q, k and v have
// biases.
#include <algorithm>
#include <string_view>

#include "model/decoder.h"

namespace lockstep::model {
namespace {

// Qwen's own models have all three biases in every layer. A model of the same form may have none
// at all; a file that has some and lacks others is damaged.
Bias biases_of(const gguf::File& file) {
  const auto& tensors = file.tensors();
  const bool any = std::any_of(tensors.begin(), tensors.end(), [](const gguf::Tensor& tensor) {
    return std::string_view(tensor.name).ends_with(".bias");
  });
  return any ? Bias::required : Bias::none;
}

void build(const Hyperparameters& hp, Binder& binder, kernels::Graph& graph) {
  DecoderForm form;
  form.qkv_bias = biases_of(binder.file());
  build_decoder(hp, form, binder, graph);
}

}  // namespace

const Architecture kQwen2 = {"qwen2", read_qwen, build};

}  // namespace lockstep::model
