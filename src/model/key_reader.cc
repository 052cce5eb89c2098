#include "model/key_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace lockstep::model {
namespace {

// Above what any model has, below what could overflow a product of two of them.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxWidth = int64_t{1} << 22;
constexpr int64_t kMaxHeads = 4096;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxCount = (int64_t{1} << 31) - 1;
// The least of what must be more than 0, still a normal binary32.
constexpr double kLeast = 1e-30;

std::string text_of(const gguf::Value& value) {
  if (const auto* v = std::get_if<uint64_t>(&value.data)) return std::to_string(*v);
  if (const auto* v = std::get_if<int64_t>(&value.data)) return std::to_string(*v);
  if (const auto* v = std::get_if<double>(&value.data)) return fmt::format("{}", *v);
  if (const auto* v = std::get_if<bool>(&value.data)) return *v ? "true" : "false";
  if (const auto* v = std::get_if<std::string>(&value.data))
    return fmt::format("\"{}\"", escape(*v, 100));
  return "an array";
}

}  // namespace

KeyReader::KeyReader(const gguf::File& file)
    : file_(file), architecture_(file.string("general.architecture").value_or("")) {}

int64_t KeyReader::integer(std::string_view name, int64_t min, int64_t max) const {
  const auto value = integer_if(name, min, max);
  if (!value) missing(name);
  return *value;
}

std::optional<int64_t> KeyReader::integer_if(std::string_view name, int64_t min,
                                             int64_t max) const {
  return file_.integer(key(name), min, max);
}

std::optional<int64_t> KeyReader::per_layer_if(std::string_view name, int64_t n_layer, int64_t min,
                                               int64_t max) const {
  const gguf::Value* value = file_.find(key(name));
  if (value == nullptr || value->type != gguf::ValueType::array) return integer_if(name, min, max);
  const auto array = file_.array(key(name));
  const auto check = [&](const auto& numbers) -> int64_t {
    if (static_cast<int64_t>(numbers.size()) != n_layer) {
      refuse(name, fmt::format("an array of {}", numbers.size()),
             fmt::format("one number, or one for each of the {} layers", n_layer));
    }
    for (const auto number : numbers) {
      if (number != numbers.front()) {
        refuse(name, fmt::format("an array with {} and {} in it", numbers.front(), number),
               "the same number for every layer");
      }
    }
    if (std::cmp_less(numbers.front(), min) || std::cmp_greater(numbers.front(), max)) {
      refuse(name, fmt::format("an array of {}", numbers.front()),
             fmt::format("{} to {}", min, max));
    }
    return static_cast<int64_t>(numbers.front());
  };
  if (const auto* numbers = std::get_if<std::vector<uint64_t>>(&array->elements))
    return check(*numbers);
  if (const auto* numbers = std::get_if<std::vector<int64_t>>(&array->elements))
    return check(*numbers);
  refuse(name, "an array of something else", "integers");
}

int64_t KeyReader::per_layer(std::string_view name, int64_t n_layer, int64_t min,
                             int64_t max) const {
  const auto value = per_layer_if(name, n_layer, min, max);
  if (!value) missing(name);
  return *value;
}

std::optional<float> KeyReader::number_if(std::string_view name, double min, double max) const {
  const auto value = file_.number(key(name));
  if (!value) return std::nullopt;
  if (!(*value >= min && *value <= max)) {
    refuse(name, fmt::format("{}", *value), fmt::format("{} to {}", min, max));
  }
  return static_cast<float>(*value);
}

void KeyReader::only(std::string_view name, std::initializer_list<double> neutral,
                     std::string_view why) const {
  const gguf::Value* value = file_.find(key(name));
  if (value == nullptr) return;
  double number = std::nan("");
  if (const auto* v = std::get_if<uint64_t>(&value->data)) number = static_cast<double>(*v);
  if (const auto* v = std::get_if<int64_t>(&value->data)) number = static_cast<double>(*v);
  if (const auto* v = std::get_if<double>(&value->data)) number = *v;
  if (const auto* v = std::get_if<bool>(&value->data)) number = *v ? 1.0 : 0.0;
  if (std::find(neutral.begin(), neutral.end(), number) != neutral.end()) return;
  refuse(name, text_of(*value), why);
}

void KeyReader::only_text(std::string_view name,
                          std::initializer_list<std::string_view> words) const {
  const auto value = file_.string(key(name));
  if (!value || std::find(words.begin(), words.end(), *value) != words.end()) return;
  refuse(name, fmt::format("\"{}\"", escape(*value, 100)),
         fmt::format("\"{}\"", fmt::join(words, "\", \"")));
}

