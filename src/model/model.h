// A model: hyperparameters, bound tensors, the forward pass as a list of ops. Opened once, shared
// by every session, immutable.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/sha256.h"
#include "gguf/file.h"
#include "kernels/graph.h"
#include "state/kv_cache.h"

namespace lockstep::model {

// Where each comes from, its default and its range: docs/models.md.
struct Hyperparameters {
  std::string architecture;
  int64_t n_vocab = 0, n_ctx_train = 0, n_layer = 0, n_embd = 0, n_ff = 0;
  int64_t n_head = 0, n_head_kv = 0, head_dim = 0;
  float rms_eps = 0;
  kernels::RopeSpec rope;      // global layers; factors come with the tensors
  kernels::RopeSpec rope_swa;  // sliding layers (gemma3)
  int64_t window = 0;          // visible positions of a sliding layer; 0: there is none
  std::vector<bool> sliding;   // [n_layer]
  float embedding_scale = 1.0f;
  float attention_scale = 0.0f;
  float logits_softcap = 0.0f;  // 0: none
  bool tied_embeddings = false;
};

// The most positions a context may have: rotary angles are exact enough below it (law: Rotary).
inline constexpr int64_t kMaxContext = int64_t{1} << 21;

class Model {
 public:
  // Binds every tensor by name, checks each type and shape, and that every scale is finite. Throws
  // Error(bad_file), one line that names the file, the key or tensor, its value and what is
  // accepted: unknown architectures and weight types, absurd or contradictory hyperparameters,
  // tensors that are missing, misshapen, or there without being part of the forward pass.
  static std::shared_ptr<const Model> load(gguf::File file);

  const gguf::File& file() const;
  const Hyperparameters& hyperparameters() const;
  const kernels::Graph& graph() const;
  // What is wrong with the file and does no harm: one line each, which names the file.
  const std::vector<std::string>& notes() const;
  const std::deque<kernels::Weight>& weights() const;  // matrices; addresses never change

  // Layers for a KvCache of this model. Throws Error(bad_use) for a context outside
  // 1 … kMaxContext.
  state::KvSpec kv_spec(state::KvType k_type, state::KvType v_type, int64_t context) const;

  // Bytes of weights read by one pass of `rows` rows that wants logits: every matrix, norm and bias
  // once, and one embedding row for each row.
  int64_t weight_bytes_per_pass(int64_t rows) const;
  // KV bytes that one row reads at `depth` remembered positions: depth + 1 positions (its own
  // included), on sliding layers at most the window.
  int64_t kv_bytes_read(const state::KvSpec& spec, int64_t depth) const;

  // SHA-256 over the file's bytes (all parts in order). Computed on first call, then kept; any
  // thread may call.
  const Digest& file_sha256() const;
  bool synthetic() const;  // made by synth

  ~Model();

 private:
  struct Contents;
  explicit Model(gguf::File file);
  std::unique_ptr<Contents> contents_;
};

}  // namespace lockstep::model
