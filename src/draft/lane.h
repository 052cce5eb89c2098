// One sequence on one backend: its KV state, and the passes that extend it. What a session and a
// draft model have in common.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "kernels/logits_buffer.h"
#include "model/model.h"
#include "state/kv_cache.h"

namespace lockstep::draft {

class Lane {
 public:
  // kv_max_bytes 0: no limit. Throws as Model::kv_spec and KvCache do.
  Lane(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
       const state::KvSpec& spec, int64_t kv_max_bytes = 0);
  // KV pages from a pool that others may use too.
  Lane(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
       const state::KvSpec& spec, std::shared_ptr<state::PagePool> pool);

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
  // is pending. greatest_wanted > 0: of each such row no more than that many of the greatest logits
  // are needed, and greatest() may have them in place of logits().
  Outcome run(std::span<const int32_t> tokens, int64_t first_logits_row,
              kernels::Plant* plant = nullptr, int64_t greatest_wanted = 0);
  // What a lane brings to a pass that several share: arguments as of run().
  struct Part {
    Lane* lane = nullptr;
    std::span<const int32_t> tokens;
    int64_t first_logits_row = 0;
    int64_t greatest_wanted = 0;
  };
  // run() for several lanes in one pass, with a segment for each; what each gets is what run()
  // would have given it. The lanes are different ones over the same model and backend
  // (std::logic_error). Their logits() are in `logits`, which grows as needed: valid until it is
  // used for the next pass. On an exception nothing is pending in any of them.
  static std::vector<Outcome> run_together(std::span<const Part> parts,
                                           kernels::LogitsBuffer& logits,
                                           kernels::Plant* plant = nullptr);
  void commit(int64_t rows) { kv_.commit(rows); }
  // Of a row of the lane's last run, row >= its first_logits_row: all logits from some bound on, at
  // least as many as were asked for, by ascending id. None: logits() has the row.
  std::span<const kernels::Candidate> greatest(int64_t row) const;
  // Raw logits [n_vocab] of such a row, of which greatest() has none.
  std::span<const float> logits(int64_t row) const;

  // Where a fault is, in words: op, layer, position.
  std::string describe_fault(int op, int64_t position) const;

 private:
  std::shared_ptr<const model::Model> model_;
  std::shared_ptr<kernels::Backend> backend_;
  state::KvCache kv_;
  int64_t n_vocab_;
  kernels::LogitsBuffer own_logits_;  // of run()
  std::span<const float> logits_;     // of the last run, wherever they are
  std::vector<std::vector<kernels::Candidate>> greatest_;
  int64_t first_logits_row_ = 0;
};

}  // namespace lockstep::draft
