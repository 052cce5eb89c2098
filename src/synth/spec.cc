#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "synth/synth.h"
#include "synth/tokenizer.h"

namespace lockstep::synth {
namespace {

using gguf::TensorType;

struct Shape {
  const char* name;
  const char* architecture;
  int64_t layers, embd, heads, kv_heads, head_dim, ffn, vocab, ctx, window;
  bool tied;
  RopeScaling rope_scaling;
  double rope_base, rope_factor;
  Tokenizer tokenizer;
};

// The tiny shapes are for tests: rows that K-quants divide, sliding layers on both sides of a
// global one, a window shorter than a page, heads wider than their share of the row (qwen3). The
// others are the published shapes of the models they name.
constexpr Shape kShapes[] = {
    {"llama-tiny", "llama", 2, 256, 8, 2, 32, 512, 512, 2048, 0, false, RopeScaling::none, 1e4, 8,
     Tokenizer::bpe},
    {"llama-135m", "llama", 30, 576, 9, 3, 64, 1536, 49152, 8192, 0, true, RopeScaling::none, 1e5,
     8, Tokenizer::bpe},
    {"llama-1.2b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 0, false, RopeScaling::none,
     5e5, 32, Tokenizer::bpe},
    {"llama-8b", "llama", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 0, false, RopeScaling::none,
     5e5, 8, Tokenizer::bpe},
    {"gemma3-tiny", "gemma3", 7, 256, 4, 2, 64, 512, 512, 2048, 32, true, RopeScaling::none, 1e6, 8,
     Tokenizer::spm},
    {"gemma3-270m", "gemma3", 18, 640, 4, 1, 256, 2048, 262144, 32768, 512, true, RopeScaling::none,
     1e6, 8, Tokenizer::spm},
    {"gemma3-1b", "gemma3", 26, 1152, 4, 1, 256, 6912, 262144, 32768, 512, true, RopeScaling::none,
     1e6, 8, Tokenizer::spm},
    {"gemma3-4b", "gemma3", 34, 2560, 8, 4, 256, 10240, 262144, 131072, 1024, true,
     RopeScaling::linear, 1e6, 8, Tokenizer::spm},
    {"qwen2-tiny", "qwen2", 2, 256, 8, 2, 32, 512, 512, 2048, 0, false, RopeScaling::none, 1e6, 8,
     Tokenizer::qwen},
    {"qwen2-0.5b", "qwen2", 24, 896, 14, 2, 64, 4864, 151936, 32768, 0, true, RopeScaling::none,
     1e6, 4, Tokenizer::qwen},
    {"qwen3-tiny", "qwen3", 2, 256, 4, 2, 128, 512, 512, 2048, 0, true, RopeScaling::none, 1e6, 8,
     Tokenizer::qwen},
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, 0, true, RopeScaling::none,
     1e6, 4, Tokenizer::qwen},
    {"qwen3-32b", "qwen3", 64, 5120, 64, 8, 128, 25600, 151936, 40960, 0, false, RopeScaling::none,
     1e6, 4, Tokenizer::qwen},
};

// Architectures whose shapes are still to come, so that asking for one is answered by name.
constexpr std::string_view kLater[] = {"qwen35", "gemma4", "deepseek4"};

struct TypeChoice {
  const char* name;
  TensorType type, head_type, better_type;
};
constexpr TypeChoice kTypes[] = {
    {"f32", TensorType::f32, TensorType::f32, TensorType::f32},
    {"f16", TensorType::f16, TensorType::f16, TensorType::f16},
    {"bf16", TensorType::bf16, TensorType::bf16, TensorType::bf16},
    {"q4_0", TensorType::q4_0, TensorType::q4_0, TensorType::q4_0},
    {"q4_1", TensorType::q4_1, TensorType::q4_1, TensorType::q4_1},
    {"q5_0", TensorType::q5_0, TensorType::q5_0, TensorType::q5_0},
    {"q5_1", TensorType::q5_1, TensorType::q5_1, TensorType::q5_1},
    {"q8_0", TensorType::q8_0, TensorType::q8_0, TensorType::q8_0},
    {"q2_k", TensorType::q2_k, TensorType::q6_k, TensorType::q2_k},
    {"q3_k", TensorType::q3_k, TensorType::q6_k, TensorType::q3_k},
    {"q4_k", TensorType::q4_k, TensorType::q6_k, TensorType::q4_k},
    {"q4_k_m", TensorType::q4_k, TensorType::q6_k, TensorType::q6_k},
    {"q5_k", TensorType::q5_k, TensorType::q6_k, TensorType::q5_k},
    {"q6_k", TensorType::q6_k, TensorType::q6_k, TensorType::q6_k},
    {"iq4_nl", TensorType::iq4_nl, TensorType::iq4_nl, TensorType::iq4_nl},
    {"iq4_xs", TensorType::iq4_xs, TensorType::q6_k, TensorType::iq4_xs},
    {"mxfp4", TensorType::mxfp4, TensorType::mxfp4, TensorType::mxfp4},
};

constexpr std::pair<RopeScaling, const char*> kScalings[] = {{RopeScaling::none, "none"},
                                                             {RopeScaling::linear, "linear"},
                                                             {RopeScaling::llama3, "llama3"},
                                                             {RopeScaling::yarn, "yarn"},
                                                             {RopeScaling::factors, "factors"}};
constexpr std::pair<Tokenizer, const char*> kTokenizers[] = {
    {Tokenizer::bpe, "bpe"}, {Tokenizer::spm, "spm"}, {Tokenizer::qwen, "qwen"}};

template <typename Value, size_t kCount>
const char* name_of(const std::pair<Value, const char*> (&table)[kCount], Value value) {
  for (const auto& [known, name] : table) {
    if (known == value) return name;
  }
  return "";
}

// The sizes, with the ranges that model files may have.
struct SizeOption {
  const char* name;
  int64_t SynthSpec::*size;
  int64_t Shape::*of_shape;
  int64_t min, max;
};
constexpr SizeOption kSizes[] = {
    {"layers", &SynthSpec::layers, &Shape::layers, 1, 1024},
    {"embd", &SynthSpec::embd, &Shape::embd, 2, 1 << 22},
    {"heads", &SynthSpec::heads, &Shape::heads, 1, 4096},
    {"kv_heads", &SynthSpec::kv_heads, &Shape::kv_heads, 1, 4096},
    {"head_dim", &SynthSpec::head_dim, &Shape::head_dim, 2, 1024},
    {"ffn", &SynthSpec::ffn, &Shape::ffn, 1, 1 << 22},
    {"vocab", &SynthSpec::vocab, &Shape::vocab, 256, 1 << 20},
    {"ctx", &SynthSpec::ctx, &Shape::ctx, 1, (int64_t{1} << 31) - 1},
    {"window", &SynthSpec::window, &Shape::window, 0, (int64_t{1} << 31) - 1},
};

const Shape* find_shape(std::string_view name) {
  const auto* found = std::find_if(std::begin(kShapes), std::end(kShapes),
                                   [&](const Shape& s) { return name == s.name; });
  return found == std::end(kShapes) ? nullptr : found;
}

class SpecParser {
 public:
  explicit SpecParser(std::string_view text) : text_(text) {}

