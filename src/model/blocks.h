// Pieces that architectures share.
#pragma once

#include <string>
#include <vector>

#include "model/architecture.h"
#include "model/graph_builder.h"

namespace lockstep::model {

// What an architecture's definition says of a bias; one that it doesn't have is a tensor without a
// place, and refused.
enum class Bias : uint8_t { none, optional, required };

// "<name>.weight" with "<name>.bias".
kernels::op::LinearOut bind_linear(Binder& binder, const std::string& name, int64_t n_in,
                                   int64_t n_out, kernels::Slot out, Bias bias = Bias::optional);

// "<name>.weight" over the whole width.
kernels::op::RmsNorm bind_norm(Binder& binder, const std::string& name, const Hyperparameters& hp,
                               kernels::Slot in, kernels::Slot out);
// "<name>.weight" over each head, in place.
kernels::op::RmsNorm bind_head_norm(Binder& binder, const std::string& name,
                                    const Hyperparameters& hp, kernels::Slot heads);

// attn_q, attn_k, attn_v with their biases, or the fused attn_qkv (rows of q, then k, then v).
std::vector<kernels::op::LinearOut> bind_qkv(Binder& binder, const std::string& block,
                                             const Hyperparameters& hp, kernels::Slot q,
                                             kernels::Slot k, kernels::Slot v,
                                             Bias bias = Bias::optional);

// ffn_gate and ffn_up, which read the same row.
std::vector<kernels::op::LinearOut> bind_gate_up(Binder& binder, const std::string& block,
                                                 const Hyperparameters& hp, kernels::Slot gate,
                                                 kernels::Slot up, Bias bias = Bias::optional);

// Keeps the rows that want logits; what the last layer does after its attention concerns only them.
kernels::Slot select_rows(GraphBuilder& g, kernels::Slot in, int64_t width);

// Final norm (through slot x), output product, cap.
void add_output(GraphBuilder& g, kernels::Graph& graph, Binder& binder, const Hyperparameters& hp,
                const kernels::Weight* table, kernels::Slot h, kernels::Slot x);

}  // namespace lockstep::model
