#include "hostile_models.h"

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include "gguf/file.h"
#include "model_edit.h"
#include "synth/synth.h"

namespace lockstep::test {
namespace {

using gguf::Array;
using gguf::TensorType;
using gguf::Value;
using gguf::ValueType;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Value u32(uint64_t value) {
  return {ValueType::u32, value};
}
Value i32(int64_t value) {
  return {ValueType::i32, value};
}
Value f32(double value) {
  return {ValueType::f32, value};
}
Value text(std::string value) {
  return {ValueType::string, std::move(value)};
}
template <typename Element>
Value list(ValueType type, std::vector<Element> elements) {
  auto array = std::make_shared<Array>();
  array->element_type = type;
  array->elements = std::move(elements);
  return {ValueType::array, std::shared_ptr<const Array>(std::move(array))};
}

Value list_of_u32(std::vector<uint64_t> elements) {
  return list(ValueType::u32, std::move(elements));
}
Value list_of_f32(std::vector<double> elements) {
  return list(ValueType::f32, std::move(elements));
}
Value list_of_bools(std::vector<bool> elements) {
  return list(ValueType::boolean, std::move(elements));
}
// The texts must outlive the value: they are literals.
Value list_of_strings(std::vector<std::string_view> elements) {
  return list(ValueType::string, std::move(elements));
}

TensorChange removed() {
  TensorChange change;
  change.removed = true;
  return change;
}
TensorChange shaped(std::vector<int64_t> ne) {
  TensorChange change;
  change.ne = std::move(ne);
  return change;
}
TensorChange typed(TensorType type) {
  TensorChange change;
  change.type = type;
  return change;
}
// The two bytes at `offset` become a binary16 that is not finite.
TensorChange half_at(size_t offset, uint16_t bits) {
  TensorChange change;
  change.edit = [offset, bits](std::span<std::byte> out) {
    std::memcpy(out.data() + offset, &bits, 2);
  };
  return change;
}
TensorChange float_at(size_t offset, float value) {
  TensorChange change;
  change.edit = [offset, value](std::span<std::byte> out) {
    std::memcpy(out.data() + offset, &value, 4);
  };
  return change;
}

constexpr const char* kLlama =
    "synth:llama-tiny,embd=64,heads=4,kv_heads=2,head_dim=16,ffn=96,vocab=300,layers=2@q8_0";
constexpr const char* kGemma =
    "synth:gemma3-tiny,embd=64,heads=4,kv_heads=2,head_dim=16,ffn=96,vocab=300,layers=2@q8_0";

class List {
 public:
  // A llama (or gemma3) model after `edit`; the message must have `expect` in it.
  template <typename Edit>
  void add(const char* spec, std::string name, std::string what, Edit edit,
           std::vector<std::string> expect, bool inspect_refuses = true) {
    ModelEdit model(synth::make_in_memory(synth::parse_synth(spec)));
    edit(model);
    models_.push_back(
        {{std::move(name), std::move(what), model.bytes(), std::move(expect)}, inspect_refuses});
  }
  void key(std::string name, std::string what, const std::string& key, Value value) {
    add(kLlama, std::move(name), std::move(what),
        [&](ModelEdit& m) { m.set(key, std::move(value)); }, {key});
  }
  void gemma_key(std::string name, std::string what, const std::string& key, Value value) {
    add(kGemma, std::move(name), std::move(what),
        [&](ModelEdit& m) { m.set(key, std::move(value)); }, {key});
  }
  void no_key(std::string name, const std::string& key) {
    add(kLlama, std::move(name), "no " + key, [&](ModelEdit& m) { m.drop(key); }, {key});
  }
  void tensor(std::string name, std::string what, const std::string& tensor, TensorChange change) {
    add(kLlama, std::move(name), std::move(what),
        [&](ModelEdit& m) { m.change(tensor, std::move(change)); }, {tensor});
  }
  void gemma_tensor(std::string name, std::string what, const std::string& tensor,
                    TensorChange change) {
    add(kGemma, std::move(name), std::move(what),
        [&](ModelEdit& m) { m.change(tensor, std::move(change)); }, {tensor});
  }
  // Only a command that needs the vocabulary looks at it.
  void vocabulary(const char* spec, std::string name, std::string what, const std::string& key,
                  std::optional<Value> value) {
    add(
        spec, std::move(name), std::move(what),
        [&](ModelEdit& m) { value ? m.set(key, std::move(*value)) : m.drop(key); }, {}, false);
  }
  std::vector<HostileModel> take() { return std::move(models_); }