  SynthSpec parse() {
    std::string_view rest = text_;
    if (rest.starts_with("synth:")) rest.remove_prefix(6);
    const size_t at = rest.find('@');
    take_head(rest.substr(0, at));
    if (at != std::string_view::npos) {
      rest.remove_prefix(at + 1);
      const size_t comma = rest.find(',');
      take_type(rest.substr(0, comma));
      if (comma != std::string_view::npos) take_options(rest.substr(comma + 1));
    }
    check();
    return spec_;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ExitCode::bad_use, fmt::format("\"{}\": {}", shorten(text_), what));
  }

  void take_head(std::string_view head) {
    const size_t comma = head.find(',');
    const std::string_view name = head.substr(0, comma);
    const Shape* shape = find_shape(name);
    if (!shape) {
      for (const std::string_view later : kLater) {
        if (name.starts_with(later)) {
          fail(fmt::format("synthetic {} models are not there yet; known: {}", later,
                           fmt::join(shape_names(), ", ")));
        }
      }
      fail(
          fmt::format("no shape \"{}\"; known: {}", shorten(name), fmt::join(shape_names(), ", ")));
    }
    spec_.shape = shape->name;
    spec_.architecture = shape->architecture;
    for (const SizeOption& size : kSizes) spec_.*size.size = shape->*size.of_shape;
    spec_.tied = shape->tied;
    spec_.rope_scaling = shape->rope_scaling;
    spec_.rope_base = shape->rope_base;
    spec_.rope_factor = shape->rope_factor;
    spec_.tokenizer = shape->tokenizer;
    if (comma != std::string_view::npos) take_options(head.substr(comma + 1));
  }

