// Hyperparameters as a file's metadata states them: "<architecture>.<name>", each with the values
// this program accepts. Everything refused is Error(bad_file), one line with key, value and what is
// accepted.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "gguf/file.h"
#include "model/model.h"

namespace lockstep::model {

class KeyReader {
 public:
  explicit KeyReader(const gguf::File& file);  // the file has general.architecture

  const gguf::File& file() const { return file_; }
  const std::string& architecture() const { return architecture_; }
  std::string key(std::string_view name) const { return architecture_ + "." + std::string(name); }

  int64_t integer(std::string_view name, int64_t min, int64_t max) const;  // must be there
  std::optional<int64_t> integer_if(std::string_view name, int64_t min, int64_t max) const;
  // A number, or an array of one per layer that are all the same.
  std::optional<int64_t> per_layer_if(std::string_view name, int64_t n_layer, int64_t min,
                                      int64_t max) const;
  int64_t per_layer(std::string_view name, int64_t n_layer, int64_t min, int64_t max) const;
  // min <= value <= max; rounded to binary32.
  std::optional<float> number_if(std::string_view name, double min, double max) const;

  // For keys whose meaning this architecture's forward pass does not have: absent, or one of these
  // values, or refused with `why`.
  void only(std::string_view name, std::initializer_list<double> neutral,
            std::string_view why) const;

  // The same for a key that holds one of several words.
  void only_text(std::string_view name, std::initializer_list<std::string_view> words) const;

  [[noreturn]] void missing(std::string_view name) const;
  [[noreturn]] void refuse(std::string_view name, std::string_view value,
                           std::string_view accepted) const;

 private:
  const gguf::File& file_;
  std::string architecture_;
};

// What every transformer here shares: sizes, heads, eps, rotary parameters (into `rope`, its
// pairing left to the architecture), vocabulary. Refuses what none of them has: experts, other
// causality, scales and caps unknown here.
Hyperparameters read_common(const KeyReader& keys);

// What contradicts the rest of the file and is read by nothing: one line each, which names the
// file.
std::vector<std::string> read_notes(const KeyReader& keys, const Hyperparameters& hp);

// {arch}.rope.*: base, rotated elements, scaling. head_dim and n_ctx_train are read before.
kernels::RopeSpec read_rope(const KeyReader& keys, int64_t head_dim, int64_t n_ctx_train);

}  // namespace lockstep::model
