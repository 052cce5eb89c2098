// A model: hyperparameters, bound tensors, the forward pass as a list of ops. Opened once, shared by
// every session, immutable.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "gguf/file.h"
#include "kernels/graph.h"
#include "state/kv_cache.h"

namespace lockstep::model {

// Source of each key: docs/models.md.
struct Hyperparameters {
  std::string architecture;
  int64_t n_vocab = 0, n_ctx_train = 0, n_layer = 0, n_embd = 0, n_ff = 0;
  int64_t n_head = 0, n_head_kv = 0, head_dim = 0, n_rot = 0;
  float rms_eps = 0;
  float rope_base = 10000.0f;         // global layers
  float rope_base_swa = 10000.0f;     // sliding layers (gemma3)
  int64_t window = 0;                 // 0: no sliding layers
  std::vector<bool> sliding;          // [n_layer]
  float embedding_scale = 1.0f;
  float attention_scale = 0.0f;
  float attention_softcap = 0.0f;     // 0: none
  float logits_softcap = 0.0f;
  bool tied_embeddings = false;
};

class Model {
 public:
  // Binds every tensor by name, checks each type and shape, refuses what is missing, unknown
  // architectures and weight types, absurd or zero hyperparameters, non-finite scales — each with
  // one line. source_name stands in messages.
  static std::shared_ptr<const Model> load(gguf::File file);

  const gguf::File& file() const;
  const Hyperparameters& hyperparameters() const;
  const kernels::Graph& graph() const;
  const std::vector<kernels::Weight>& weights() const;

  // Layers for a KvCache of this model.
  state::KvSpec kv_spec(state::KvType k_type, state::KvType v_type, int64_t context) const;

  // Bytes of weights read by one pass of `rows` rows (embedding rows counted singly).
  int64_t weight_bytes_per_pass(int64_t rows) const;
  // KV bytes read by one row at `depth` remembered positions.
  int64_t kv_bytes_read(const state::KvSpec& spec, int64_t depth) const;

  // SHA-256 over the file's bytes (all parts in order). Computed on first call, then kept.
  const Digest& file_sha256() const;
  bool synthetic() const;      // made by synth

 private:
  struct Contents;
  std::shared_ptr<Contents> contents_;
};

}  // namespace lockstep::model