  void take_type(std::string_view name) {
    std::string lower(name);
    for (char& letter : lower)
      letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter + 32) : letter;
    for (const TypeChoice& choice : kTypes) {
      if (lower != choice.name) continue;
      spec_.type_name = choice.name;
      spec_.type = choice.type;
      spec_.head_type = choice.head_type;
      spec_.better_type = choice.better_type;
      return;
    }
    fail(fmt::format("no weight type \"{}\"; known: {}", shorten(name),
                     fmt::join(type_names(), ", ")));
  }

  void take_options(std::string_view options) {
    while (true) {
      const size_t comma = options.find(',');
      const std::string_view option = options.substr(0, comma);
      const size_t equals = option.find('=');
      if (equals == std::string_view::npos) {
        fail(fmt::format("\"{}\" is not key=value; keys: {}", shorten(option),
                         fmt::join(option_names(), ", ")));
      }
      take_option(option.substr(0, equals), option.substr(equals + 1));
      if (comma == std::string_view::npos) return;
      options.remove_prefix(comma + 1);
    }
  }

  template <typename Number>
  Number number(std::string_view key, std::string_view text, Number min, Number max) const {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() ||
        !(value >= min && value <= max)) {
      fail(fmt::format("{}={} must be a number from {} to {}", key, shorten(text), min, max));
    }
    return value;
  }

  template <typename Value, size_t kCount>
  Value choice(std::string_view key, std::string_view text,
               const std::pair<Value, const char*> (&table)[kCount]) const {
    std::vector<const char*> names;
    for (const auto& [value, name] : table) {
      if (text == name) return value;
      names.push_back(name);
    }
    fail(fmt::format("{}={} must be one of: {}", key, shorten(text), fmt::join(names, ", ")));
  }

  void take_option(std::string_view key, std::string_view value) {
    if (std::find(seen_.begin(), seen_.end(), key) != seen_.end())
      fail(fmt::format("{} is given twice; give it once", shorten(key)));
    seen_.push_back(key);
    for (const SizeOption& size : kSizes) {
      if (key == size.name) {
        spec_.*size.size = number<int64_t>(key, value, size.min, size.max);
        return;
      }
    }
    constexpr std::pair<bool, const char*> kFlags[] = {
        {true, "true"}, {false, "false"}, {true, "1"}, {false, "0"}};
    if (key == "tied") {
      spec_.tied = choice(key, value, kFlags);
    } else if (key == "rope_scaling") {
      spec_.rope_scaling = choice(key, value, kScalings);
    } else if (key == "rope_base") {
      spec_.rope_base = number<double>(key, value, 1.001, 1e12);
    } else if (key == "rope_factor") {
      spec_.rope_factor = number<double>(key, value, 1.0, 1e6);
    } else if (key == "tokenizer") {
      spec_.tokenizer = choice(key, value, kTokenizers);
    } else if (key == "seed") {
      spec_.seed = number<uint64_t>(key, value, 0, UINT64_MAX);
    } else {
      fail(fmt::format("no option \"{}\"; known: {}", shorten(key),
                       fmt::join(option_names(), ", ")));
    }
  }

  void check() const {
    if (spec_.heads % spec_.kv_heads != 0) {
      fail(fmt::format("heads={} is not a multiple of kv_heads={}", spec_.heads, spec_.kv_heads));
    }
    if (spec_.head_dim % 2 != 0)
      fail(fmt::format("head_dim={} is odd, and rotation needs pairs", spec_.head_dim));
    if (spec_.window != 0 && spec_.architecture != "gemma3") {
      fail(fmt::format("window={}: {} has no sliding layers", spec_.window, spec_.architecture));
    }
    const bool qwen = spec_.architecture == "qwen2" || spec_.architecture == "qwen3";
    if (qwen && spec_.rope_scaling == RopeScaling::llama3) {
      fail(fmt::format("rope_scaling=llama3: {} has none, linear or yarn", spec_.architecture));
    }
    if (spec_.rope_scaling == RopeScaling::factors && spec_.architecture != "llama") {
      fail(fmt::format("rope_scaling=factors: {} files have no rope_freqs tensor",
                       spec_.architecture));
    }
    if (spec_.vocab < min_vocab(spec_.tokenizer) || spec_.vocab > max_vocab()) {
      fail(fmt::format("vocab={} must be {} to {} for tokenizer={}", spec_.vocab,
                       min_vocab(spec_.tokenizer), max_vocab(),
                       name_of(kTokenizers, spec_.tokenizer)));
    }
  }

  std::string_view text_;
  SynthSpec spec_;
  std::vector<std::string_view> seen_;  // keys
};

}  // namespace

SynthSpec parse_synth(std::string_view text) {
  return SpecParser(text).parse();
}

std::string SynthSpec::text() const {
  const Shape* base = find_shape(shape);
  std::string out = "synth:" + shape;
  for (const SizeOption& size : kSizes) {
    if (this->*size.size != base->*size.of_shape)
      out += fmt::format(",{}={}", size.name, this->*size.size);
  }
  if (tied != base->tied) out += fmt::format(",tied={}", tied);
  if (rope_scaling != base->rope_scaling)
    out += fmt::format(",rope_scaling={}", name_of(kScalings, rope_scaling));
  if (rope_base != base->rope_base) out += fmt::format(",rope_base={}", rope_base);
  if (rope_factor != base->rope_factor) out += fmt::format(",rope_factor={}", rope_factor);
  if (tokenizer != base->tokenizer)
    out += fmt::format(",tokenizer={}", name_of(kTokenizers, tokenizer));
  return out + fmt::format("@{},seed={}", type_name, seed);
}

std::vector<std::string> shape_names() {
  std::vector<std::string> names;
  for (const Shape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const TypeChoice& type : kTypes) names.emplace_back(type.name);
  return names;
}

std::vector<std::string> option_names() {
  std::vector<std::string> names;
  for (const SizeOption& size : kSizes) names.emplace_back(size.name);
  for (const char* name : {"tied", "rope_scaling", "rope_base", "rope_factor", "tokenizer", "seed"})
    names.emplace_back(name);
  return names;
}

}  // namespace lockstep::synth