 private:
  std::vector<HostileModel> models_;
};

void add_architecture(List& list) {
  const std::string key = "general.architecture";
  list.add(
      kLlama, "arch_missing", "no architecture", [&](ModelEdit& m) { m.drop(key); }, {key}, false);
  list.add(
      kLlama, "arch_unknown", "an architecture nobody knows",
      [&](ModelEdit& m) { m.set(key, text("gpt9")); }, {"gpt9"}, false);
  list.add(
      kLlama, "arch_empty", "an architecture without a name",
      [&](ModelEdit& m) { m.set(key, text("")); }, {"architecture"}, false);
  list.add(
      kLlama, "arch_control", "an architecture that would clear the screen",
      [&](ModelEdit& m) { m.set(key, text("llama\x1B[2J")); }, {"llama\\x1B[2J"}, false);
  list.key("arch_number", "an architecture that is a number", key, u32(7));
  list.key("type_adapter", "an adapter, not a model", "general.type", text("adapter"));
}

void add_sizes(List& list) {
  for (const char* name :
       {"block_count", "context_length", "embedding_length", "feed_forward_length",
        "attention.head_count", "attention.layer_norm_rms_epsilon"}) {
    std::string test_name = std::string("no_") + name;
    for (char& letter : test_name) letter = letter == '.' ? '_' : letter;
    list.no_key(test_name, std::string("llama.") + name);
  }
  list.key("layers_0", "no layers", "llama.block_count", u32(0));
  list.key("layers_max", "2^32-1 layers", "llama.block_count", u32(0xFFFFFFFF));
  list.key("layers_minus_1", "-1 layers", "llama.block_count", i32(-1));
  list.key("layers_float", "a number of layers that is a float", "llama.block_count", f32(2.0));
  list.add(kLlama, "layers_more", "a layer more than there are tensors for",
           [](ModelEdit& m) { m.set("llama.block_count", u32(3)); }, {"blk.2."});
  list.add(kLlama, "layers_fewer", "tensors of a layer that the file does not claim",
           [](ModelEdit& m) { m.set("llama.block_count", u32(1)); }, {"blk.1."});
  list.key("embd_0", "a width of 0", "llama.embedding_length", u32(0));
  list.add(kLlama, "embd_wrong", "a width that the tensors do not have",
           [](ModelEdit& m) { m.set("llama.embedding_length", u32(96)); },
           {"token_embd.weight", "96"});
  list.key("embd_2_31", "a width of 2^31", "llama.embedding_length", u32(uint64_t{1} << 31));
  list.key("heads_0", "no heads", "llama.attention.head_count", u32(0));
  list.key("heads_3", "heads that KV heads do not divide", "llama.attention.head_count_kv", u32(3));
  list.key("heads_max", "2^32-1 heads", "llama.attention.head_count", u32(0xFFFFFFFF));
  list.key("kv_heads_0", "no KV heads", "llama.attention.head_count_kv", u32(0));
  list.key("kv_heads_8", "more KV heads than heads", "llama.attention.head_count_kv", u32(8));
  list.key("heads_array_short", "head counts for one layer of two", "llama.attention.head_count",
           list_of_u32({4}));
  list.key("heads_array_mixed", "another head count in each layer", "llama.attention.head_count",
           list_of_u32({4, 2}));
  list.key("heads_array_empty", "an empty array of head counts", "llama.attention.head_count",
           list_of_u32({}));
  list.key("heads_array_text", "head counts that are strings", "llama.attention.head_count",
           list_of_strings({"4", "4"}));
  list.key("head_dim_0", "heads of 0 elements", "llama.attention.key_length", u32(0));
  list.key("head_dim_2048", "heads of 2048 elements", "llama.attention.key_length", u32(2048));
  list.key("value_length_other", "values shorter than keys", "llama.attention.value_length",
           u32(8));
  list.key("ffn_0", "a feed-forward width of 0", "llama.feed_forward_length", u32(0));
  list.key("ffn_max", "a feed-forward width of 2^32-1", "llama.feed_forward_length",
           u32(0xFFFFFFFF));
  list.key("ctx_0", "a context of 0", "llama.context_length", u32(0));
  list.key("ctx_max", "a context of 2^64-1", "llama.context_length",
           {ValueType::u64, std::numeric_limits<uint64_t>::max()});
  list.key("experts", "a mixture of experts", "llama.expert_count", u32(8));
  list.key("eps_nan", "an epsilon that is NaN", "llama.attention.layer_norm_rms_epsilon",
           f32(kNan));
  list.key("eps_inf", "an infinite epsilon", "llama.attention.layer_norm_rms_epsilon",
           f32(kInfinity));
  list.key("eps_0", "an epsilon of 0", "llama.attention.layer_norm_rms_epsilon", f32(0.0));
  list.key("eps_negative", "a negative epsilon", "llama.attention.layer_norm_rms_epsilon",
           f32(-1e-5));
  list.key("eps_text", "an epsilon that is a string", "llama.attention.layer_norm_rms_epsilon",
           text("1e-5"));
}

void add_rotary(List& list) {
  list.key("rope_dim_odd", "an odd number of rotated elements", "llama.rope.dimension_count",
           u32(15));
  list.key("rope_dim_0", "no rotated elements", "llama.rope.dimension_count", u32(0));
  list.key("rope_dim_large", "more rotated elements than a head has", "llama.rope.dimension_count",
           u32(64));
  list.key("rope_base_0", "a rotary base of 0", "llama.rope.freq_base", f32(0.0));
  list.key("rope_base_nan", "a rotary base that is NaN", "llama.rope.freq_base", f32(kNan));
  list.key("rope_base_negative", "a negative rotary base", "llama.rope.freq_base", f32(-10000.0));
  list.key("rope_type_unknown", "a rotary scaling nobody knows", "llama.rope.scaling.type",
           text("spiral"));
  list.key("rope_factor_0", "a rotary factor of 0", "llama.rope.scaling.factor", f32(0.0));
  list.key("rope_factor_nan", "a rotary factor that is NaN", "llama.rope.scaling.factor",
           f32(kNan));
  list.add(kLlama, "rope_llama3_no_factor", "llama3 scaling without its factor",
           [](ModelEdit& m) { m.set("llama.rope.scaling.type", text("llama3")); },
           {"llama.rope.scaling.factor"});
  list.add(kLlama, "rope_freqs_shape", "rotary factors for half of the pairs",
           [](ModelEdit& m) { m.add("rope_freqs.weight", TensorType::f32, {4}); },
           {"rope_freqs.weight"});
  list.add(kLlama, "rope_freqs_zero", "rotary factors of 0",
           [](ModelEdit& m) { m.add("rope_freqs.weight", TensorType::f32, {8}); }, {"factors"});
}

void add_tensors(List& list) {
  list.tensor("no_token_embd", "no embedding table", "token_embd.weight", removed());
  list.tensor("no_output_norm", "no last norm", "output_norm.weight", removed());
  list.tensor("no_attn_q", "a layer without its query matrix", "blk.1.attn_q.weight", removed());
  list.tensor("no_ffn_down", "a layer without ffn_down", "blk.0.ffn_down.weight", removed());
  list.gemma_tensor("no_q_norm", "a gemma3 layer without its query norm",
                    "blk.0.attn_q_norm.weight", removed());
  list.gemma_tensor("no_post_norm", "a gemma3 layer without post_ffw_norm",
                    "blk.1.post_ffw_norm.weight", removed());
  list.tensor("k_shape", "a key matrix with rows for every head", "blk.0.attn_k.weight",
              shaped({64, 64}));
  list.tensor("down_shape", "an ffn_down that is not turned round", "blk.0.ffn_down.weight",
              shaped({64, 96}));
  list.tensor("q_3d", "a query matrix of three dimensions", "blk.0.attn_q.weight",
              shaped({64, 64, 2}));
  list.tensor("norm_shape", "a norm one element short", "blk.0.attn_norm.weight", shaped({63}));
  list.tensor("output_rows", "an output matrix with a row too few", "output.weight",
              shaped({64, 299}));
  list.tensor("embd_rows", "an embedding table with a row too many", "token_embd.weight",
              shaped({64, 301}));
  list.tensor("norm_q8_0", "a quantised norm", "blk.0.attn_norm.weight", typed(TensorType::q8_0));
  list.tensor("type_i32", "a matrix of integers", "blk.0.attn_q.weight", typed(TensorType::i32));
  list.tensor("type_q8_1", "a matrix in a type that is not computed with", "blk.0.attn_q.weight",
              typed(TensorType::q8_1));
  list.add(kLlama, "unknown_tensor", "a tensor that no formula reads",
           [](ModelEdit& m) { m.add("blk.0.attn_sinks.weight", TensorType::f32, {4}); },
           {"attn_sinks"});
  list.add(kLlama, "bias_shape", "a bias of the wrong length",
           [](ModelEdit& m) { m.add("blk.0.attn_q.bias", TensorType::f32, {32}); },
           {"attn_q.bias"});
  const char* const sizes =
      ",embd=64,heads=4,kv_heads=2,head_dim=16,ffn=96,vocab=300,layers=2@q8_0";
  list.add(("synth:qwen2-tiny" + std::string(sizes)).c_str(), "qwen2_no_k_bias",
           "a qwen2 layer without the bias of its keys",
           [](ModelEdit& m) { m.change("blk.1.attn_k.bias", removed()); }, {"blk.1.attn_k.bias"});
  list.add(("synth:qwen3-tiny" + std::string(sizes)).c_str(), "qwen3_q_norm_shape",
           "a qwen3 query norm over all heads",
           [](ModelEdit& m) { m.change("blk.0.attn_q_norm.weight", shaped({64})); },
           {"blk.0.attn_q_norm.weight"});
  list.tensor("nan_scale", "a block whose scale is NaN", "blk.0.attn_q.weight",
              half_at(34 * 3, 0x7E00));
  list.tensor("inf_scale", "a block whose scale is infinite", "blk.1.ffn_up.weight",
              half_at(34 * 191, 0x7C00));
  list.tensor("nan_embedding", "a NaN scale in the last embedding row", "token_embd.weight",
              half_at(34 * (2 * 300 - 1), 0xFE01));
  list.tensor("nan_norm", "a NaN in a norm", "output_norm.weight", float_at(4 * 63, kNan));
  list.tensor("inf_norm", "an infinity in a norm", "blk.1.ffn_norm.weight",
              float_at(0, -kInfinity));
  list.add(
      "synth:llama-tiny,embd=256,heads=4,kv_heads=2,head_dim=16,ffn=256,vocab=300,layers=1@q4_k",
      "inf_dmin", "a K-quant block whose minimum scale is infinite",
      [](ModelEdit& m) { m.change("blk.0.attn_q.weight", half_at(2, 0x7C00)); },
      {"blk.0.attn_q.weight"});
  list.add("synth:llama-tiny,embd=64,heads=4,kv_heads=2,head_dim=16,ffn=96,vocab=300,layers=1@f16",
           "nan_f16", "a NaN among f16 weights",
           [](ModelEdit& m) { m.change("output.weight", half_at(2 * 777, 0x7D55)); },
           {"output.weight"});
}

void add_windows(List& list) {
  list.gemma_key("window_text", "a window that is a string", "gemma3.attention.sliding_window",
                 text("512"));
  list.gemma_key("window_minus_1", "a window of -1", "gemma3.attention.sliding_window", i32(-1));
  list.gemma_key("window_max", "a window of 2^32-1", "gemma3.attention.sliding_window",
                 u32(0xFFFFFFFF));
  list.gemma_key("pattern_short", "a sliding pattern for one layer of two",
                 "gemma3.attention.sliding_window_pattern", list_of_bools({true}));
  list.gemma_key("softcap_nan", "a softcap that is NaN", "gemma3.final_logit_softcapping",
                 f32(kNan));
  list.gemma_key("softcap_negative", "a negative softcap", "gemma3.final_logit_softcapping",
                 f32(-30.0));
  list.key("window_on_llama", "a sliding window where there is none",
           "llama.attention.sliding_window", u32(32));
}

void add_vocabulary(List& list) {
  const std::string tokens = "tokenizer.ggml.tokens";
  list.key("vocab_short", "one token for 300 rows", tokens, list_of_strings({"a"}));
  list.key("vocab_numbers", "tokens that are numbers", tokens,
           list_of_u32(std::vector<uint64_t>(7, 1)));
  list.vocabulary(kLlama, "vocab_no_model", "no tokenizer model", "tokenizer.ggml.model",
                  std::nullopt);
  list.vocabulary(kLlama, "vocab_model_unknown", "a tokenizer model nobody knows",
                  "tokenizer.ggml.model", text("magic"));
  list.vocabulary(kLlama, "vocab_pre_unknown", "a pre-tokenizer nobody knows", "tokenizer.ggml.pre",
                  text("magic"));
  list.vocabulary(kLlama, "vocab_no_merges", "a BPE without merges", "tokenizer.ggml.merges",
                  std::nullopt);
  list.vocabulary(kLlama, "vocab_merges_numbers", "merges that are numbers",
                  "tokenizer.ggml.merges", list_of_u32({1, 2}));
  list.vocabulary(kLlama, "vocab_types_short", "token types for two tokens",
                  "tokenizer.ggml.token_type", list_of_u32({1, 1}));
  list.vocabulary(kLlama, "vocab_twice", "300 tokens of one text", tokens,
                  list_of_strings(std::vector<std::string_view>(300, "same")));
  list.vocabulary(kGemma, "vocab_scores_short", "scores for two tokens", "tokenizer.ggml.scores",
                  list_of_f32({0.0, 0.0}));
  list.vocabulary(kGemma, "vocab_scores_nan", "scores that are NaN", "tokenizer.ggml.scores",
                  list_of_f32(std::vector<double>(300, kNan)));
  list.vocabulary(kLlama, "vocab_bos_text", "a BOS id that is a string",
                  "tokenizer.ggml.bos_token_id", text("1"));
  list.vocabulary(kLlama, "vocab_add_bos_number", "add_bos_token that is a number",
                  "tokenizer.ggml.add_bos_token", u32(1));
}

}  // namespace

std::vector<HostileModel> hostile_models() {
  List list;
  add_architecture(list);
  add_sizes(list);
  add_rotary(list);
  add_tensors(list);
  add_windows(list);
  add_vocabulary(list);
  return list.take();
}

}  // namespace lockstep::test
