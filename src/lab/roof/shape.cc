#include "lab/roof/shape.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "base/error.h"

namespace lockstep::lab::roof {
namespace {

constexpr KvType kTypes[] = {{"f32", 1, 4},    {"f16", 1, 2},    {"bf16", 1, 2},
                             {"q8_0", 32, 34}, {"q5_1", 32, 24}, {"q5_0", 32, 22},
                             {"q4_1", 32, 20}, {"q4_0", 32, 18}, {"iq4_nl", 32, 18}};

[[noreturn]] void refuse(std::string_view part, std::string_view why) {
  throw Error(ExitCode::bad_use, fmt::format("shape: {}: {}", shorten(part), why));
}

double read_bytes(std::string_view part, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !(value >= 0 && value <= 1e16)) {
    refuse(part, "not a number of bytes, as 17.6e9");
  }
  return value;
}

// Takes a whole number of 1 to 2^40 off the front.
int64_t take_count(std::string_view part, std::string_view& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || value < 1 || value > (int64_t{1} << 40)) {
    refuse(part, "not a whole number above 0 where one belongs; KV is LxHxD, as 16x4x256");
  }
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

void take(std::string_view part, std::string_view& text, char c) {
  if (!text.starts_with(c))
    refuse(part, "KV is LxHxD, as 16x4x256, with w1024 behind it for a window");
  text.remove_prefix(1);
}

KvGroup read_group(std::string_view part) {
  KvGroup group;
  std::string_view text = part;
  group.layers = take_count(part, text);
  take(part, text, 'x');
  group.heads = take_count(part, text);
  take(part, text, 'x');
  group.key_dim = group.value_dim = take_count(part, text);
  if (text.starts_with('/')) {
    text.remove_prefix(1);
    group.value_dim = take_count(part, text);
  }
  if (text.starts_with('w')) {
    text.remove_prefix(1);
    group.window = take_count(part, text);
  }
  if (!text.empty()) refuse(part, "KV is LxHxD, as 16x4x256, with w1024 behind it for a window");
  if (static_cast<double>(group.layers) * static_cast<double>(group.heads) *
          static_cast<double>(group.key_dim + group.value_dim) >
      1e12) {
    refuse(part, "more than 1e12 elements a position");
  }
  return group;
}

}  // namespace

double Shape::weight_bytes(int64_t width, double unique) const {
  return bytes + row_bytes * static_cast<double>(width) + expert_bytes * (experts > 0 ? unique : 0);
}

Shape parse_shape(std::string_view text) {
  Shape shape;
  bool has_bytes = false;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos)
      refuse(part, "not KEY=VALUE; keys are bytes, row, experts, expert, kv");
    const std::string_view key = part.substr(0, equals);
    std::string_view value = part.substr(equals + 1);
    if (key == "bytes") {
      shape.bytes = read_bytes(part, value);
      has_bytes = true;
    } else if (key == "row") {
      shape.row_bytes = read_bytes(part, value);
    } else if (key == "expert") {
      shape.expert_bytes = read_bytes(part, value);
    } else if (key == "experts") {
      shape.experts = take_count(part, value);
      if (!value.starts_with('/')) refuse(part, "how many of how many: experts=128/8");
      value.remove_prefix(1);
      shape.used = take_count(part, value);
      if (!value.empty() || shape.used > shape.experts)
        refuse(part, "how many of how many: experts=128/8");
    } else if (key == "kv") {
      while (!value.empty()) {
        const std::string_view group = value.substr(0, value.find('+'));
        value.remove_prefix(std::min(value.size(), group.size() + 1));
        if (shape.kv.size() == 64) refuse(group, "more than 64 groups of layers");
        shape.kv.push_back(read_group(group));
      }
    } else {
      refuse(part, "no such key; there are bytes, row, experts, expert, kv");
    }
  }
  if (!has_bytes || shape.bytes <= 0)
    refuse("bytes", "missing; give the bytes of weights that a pass reads");
  if ((shape.experts > 0) != (shape.expert_bytes > 0)) {
    refuse("experts", "experts=E/k and expert=BYTES belong together");
  }
  return shape;
}

std::optional<KvType> find_kv_type(std::string_view name) {
  for (const KvType& type : kTypes) {
    if (type.name == name) return type;
  }
  return std::nullopt;
}

std::string kv_type_names() {
  std::string out;
  for (const KvType& type : kTypes) out += fmt::format("{}{}", out.empty() ? "" : ", ", type.name);
  return out;
}

std::optional<int64_t> kv_bytes_per_position(const std::vector<KvGroup>& kv, const KvType& type) {
  int64_t bytes = 0;
  for (const KvGroup& group : kv) {
    if (group.key_dim % type.block != 0 || group.value_dim % type.block != 0) return std::nullopt;
    bytes += group.layers * group.heads * (group.key_dim + group.value_dim) / type.block *
             type.block_bytes;
  }
  return bytes;
}

std::optional<double> kv_bytes_at(const std::vector<KvGroup>& kv, const KvType& type,
                                  int64_t depth) {
  double bytes = 0;
  for (const KvGroup& group : kv) {
    const auto position = kv_bytes_per_position({group}, type);
    if (!position) return std::nullopt;
    const int64_t seen = group.window > 0 ? std::min(group.window, depth) : depth;
    bytes += static_cast<double>(*position) * static_cast<double>(seen);
  }
  return bytes;
}

double expected_experts(int64_t experts, int64_t used, int64_t width) {
  const auto e = static_cast<double>(experts);
  return e * (1 - std::pow(1 - static_cast<double>(used) / e, static_cast<double>(width)));
}

}  // namespace lockstep::lab::roof