void KeyReader::missing(std::string_view name) const {
  file_.fail(fmt::format(
      "metadata key \"{}\" is missing; architecture {} needs it; convert the model again",
      key(name), architecture_));
}

void KeyReader::refuse(std::string_view name, std::string_view value,
                       std::string_view accepted) const {
  file_.fail(fmt::format("metadata key \"{}\" is {}; accepted: {}", key(name), value, accepted));
}

kernels::RopeSpec read_rope(const KeyReader& keys, int64_t head_dim, int64_t n_ctx_train) {
  using Scaling = kernels::RopeSpec::Scaling;
  kernels::RopeSpec rope;
  const int64_t n_rot = keys.integer_if("rope.dimension_count", 2, head_dim).value_or(head_dim);
  if (n_rot % 2 != 0) {
    keys.refuse("rope.dimension_count", std::to_string(n_rot),
                "an even number (pairs are rotated)");
  }
  rope.n_rot = static_cast<int32_t>(n_rot);
  rope.base = keys.number_if("rope.freq_base", 1.0 + 1e-6, 1e12).value_or(10000.0f);

  const std::string kind = keys.file().string(keys.key("rope.scaling.type")).value_or("linear");
  const std::string_view known = "\"none\", \"linear\", \"llama3\", \"yarn\"";
  auto factor = keys.number_if("rope.scaling.factor", kLeast, 1e6);
  if (!factor) factor = keys.number_if("rope.scale_linear", kLeast, 1e6);  // its name until 2023
  rope.linear_factor = factor.value_or(1.0f);
  rope.original_context =
      keys.integer_if("rope.scaling.original_context_length", 0, kMaxCount).value_or(0);
  if (rope.original_context == 0) rope.original_context = n_ctx_train;
  if (kind == "none") {
    rope.linear_factor = 1.0f;
  } else if (kind == "linear") {
    rope.scaling = rope.linear_factor == 1.0f ? Scaling::none : Scaling::linear;
  } else if (kind == "llama3") {
    rope.scaling = Scaling::llama3;
    rope.low_freq_factor =
        keys.number_if("rope.scaling.low_freq_factor", kLeast, 1e6).value_or(1.0f);
    rope.high_freq_factor =
        keys.number_if("rope.scaling.high_freq_factor", kLeast, 1e6).value_or(4.0f);
    if (!(rope.low_freq_factor < rope.high_freq_factor)) {
      keys.refuse("rope.scaling.high_freq_factor", fmt::format("{}", rope.high_freq_factor),
                  fmt::format("more than low_freq_factor, {}", rope.low_freq_factor));
    }
  } else if (kind == "yarn") {
    rope.scaling = Scaling::yarn;
    rope.ext_factor = keys.number_if("rope.scaling.yarn_ext_factor", 0.0, 1.0).value_or(1.0f);
    rope.attn_factor = keys.number_if("rope.scaling.attn_factor", kLeast, 100.0).value_or(1.0f);
    rope.beta_fast = keys.number_if("rope.scaling.yarn_beta_fast", kLeast, 1e6).value_or(32.0f);
    rope.beta_slow = keys.number_if("rope.scaling.yarn_beta_slow", kLeast, 1e6).value_or(1.0f);
  } else {
    keys.refuse("rope.scaling.type", fmt::format("\"{}\"", escape(kind, 100)), known);
  }
  if (rope.scaling != Scaling::yarn) {
    keys.only("rope.scaling.attn_factor", {1.0}, "1 (only yarn scales the rotation)");
  }
  if (rope.scaling == Scaling::llama3 && !factor) keys.missing("rope.scaling.factor");
  // Engines read these two differently; what the file means by them is not settled.
  keys.only("rope.scaling.yarn_attn_factor", {1.0}, "1 (use rope.scaling.attn_factor)");
  keys.only("rope.scaling.yarn_log_multiplier", {0.0}, "0");
  return rope;
}

