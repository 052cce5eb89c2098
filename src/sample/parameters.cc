#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <unordered_set>

#include "base/error.h"
#include "sample/sampler.h"

namespace lockstep::sample {
namespace {

// Wide enough for any use, narrow enough that no penalty can leave binary32's range by itself.
constexpr float kGreatestPenalty = 1e6f;

struct StageName {
  std::string_view name;
  Stage stage;
};
// llama.cpp's names; "top-k" and "topk" are read as "top_k".
constexpr StageName kStages[] = {
    {"penalties", Stage::penalties},
    {"top_k", Stage::top_k},
    {"top_p", Stage::top_p},
    {"min_p", Stage::min_p},
    {"temperature", Stage::temperature},
    {"temp", Stage::temperature},
    {"nucleus", Stage::top_p},
};
constexpr std::string_view kElsewhere[] = {"dry", "top_n_sigma", "typ_p",      "typical_p", "typ",
                                           "xtc", "infill",      "adaptive_p", "mirostat"};

std::string without(std::string_view text, std::string_view dropped) {
  std::string out;
  for (const char c : text) {
    if (dropped.find(c) == std::string_view::npos) {
      out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

bool same_name(std::string_view a, std::string_view b) {
  return without(a, "_-") == without(b, "_-");
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ExitCode::bad_use, message);
}

void check_finite(const char* name, float value) {
  if (!std::isfinite(value))
    refuse(fmt::format("{} is {}; it must be a finite number", name, value));
}

void check_penalty(const char* name, float value) {
  if (!(std::fabs(value) <= kGreatestPenalty)) {
    refuse(fmt::format("{} is {}; it must lie in [-1e6, 1e6]", name, value));
  }
}

}  // namespace

const char* stage_name(Stage stage) {
  for (const StageName& s : kStages) {
    if (s.stage == stage) return s.name.data();
  }
  return "";
}

std::vector<Stage> default_stages() {
  return {Stage::penalties, Stage::top_k, Stage::top_p, Stage::min_p, Stage::temperature};
}

bool Parameters::has_penalties() const {
  return repeat_last_n != 0 &&
         (repeat_penalty != 1.0f || frequency_penalty != 0.0f || presence_penalty != 0.0f);
}

void Parameters::validate(int64_t n_vocab) const {
  check_finite("temperature", temperature);
  check_finite("top_p", top_p);
  check_finite("min_p", min_p);
  if (repeat_last_n < -1) {
    refuse(fmt::format("repeat_last_n is {}; it must be -1 (the whole context), 0 (off) or more",
                       repeat_last_n));
  }
  if (!(repeat_penalty > 0.0f) || !std::isfinite(repeat_penalty)) {
    refuse(fmt::format("repeat_penalty is {}; it must be finite and greater than 0 (1: off)",
                       repeat_penalty));
  }
  check_penalty("frequency_penalty", frequency_penalty);
  check_penalty("presence_penalty", presence_penalty);
  std::unordered_set<int32_t> removed;
  for (const auto& [id, bias] : logit_bias) {
    if (id < 0 || id >= n_vocab) {
      refuse(fmt::format("logit_bias names token {}; the vocabulary has ids 0 to {}", id,
                         n_vocab - 1));
    }
    if (std::isnan(bias) || bias == INFINITY) {
      refuse(fmt::format(
          "logit_bias of token {} is {}; it must be finite, or -inf to remove the token", id,
          bias));
    }
    if (std::isinf(bias)) removed.insert(id);
  }
  if (static_cast<int64_t>(removed.size()) >= n_vocab) {
    refuse("logit_bias removes every token of the vocabulary; leave at least one");
  }
  for (size_t i = 0; i < stages.size(); ++i) {
    if (std::find(stages.begin(), stages.begin() + static_cast<ptrdiff_t>(i), stages[i]) !=
        stages.begin() + static_cast<ptrdiff_t>(i)) {
      refuse(fmt::format("samplers: {} stands twice; each may stand once", stage_name(stages[i])));
    }
  }
}

std::vector<Stage> parse_stages(std::string_view text) {
  std::vector<Stage> stages;
  if (text.empty()) return stages;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string_view name = text.substr(begin, end - begin);
    begin = end + 1;
    const auto known = std::find_if(std::begin(kStages), std::end(kStages),
                                    [&](const StageName& s) { return same_name(s.name, name); });
    if (known == std::end(kStages)) {
      const bool elsewhere = std::any_of(std::begin(kElsewhere), std::end(kElsewhere),
                                         [&](std::string_view n) { return same_name(n, name); });
      refuse(fmt::format(
          "samplers: \"{}\" is {}; leave it out (known: penalties, top_k, top_p, min_p, "
          "temperature, separated by ';')",
          shorten(name), elsewhere ? "not supported" : "not a sampler"));
    }
    if (std::find(stages.begin(), stages.end(), known->stage) != stages.end()) {
      refuse(
          fmt::format("samplers: {} stands twice; each may stand once", stage_name(known->stage)));
    }
    stages.push_back(known->stage);
  }
  return stages;
}

std::optional<float> parse_parameter(std::string_view text) {
  double value = 0.0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return static_cast<float>(value);
}

}  // namespace lockstep::sample
