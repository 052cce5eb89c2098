#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "gguf/writer.h"
#include "synth/synth.h"
#include "synth/tokenizer.h"
#include "synth/weights.h"

namespace lockstep::synth {
namespace {

using gguf::TensorType;

TensorType fitting(TensorType type, int64_t row) {
  const auto fits = [&] { return row % gguf::type_info(type).block_elements == 0; };
  if (fits()) return type;
  switch (type) {
    case TensorType::q2_k:
    case TensorType::q3_k:
    case TensorType::iq4_xs:
      type = TensorType::iq4_nl;
      break;
    case TensorType::q4_k:
      type = TensorType::q5_0;
      break;
    case TensorType::q5_k:
      type = TensorType::q5_1;
      break;
    case TensorType::q6_k:
      type = TensorType::q8_0;
      break;
    default:
      break;
  }
  return fits() ? type : TensorType::f16;
}

class Builder {
 public:
  explicit Builder(const SynthSpec& spec) : spec_(spec) {}

  gguf::Writer build() {
    add_metadata();
    add_tokenizer(writer_, spec_.tokenizer, spec_.vocab);
    add_tensors();
    return std::move(writer_);
  }

 private:
  std::string key(const char* name) const { return spec_.architecture + "." + name; }
  void u32(const char* name, int64_t value) {
    writer_.add_u32(key(name), static_cast<uint32_t>(value));
  }
  void f32(const char* name, double value) {
    writer_.add_f32(key(name), static_cast<float>(value));
  }

  void add_metadata() {
    writer_.add_string("general.architecture", spec_.architecture);
    writer_.add_string("general.type", "model");
    writer_.add_string("general.name", fmt::format("synthetic {} (random weights)", spec_.shape));
    writer_.add_u32("general.quantization_version", 2);
    writer_.add_bool("lockstep.synthetic", true);
    writer_.add_string("lockstep.synthetic.spec", spec_.text());
    u32("block_count", spec_.layers);
    u32("context_length", spec_.ctx);
    u32("embedding_length", spec_.embd);
    u32("feed_forward_length", spec_.ffn);
    u32("attention.head_count", spec_.heads);
    u32("attention.head_count_kv", spec_.kv_heads);
    u32("attention.key_length", spec_.head_dim);
    u32("attention.value_length", spec_.head_dim);
    u32("rope.dimension_count", spec_.head_dim);
    u32("vocab_size", spec_.vocab);
    f32("attention.layer_norm_rms_epsilon", spec_.architecture == "llama" ? 1e-5 : 1e-6);
    f32("rope.freq_base", spec_.rope_base);
    if (spec_.window > 0) u32("attention.sliding_window", spec_.window);
    add_rope_scaling();
  }

  void add_rope_scaling() {
    const auto original = std::max<int64_t>(
        1, static_cast<int64_t>(static_cast<double>(spec_.ctx) / spec_.rope_factor));
    switch (spec_.rope_scaling) {
      case RopeScaling::none:
      case RopeScaling::factors:
        return;
      case RopeScaling::linear:
        writer_.add_string(key("rope.scaling.type"), "linear");
        break;
      case RopeScaling::llama3:
        writer_.add_string(key("rope.scaling.type"), "llama3");
        u32("rope.scaling.original_context_length", original);
        f32("rope.scaling.low_freq_factor", 1.0);
        f32("rope.scaling.high_freq_factor", 4.0);
        break;
      case RopeScaling::yarn:
        writer_.add_string(key("rope.scaling.type"), "yarn");
        u32("rope.scaling.original_context_length", original);
        break;
    }
    f32("rope.scaling.factor", spec_.rope_factor);
  }

  void matrix(const std::string& name, TensorType wanted, int64_t n_in, int64_t n_out,
              double spread) {
    const TensorType type = fitting(wanted, n_in);
    writer_.add_tensor(
        name, type, {n_in, n_out},
        [type, seed = spec_.seed, stream = stream_of(name), width = static_cast<float>(spread)](
            std::span<std::byte> out) { fill_weights(type, seed, stream, width, out); });
  }
  void norm(const std::string& name, int64_t n, double mean = 1.0) {
    writer_.add_tensor(
        name, TensorType::f32, {n},
        [seed = spec_.seed, stream = stream_of(name), value = static_cast<float>(mean)](
            std::span<std::byte> out) { fill_norm(seed, stream, value, out); });
  }

  // Of half the size of what they are added to, so that leaving one out shows.
  void bias(const std::string& name, int64_t n) {
    writer_.add_tensor(name, TensorType::f32, {n},
                       [seed = spec_.seed, stream = stream_of(name)](std::span<std::byte> out) {
                         fill_weights(TensorType::f32, seed, stream, 0.5f, out);
                       });
  }