Hyperparameters read_common(const KeyReader& keys) {
  Hyperparameters hp;
  hp.architecture = keys.architecture();
  hp.n_layer = keys.integer("block_count", 1, kMaxLayers);
  hp.n_ctx_train = keys.integer("context_length", 1, kMaxCount);
  hp.n_embd = keys.integer("embedding_length", 1, kMaxWidth);

  keys.only("expert_count", {0.0}, "0 (mixture of experts is not known to this program yet)");
  keys.only("nextn_predict_layers", {0.0}, "0 (next-token prediction layers are not known yet)");
  keys.only("attention.causal", {1.0}, "true (this program only generates)");
  for (const char* name : {"logit_scale", "embedding_scale", "residual_scale", "attention.scale"}) {
    keys.only(name, {0.0, 1.0}, "nothing (this architecture has no such scale)");
  }
  for (const char* name :
       {"attention.clamp_kqv", "attention.max_alibi_bias", "attn_logit_softcapping"}) {
    keys.only(name, {0.0}, "0 (this architecture has none)");
  }

  hp.n_ff = keys.per_layer("feed_forward_length", hp.n_layer, 1, kMaxWidth);
  hp.n_head = keys.per_layer("attention.head_count", hp.n_layer, 1, kMaxHeads);
  hp.n_head_kv =
      keys.per_layer_if("attention.head_count_kv", hp.n_layer, 1, kMaxHeads).value_or(hp.n_head);
  if (hp.n_head % hp.n_head_kv != 0) {
    keys.refuse("attention.head_count_kv", std::to_string(hp.n_head_kv),
                fmt::format("a divisor of attention.head_count, {}", hp.n_head));
  }

  const auto key_length = keys.integer_if("attention.key_length", 1, kMaxHeadDim);
  if (!key_length && hp.n_embd % hp.n_head != 0) {
    keys.refuse(
        "attention.head_count", std::to_string(hp.n_head),
        fmt::format("a divisor of embedding_length, {}, or attention.key_length must be there",
                    hp.n_embd));
  }
  hp.head_dim = key_length.value_or(hp.n_embd / hp.n_head);
  if (hp.head_dim > kMaxHeadDim) {
    keys.refuse("attention.head_count", std::to_string(hp.n_head),
                fmt::format("heads of at most {} elements, here {}", kMaxHeadDim, hp.head_dim));
  }
  const int64_t value_length =
      keys.integer_if("attention.value_length", 1, kMaxHeadDim).value_or(hp.n_embd / hp.n_head);
  if (value_length != hp.head_dim) {
    keys.refuse("attention.value_length", std::to_string(value_length),
                fmt::format("the same as attention.key_length, {}", hp.head_dim));
  }

  const auto eps = keys.number_if("attention.layer_norm_rms_epsilon", kLeast, 1.0);
  if (!eps) keys.missing("attention.layer_norm_rms_epsilon");
  hp.rms_eps = *eps;
  hp.rope = read_rope(keys, hp.head_dim, hp.n_ctx_train);
  hp.sliding.assign(static_cast<size_t>(hp.n_layer), false);
  hp.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(hp.head_dim)));

  // The table's rows are the vocabulary; the tokenizer must know exactly those.
  const gguf::Tensor* table = keys.file().find_tensor("token_embd.weight");
  if (table == nullptr)
    keys.file().fail("tensor \"token_embd.weight\" is missing; convert the model again");
  hp.n_vocab = table->ne[1];
  if (hp.n_vocab > kMaxCount) {
    keys.file().fail(fmt::format("tensor \"token_embd.weight\" has {} rows; token ids have 31 bits",
                                 hp.n_vocab));
  }
  if (const auto tokens = keys.file().array("tokenizer.ggml.tokens")) {
    if (static_cast<int64_t>(tokens->size()) != hp.n_vocab) {
      keys.file().fail(
          fmt::format("metadata key \"tokenizer.ggml.tokens\" has {} tokens and tensor "
                      "\"token_embd.weight\" {} rows; accepted: the same number",
                      tokens->size(), hp.n_vocab));
    }
  } else if (const auto vocab_size = keys.integer_if("vocab_size", 1, kMaxCount);
             vocab_size && *vocab_size != hp.n_vocab) {
    keys.refuse("vocab_size", std::to_string(*vocab_size),
                fmt::format("the number of rows of token_embd.weight, {}", hp.n_vocab));
  }
  return hp;
}

std::vector<std::string> read_notes(const KeyReader& keys, const Hyperparameters& hp) {
  std::vector<std::string> notes;
  const auto vocab_size = keys.integer_if("vocab_size", std::numeric_limits<int64_t>::min(),
                                          std::numeric_limits<int64_t>::max());
  if (vocab_size && *vocab_size != hp.n_vocab) {  // without tokens, read_common has refused it
    notes.push_back(
        fmt::format("{}: metadata key \"{}\" is {}, and there are {} tokens; the key is ignored",
                    keys.file().name(), keys.key("vocab_size"), *vocab_size, hp.n_vocab));
  }
  return notes;
}

}  // namespace lockstep::model
