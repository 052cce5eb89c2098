#include "forward64.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numbers>
#include <stdexcept>
#include <string>

#include "quant/dequantize.h"

namespace lockstep::model {
namespace {

using Row = std::vector<double>;

class Reference {
 public:
  explicit Reference(const gguf::File& file)
      : file_(file), arch_(*file.string("general.architecture")) {}

  std::vector<Row> run(std::span<const int32_t> tokens);

 private:
  double number(const std::string& name, double otherwise) const {
    const auto value = file_.number(arch_ + "." + name);
    return value ? *value : otherwise;
  }
  bool has(const std::string& name) const { return file_.find_tensor(name) != nullptr; }
  Row elements(const gguf::Tensor& tensor, int64_t row) const {
    const int64_t n = tensor.ne[0];
    std::vector<float> values(static_cast<size_t>(n));
    const auto row_bytes = static_cast<int64_t>(tensor.data.size()) / tensor.rows();
    quant::dequantize_row(tensor.type, tensor.data.data() + row * row_bytes, values.data(), n);
    return Row(values.begin(), values.end());
  }
  Row vector(const std::string& name) const { return elements(*file_.find_tensor(name), 0); }

  // Rows [first, first + n) of the matrix, times every x; plus the bias of those rows.
  std::vector<Row> linear(const std::vector<Row>& x, const std::string& name, int64_t first = 0,
                          int64_t n = -1) const {
    const gguf::Tensor& w = *file_.find_tensor(name + ".weight");
    if (n < 0) n = w.ne[1];
    std::vector<Row> y(x.size(), Row(static_cast<size_t>(n)));
    for (int64_t out = 0; out < n; ++out) {
      const Row row = elements(w, first + out);
      for (size_t t = 0; t < x.size(); ++t) {
        double sum = 0;
        for (size_t i = 0; i < row.size(); ++i) sum += row[i] * x[t][i];
        y[t][static_cast<size_t>(out)] = sum;
      }
    }
    if (has(name + ".bias")) add_bias(y, name + ".bias", first);
    return y;
  }
  void add_bias(std::vector<Row>& rows, const std::string& name, int64_t first = 0) const {
    const Row bias = vector(name);
    for (Row& row : rows) {
      for (size_t i = 0; i < row.size(); ++i) row[i] += bias[static_cast<size_t>(first) + i];
    }
  }

  // In groups of weight.size() elements.
  void norm(std::vector<Row>& rows, const std::string& name) const {
    const Row weight = vector(name);
    const double eps = number("attention.layer_norm_rms_epsilon", 0);
    for (Row& row : rows) {
      for (size_t begin = 0; begin < row.size(); begin += weight.size()) {
        double square = 0;
        for (size_t i = 0; i < weight.size(); ++i) square += row[begin + i] * row[begin + i];
        const double scale = 1 / std::sqrt(square / static_cast<double>(weight.size()) + eps);
        for (size_t i = 0; i < weight.size(); ++i) row[begin + i] *= scale * weight[i];
      }
    }
  }

  struct Rotation {
    Row frequency;
    double magnitude = 1;
  };
  Rotation rotation(bool sliding, int64_t n_rot) const;
  void rotate(std::vector<Row>& rows, int64_t head_dim, int64_t n_rot,
              const Rotation& rotation) const;
  std::vector<bool> sliding_layers(int64_t n_layer, int64_t window) const;

