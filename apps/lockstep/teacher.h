// Runs given tokens through a model in passes of a chosen width, every row's logits shown: what
// `eval` and the width lines of `prove` need. No sampling, no drafts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/backend.h"
#include "model/model.h"
#include "state/kv_cache.h"

namespace lockstep::app {

class Teacher {
 public:
  Teacher(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
          kernels::KvType k_type, kernels::KvType v_type, int64_t context);

  // position: index of the token that the row would choose.
  using OnRow = std::function<void(int64_t position, std::span<const float> logits)>;
  using OnPass = std::function<void(int64_t rows, const state::KvCache& kv)>;

  // Appends tokens to what was run before. Throws Error(check_failed) naming op, layer and position
  // when the arithmetic faults.
  void run(std::span<const int32_t> tokens, int64_t width, const OnRow& on_row,
           const OnPass& on_pass = {});
  void reset() { kv_.truncate(0); }

 private:
  std::shared_ptr<const model::Model> model_;
  std::shared_ptr<kernels::Backend> backend_;
  state::KvCache kv_;
  std::vector<float> logits_;
};

}  // namespace lockstep::app