  // Which layers keep attn_v and ffn_down at the better type: the first and last eighth and every
  // third between, as llama.cpp's Q4_K_M.
  TensorType better(int64_t layer) const {
    const int64_t n = spec_.layers;
    const bool more = layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
    return more ? spec_.better_type : spec_.type;
  }

  // Matrices that read the residual stream have spread 1/sqrt(n_in), so that a normed row gives a
  // row of about unit size; those that write into it are smaller by sqrt(2·layers), so that the
  // stream stays of that order however deep the model.
  void add_tensors() {
    const SynthSpec& s = spec_;
    const bool gemma = s.architecture == "gemma3", qwen2 = s.architecture == "qwen2",
               qwen3 = s.architecture == "qwen3";
    const auto spread = [](int64_t n_in) { return 1.0 / std::sqrt(static_cast<double>(n_in)); };
    const double into_stream = gemma ? 1.0 : spread(2 * s.layers);  // gemma3 norms what it adds
    // Where the output matrix is the embedding table, a token's own row in the stream votes for
    // that token again; branches of this size keep that to one vote among many.
    const double branch =
        std::max(1.0, std::sqrt(static_cast<double>(s.embd) / static_cast<double>(2 * s.layers)));
    const int64_t n_q = s.heads * s.head_dim, n_kv = s.kv_heads * s.head_dim;

    matrix("token_embd.weight", s.tied ? s.head_type : s.type, s.embd, s.vocab, spread(s.embd));
    if (s.rope_scaling == RopeScaling::factors) add_rope_factors();
    for (int64_t i = 0; i < s.layers; ++i) {
      const std::string block = fmt::format("blk.{}.", i);
      norm(block + "attn_norm.weight", s.embd);
      matrix(block + "attn_q.weight", s.type, s.embd, n_q, spread(s.embd));
      matrix(block + "attn_k.weight", s.type, s.embd, n_kv, spread(s.embd));
      matrix(block + "attn_v.weight", better(i), s.embd, n_kv, spread(s.embd));
      if (qwen2) {
        bias(block + "attn_q.bias", n_q);
        bias(block + "attn_k.bias", n_kv);
        bias(block + "attn_v.bias", n_kv);
      }
      if (gemma || qwen3) {
        // Without its norm a head is of unit size already; qwen3's make it larger, as real ones do.
        const double size = qwen3 ? 1.5 : 1.0;
        norm(block + "attn_q_norm.weight", s.head_dim, size);
        norm(block + "attn_k_norm.weight", s.head_dim, size);
      }
      matrix(block + "attn_output.weight", s.type, n_q, s.embd, spread(n_q) * into_stream);
      if (gemma) norm(block + "post_attention_norm.weight", s.embd, branch);
      norm(block + "ffn_norm.weight", s.embd);
      matrix(block + "ffn_gate.weight", s.type, s.embd, s.ffn, spread(s.embd));
      matrix(block + "ffn_up.weight", s.type, s.embd, s.ffn, spread(s.embd));
      matrix(block + "ffn_down.weight", better(i), s.ffn, s.embd, spread(s.ffn) * into_stream);
      if (gemma) norm(block + "post_ffw_norm.weight", s.embd, branch);
    }
    norm("output_norm.weight", s.embd);
    if (!s.tied) matrix("output.weight", s.head_type, s.embd, s.vocab, spread(s.embd));
  }

  void add_rope_factors() {
    const int64_t pairs = spec_.head_dim / 2;
    writer_.add_tensor("rope_freqs.weight", TensorType::f32, {pairs},
                       [pairs, last = spec_.rope_factor](std::span<std::byte> out) {
                         for (int64_t i = 0; i < pairs; ++i) {
                           const double share =
                               pairs == 1 ? 0.0
                                          : static_cast<double>(i) / static_cast<double>(pairs - 1);
                           const auto factor = static_cast<float>(1.0 + (last - 1.0) * share);
                           std::memcpy(out.data() + 4 * i, &factor, 4);
                         }
                       });
  }

  SynthSpec spec_;
  gguf::Writer writer_;
};

}  // namespace

uint64_t total_bytes(const SynthSpec& spec) {
  return Builder(spec).build().total_bytes();
}

gguf::File make_in_memory(const SynthSpec& spec) {
  return gguf::File::from_memory(
      std::make_shared<const std::vector<std::byte>>(Builder(spec).build().to_memory()),
      spec.text());
}

void write(const SynthSpec& spec, const std::filesystem::path& path,
           const std::function<void(uint64_t)>& progress) {
  Builder(spec).build().write_file(path, progress);
}

}  // namespace lockstep::synth
