#include "kernels/op_bytes.h"

#include <algorithm>
#include <stdexcept>

#include "kernels/ops/attention.h"
#include "kernels/ops/quantize_activations.h"

namespace lockstep::kernels {
namespace {

int64_t block_of(ActivationForm form) {
  return form == ActivationForm::q256 ? 256 : 32;
}

// int8 codes, sums of 32 and scales of a block, a row of n (n·(1 + 4/32 + 4/block)).
int64_t quantized_row_bytes(int64_t n, ActivationForm form) {
  return n + n / 32 * 4 + n / block_of(form) * 4;
}

class Counter {
 public:
  Counter(const Graph& graph, int op_index, const PassShape& shape)
      : graph_(graph), index_(static_cast<size_t>(op_index)), shape_(shape), rows_(shape.rows) {
    for (size_t i = 0; i <= index_; ++i) {
      if (std::holds_alternative<op::SelectRows>(graph.ops[i].args)) rows_ = shape.logits_rows;
    }
  }

  OpBytes operator()(const op::Embed& a) const {
    return {.weights = rows_ * a.table->row_bytes, .activations = rows_ * 4 * width(a.out)};
  }

  OpBytes operator()(const op::RmsNorm& a) const {
    if (rows_ == 0) return {};
    return {.weights = a.group * 4, .activations = rows_ * width(a.in) * 8};
  }

  OpBytes operator()(const op::Linear& a) const {
    OpBytes bytes;
    if (rows_ == 0) return bytes;
    bool quantized[3] = {};
    for (const op::LinearOut& out : a.outs) {
      const Weight& w = *out.weight;
      bytes.weights += w.n_out * (w.row_bytes + (out.bias ? 4 : 0));
      bytes.activations += rows_ * 4 * w.n_out;
      const ActivationForm form = activation_form(w.type);
      if (form == ActivationForm::f32) {
        bytes.activations += rows_ * 4 * w.n_in;
        continue;
      }
      const int64_t row = quantized_row_bytes(w.n_in, form);
      bytes.activations += rows_ * row;  // read by the product
      if (!quantized[static_cast<int>(form)]) {
        bytes.activations += rows_ * (4 * w.n_in + row);  // quantize_activations
        quantized[static_cast<int>(form)] = true;
      }
    }
    return bytes;
  }

  OpBytes operator()(const op::Rope& a) const {
    return {.activations = rows_ * (a.n_head * a.spec->n_rot * 8 + a.spec->n_rot * 4)};
  }

  OpBytes operator()(const op::KvWrite& a) const {
    const int64_t head_dim = head_dim_of_layer();
    const int64_t heads = width(a.k) / head_dim;
    return {.activations = rows_ * heads * (8 * head_dim + kv_row_bytes_both(head_dim))};
  }

  OpBytes operator()(const op::Attention& a) const {
    int64_t positions = 0;  // read, over all tiles
    for (int64_t begin = 0; begin < rows_; begin += kAttentionTileRows) {
      const int64_t last = shape_.depth + std::min(rows_, begin + kAttentionTileRows) - 1;
      const int64_t first =
          a.window > 0 ? std::max<int64_t>(0, shape_.depth + begin - a.window + 1) : 0;
      positions += last - first + 1;
    }
    return {.kv = positions * kv_heads_of_layer(a.head_dim) * kv_row_bytes_both(a.head_dim),
            .activations = rows_ * a.n_head * a.head_dim * 8};
  }

  OpBytes operator()(const op::Add& a) const { return {.activations = rows_ * width(a.out) * 12}; }
  OpBytes operator()(const op::GatedAct& a) const {
    return {.activations = rows_ * width(a.out) * 12};
  }
  OpBytes operator()(const op::SelectRows& a) const {
    return {.activations = rows_ * width(a.out) * 8};
  }
  OpBytes operator()(const op::Softcap& a) const {
    return {.activations = rows_ * width(a.inout) * 8};
  }

 private:
  int64_t width(Slot slot) const { return graph_.slots[static_cast<size_t>(slot)].width; }
  int64_t kv_row_bytes_both(int64_t head_dim) const {
    return kv_row_bytes(shape_.k_type, head_dim) + kv_row_bytes(shape_.v_type, head_dim);
  }
  template <typename Args>
  const Args& in_layer() const {
    for (const Op& op : graph_.ops) {
      if (op.layer != graph_.ops[index_].layer) continue;
      if (const Args* args = std::get_if<Args>(&op.args)) return *args;
    }
    throw std::logic_error(
        "op_bytes: a layer that writes keys without reading them, or reads none");
  }
  // The graph says heads where they are read, and their number by what is written.
  int64_t head_dim_of_layer() const { return in_layer<op::Attention>().head_dim; }
  int64_t kv_heads_of_layer(int64_t head_dim) const {
    return width(in_layer<op::KvWrite>().k) / head_dim;
  }

  const Graph& graph_;
  const size_t index_;
  const PassShape& shape_;
  int64_t rows_;
};

}  // namespace

OpBytes& OpBytes::operator+=(const OpBytes& other) {
  weights += other.weights;
  kv += other.kv;
  activations += other.activations;
  return *this;
}

OpBytes op_bytes(const Graph& graph, int op_index, const PassShape& shape) {
  return std::visit(Counter(graph, op_index, shape), graph.ops[static_cast<size_t>(op_index)].args);
}

OpBytes pass_bytes(const Graph& graph, const PassShape& shape) {
  OpBytes bytes;
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    bytes += op_bytes(graph, static_cast<int>(i), shape);
  }
  return bytes;
}

std::string_view op_kind_name(const OpArgs& args) {
  static constexpr std::string_view kNames[] = {"embed",       "rms_norm",  "linear", "rope",
                                                "kv_write",    "attention", "add",    "gated_act",
                                                "select_rows", "softcap"};
  static_assert(std::size(kNames) == std::variant_size_v<OpArgs>);
  return kNames[args.index()];
}

}  // namespace lockstep::kernels