  const gguf::File& file_;
  std::string arch_;
};

// As transformers' modeling_rope_utils computes inverse frequencies.
Reference::Rotation Reference::rotation(bool sliding, int64_t n_rot) const {
  Rotation result;
  const double dim = static_cast<double>(n_rot);
  const double base =
      sliding ? number("rope.freq_base_swa", 10000) : number("rope.freq_base", 10000);
  for (int64_t i = 0; i < n_rot / 2; ++i) {
    result.frequency.push_back(1 / std::pow(base, 2 * static_cast<double>(i) / dim));
  }
  if (sliding) return result;

  const bool factors = arch_ == "llama" && has("rope_freqs.weight");
  if (factors) {
    const Row divisor = vector("rope_freqs.weight");
    for (size_t i = 0; i < result.frequency.size(); ++i) result.frequency[i] /= divisor[i];
  }
  const std::string kind = file_.string(arch_ + ".rope.scaling.type").value_or("linear");
  const double factor = number("rope.scaling.factor", number("rope.scale_linear", 1));
  const double original =
      number("rope.scaling.original_context_length", number("context_length", 0));
  if (kind == "linear") {
    for (double& f : result.frequency) f /= factor;
  } else if (kind == "llama3" && !factors) {
    const double low = number("rope.scaling.low_freq_factor", 1),
                 high = number("rope.scaling.high_freq_factor", 4);
    for (double& f : result.frequency) {
      const double wavelength = 2 * std::numbers::pi / f;
      if (wavelength > original / low) {
        f /= factor;
      } else if (wavelength >= original / high) {
        const double smooth = (original / wavelength - low) / (high - low);
        f = (1 - smooth) * f / factor + smooth * f;
      }
    }
  } else if (kind == "yarn") {
    const auto correction = [&](double turns) {
      return dim * std::log(original / (turns * 2 * std::numbers::pi)) / (2 * std::log(base));
    };
    const double low =
        std::max(0.0, std::floor(correction(number("rope.scaling.yarn_beta_fast", 32))));
    double high =
        std::min(dim - 1, std::ceil(correction(number("rope.scaling.yarn_beta_slow", 1))));
    if (low == high) high += 0.001;
    const double ext = number("rope.scaling.yarn_ext_factor", 1);
    for (size_t i = 0; i < result.frequency.size(); ++i) {
      const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
      const double keep = (1 - ramp) * ext;
      result.frequency[i] = result.frequency[i] / factor * (1 - keep) + result.frequency[i] * keep;
    }
    result.magnitude = number("rope.scaling.attn_factor", 1);
    if (ext != 0 && factor > 1) result.magnitude *= 1 + 0.1 * std::log(factor);
  }
  return result;
}

void Reference::rotate(std::vector<Row>& rows, int64_t head_dim, int64_t n_rot,
                       const Rotation& rotation) const {
  const bool halves = arch_ != "llama";  // where the converter leaves q and k as trained
  for (size_t position = 0; position < rows.size(); ++position) {
    Row& row = rows[position];
    for (size_t head = 0; head < row.size(); head += static_cast<size_t>(head_dim)) {
      for (size_t i = 0; i < static_cast<size_t>(n_rot / 2); ++i) {
        const double angle = static_cast<double>(position) * rotation.frequency[i];
        const double c = std::cos(angle) * rotation.magnitude,
                     s = std::sin(angle) * rotation.magnitude;
        double& a = row[head + (halves ? i : 2 * i)];
        double& b = row[head + (halves ? i + static_cast<size_t>(n_rot / 2) : 2 * i + 1)];
        const double rotated = a * c - b * s;
        b = a * s + b * c;
        a = rotated;
      }
    }
  }
}

std::vector<bool> Reference::sliding_layers(int64_t n_layer, int64_t window) const {
  std::vector<bool> sliding(static_cast<size_t>(n_layer), false);
  if (arch_ != "gemma3" || window == 0) return sliding;
  const gguf::Value* value = file_.find(arch_ + ".attention.sliding_window_pattern");
  if (value != nullptr && value->type == gguf::ValueType::array) {
    return std::get<std::vector<bool>>(
        file_.array(arch_ + ".attention.sliding_window_pattern")->elements);
  }
  const auto period = static_cast<int64_t>(number("attention.sliding_window_pattern", 6));
  for (int64_t i = 0; i < n_layer; ++i) sliding[static_cast<size_t>(i)] = (i + 1) % period != 0;
  return sliding;
}

std::vector<Row> Reference::run(std::span<const int32_t> tokens) {
  const bool gemma = arch_ == "gemma3";
  const auto integer = [&](const char* name) { return static_cast<int64_t>(number(name, 0)); };
  const int64_t n_layer = integer("block_count"), n_head = integer("attention.head_count");
  const auto n_head_kv =
      static_cast<int64_t>(number("attention.head_count_kv", static_cast<double>(n_head)));
  const int64_t n_embd = integer("embedding_length");
  const auto head_dim =
      static_cast<int64_t>(number("attention.key_length", static_cast<double>(n_embd / n_head)));
  const auto n_rot =
      static_cast<int64_t>(number("rope.dimension_count", static_cast<double>(head_dim)));
  const int64_t window = integer("attention.sliding_window");
  const double scale =
      1 / std::sqrt(static_cast<double>(gemma && n_layer == 62 ? n_embd / n_head : head_dim));
  const std::vector<bool> sliding = sliding_layers(n_layer, window);

  std::vector<Row> h;
  for (const int32_t token : tokens) {
    h.push_back(elements(*file_.find_tensor("token_embd.weight"), token));
    if (gemma) {
      for (double& value : h.back()) value *= std::sqrt(static_cast<double>(n_embd));
    }
  }
  const auto add = [&](const std::vector<Row>& x) {
    for (size_t t = 0; t < h.size(); ++t) {
      for (size_t i = 0; i < h[t].size(); ++i) h[t][i] += x[t][i];
    }
  };
  for (int64_t layer = 0; layer < n_layer; ++layer) {
    const std::string b = "blk." + std::to_string(layer) + ".";
    const bool local = sliding[static_cast<size_t>(layer)];
    std::vector<Row> x = h;
    norm(x, b + "attn_norm.weight");
    const int64_t n_q = n_head * head_dim, n_kv = n_head_kv * head_dim;
    const bool fused = has(b + "attn_qkv.weight");
    std::vector<Row> q = fused ? linear(x, b + "attn_qkv", 0, n_q) : linear(x, b + "attn_q");
    std::vector<Row> k = fused ? linear(x, b + "attn_qkv", n_q, n_kv) : linear(x, b + "attn_k");
    std::vector<Row> v =
        fused ? linear(x, b + "attn_qkv", n_q + n_kv, n_kv) : linear(x, b + "attn_v");
    if (fused && has(b + "attn_q.bias")) {  // fused weights with the biases apart
      add_bias(q, b + "attn_q.bias");
      add_bias(k, b + "attn_k.bias");
      add_bias(v, b + "attn_v.bias");
    }
    if (gemma || arch_ == "qwen3") {
      norm(q, b + "attn_q_norm.weight");
      norm(k, b + "attn_k_norm.weight");
    }
    const Rotation turn = rotation(local, n_rot);
    rotate(q, head_dim, n_rot, turn);
    rotate(k, head_dim, n_rot, turn);

    std::vector<Row> heads(h.size(), Row(static_cast<size_t>(n_q)));
    for (size_t t = 0; t < h.size(); ++t) {
      const int64_t first = local ? std::max<int64_t>(0, static_cast<int64_t>(t) - window + 1) : 0;
      for (int64_t head = 0; head < n_head; ++head) {
        const auto at = static_cast<size_t>(head * head_dim);
        const auto kv_at = static_cast<size_t>(head / (n_head / n_head_kv) * head_dim);
        Row p;
        for (auto j = static_cast<size_t>(first); j <= t; ++j) {
          double score = 0;
          for (size_t i = 0; i < static_cast<size_t>(head_dim); ++i)
            score += q[t][at + i] * k[j][kv_at + i];
          p.push_back(score * scale);
        }
        const double most = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& value : p) sum += value = std::exp(value - most);
        for (size_t j = 0; j < p.size(); ++j) {
          for (size_t i = 0; i < static_cast<size_t>(head_dim); ++i) {
            heads[t][at + i] += p[j] / sum * v[static_cast<size_t>(first) + j][kv_at + i];
          }
        }
      }
    }
    x = linear(heads, b + "attn_output");
    if (gemma) norm(x, b + "post_attention_norm.weight");
    add(x);

    x = h;
    norm(x, b + "ffn_norm.weight");
    std::vector<Row> gate = linear(x, b + "ffn_gate");
    const std::vector<Row> up = linear(x, b + "ffn_up");
    for (size_t t = 0; t < h.size(); ++t) {
      for (size_t i = 0; i < gate[t].size(); ++i) {
        const double g = gate[t][i];
        const double inner = std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g);
        gate[t][i] = (gemma ? 0.5 * g * (1 + std::tanh(inner)) : g / (1 + std::exp(-g))) * up[t][i];
      }
    }
    x = linear(gate, b + "ffn_down");
    if (gemma) norm(x, b + "post_ffw_norm.weight");
    add(x);
  }
  norm(h, "output_norm.weight");
  std::vector<Row> logits = linear(h, has("output.weight") ? "output" : "token_embd");
  const double cap = gemma ? number("final_logit_softcapping", 0) : 0;
  if (cap != 0) {
    for (Row& row : logits) {
      for (double& value : row) value = cap * std::tanh(value / cap);
    }
  }
  return logits;
}

}  // namespace

std::vector<std::vector<double>> forward64(const gguf::File& file,
                                           std::span<const int32_t> tokens) {
  return Reference(file).run(tokens);
}

}  // namespace lockstep::model
