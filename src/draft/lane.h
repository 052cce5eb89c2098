// One sequence on one backend: its KV state, and the passes that extend it. What a session and a
// draft model have in common.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "model/model.h"
#include "state/kv_cache.h"

namespace lockstep::draft {

class Lane {
 public:
  // kv_max_bytes 0: no limit. Throws as Model::kv_spec and KvCache do.
  Lane(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
       const state::KvSpec& spec, int64_t kv_max_bytes = 0);

  const model::Model& model() const { return *model_; }
  const kernels::Backend& backend() const { return *backend_; }
  state::KvCache& kv() { return kv_; }
  const state::KvCache& kv() const { return kv_; }
  int64_t n_vocab() const { return n_vocab_; }

  struct Outcome {
    int64_t good_rows = 0;  // rows before the first that faulted; all, where none did
    int fault_op = -1;      // what that row faulted in (index in the graph's ops)
  };
  // Runs tokens at positions kv().size() and on; rows from first_logits_row on leave logits. The
  // rows stay pending: commit() those that are to stay before the next run. On an exception nothing
  // is pending.
  Outcome run(std::span<const int32_t> tokens, int64_t first_logits_row,
              kernels::Plant* plant = nullptr);
  void commit(int64_t rows) { kv_.commit(rows); }
  // Of a row of the last run, row >= its first_logits_row: raw logits [n_vocab].
  std::span<const float> logits(int64_t row) const;

  // Where a fault is, in words: op, layer, position.
  std::string describe_fault(int op, int64_t position) const;

 private:
  std::shared_ptr<const model::Model> model_;
  std::shared_ptr<kernels::Backend> backend_;
  state::KvCache kv_;
  int64_t n_vocab_;
  std::vector<float> logits_;
  int64_t first_logits_row_ = 0;
};

}  // namespace lockstep::draft
