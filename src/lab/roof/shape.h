// What a pass of a model has to read from memory, as a few numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lab::roof {

// Layers that remember alike.
struct KvGroup {
  int64_t layers = 0;
  int64_t heads = 0;  // of keys and values
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t window = 0;  // positions attended to; 0: all
};

struct Shape {
  double bytes = 0;         // read once a pass whatever its width: all but the routed experts
  double row_bytes = 0;     // read for each row of a pass (an embedding row)
  double expert_bytes = 0;  // of one routed expert in all layers
  int64_t experts = 0;      // of a layer; 0: no mixture
  int64_t used = 0;         // of these, for a token
  std::vector<KvGroup> kv;

  // Bytes of weights that a pass of `width` rows reads when it meets `unique` experts a layer.
  double weight_bytes(int64_t width, double unique) const;
};

// Reads "bytes=17.6e9,kv=16x4x256". Keys, in any order:
//   bytes=N      weights that every pass reads (without routed experts), in bytes; needed
//   row=N        bytes for each row
//   experts=E/k  of E experts a token uses k; expert=N  bytes of one expert over all layers
//   kv=LxHxD     L layers with H heads of keys and values of D elements each; LxHxK/V where keys
//   and
//                values differ; LxHxDwW with a window of W positions; groups joined by +
// Throws Error(bad_use) that names the part.
Shape parse_shape(std::string_view text);

// Bytes of an element in a KV type (llama.cpp's names; ggml's blocks: a scale, and for _1 a
// minimum, of 2 bytes to 32 elements). nullopt for a type that is not known.
struct KvType {
  std::string_view name;
  int64_t block;  // elements
  int64_t block_bytes;
};
std::optional<KvType> find_kv_type(std::string_view name);
std::string kv_type_names();

// Bytes of keys and values of one position. nullopt where a head is no whole number of blocks.
std::optional<int64_t> kv_bytes_per_position(const std::vector<KvGroup>& kv, const KvType& type);
// Bytes of keys and values that a pass reads at a depth: each group up to its window.
std::optional<double> kv_bytes_at(const std::vector<KvGroup>& kv, const KvType& type,
                                  int64_t depth);

// Expected number of different experts that `width` tokens meet when each draws k of E at random:
// E (1 - (1 - k/E)^width).
double expected_experts(int64_t experts, int64_t used, int64_t width);

}  // namespace lockstep::lab::roof
