#include "kernels/types.h"

#include "kernels/ops/attention.h"
#include "kernels/ops/quantize_activations.h"

namespace lockstep::kernels {

const char* kv_type_name(KvType type) {
  switch (type) {
    case KvType::f32:
      return "f32";
    case KvType::f16:
      return "f16";
    case KvType::q8_0:
      return "q8_0";
    case KvType::q4_0:
      return "q4_0";
  }
  return "?";
}

int64_t kv_block_elements(KvType type) {
  return type == KvType::q8_0 || type == KvType::q4_0 ? 32 : 1;
}

int64_t kv_row_bytes(KvType type, int64_t head_dim) {
  switch (type) {
    case KvType::f32:
      return 4 * head_dim;
    case KvType::f16:
      return 2 * head_dim;
    case KvType::q8_0:
      return 34 * (head_dim / 32);
    case KvType::q4_0:
      return 18 * (head_dim / 32);
  }
  return 0;
}

ActivationForm activation_form(TensorType weight_type) {
  switch (weight_type) {
    case TensorType::q4_0:
    case TensorType::q4_1:
    case TensorType::q5_0:
    case TensorType::q5_1:
    case TensorType::q8_0:
    case TensorType::iq4_nl:
    case TensorType::mxfp4:
      return ActivationForm::q32;
    case TensorType::q2_k:
    case TensorType::q3_k:
    case TensorType::q4_k:
    case TensorType::q5_k:
    case TensorType::q6_k:
    case TensorType::iq4_xs:
      return ActivationForm::q256;
    default:
      return ActivationForm::f32;
  }
}

int64_t attention_scratch_bytes(int64_t head_dim, int64_t n_head, int64_t n_head_kv) {
  const int64_t padded = (head_dim + 15) / 16 * 16;
  const int64_t states = kAttentionTileRows * (n_head / n_head_kv);
  // A page of keys and of values, four partial outputs, and for each query row and head itself, two
  // more partial outputs and its state.
  const int64_t bytes = 4 * padded * (2 * kPagePositions + 4 + 3 * states) + 64 * states;
  return (bytes + 63) / 64 * 64;
}

AttentionSpans attention_spans(const AttentionArgs& args) {
  constexpr int64_t kPositions = kSpanPages * kPagePositions;
  const int64_t lowest =
      args.window > 0 ? std::max<int64_t>(0, args.first_position - args.window + 1) : 0;
  const int64_t highest = args.first_position + std::max<int64_t>(1, args.rows) - 1;
  AttentionSpans spans;
  spans.first = lowest / kPositions;
  spans.count = highest / kPositions - spans.first + 1;
  return spans;
}

int64_t attention_partial_floats(int64_t head_dim, int64_t n_head, int64_t n_head_kv) {
  return kAttentionTileRows * (n_head / n_head_kv) * (16 + (head_dim + 15) / 16 * 16);
}

}  // namespace lockstep::kernels
