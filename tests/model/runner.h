// Drives a model through a backend as a session does, without one: append, run, commit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/backend.h"
#include "model/model.h"
#include "state/kv_cache.h"

namespace lockstep::model {

class Runner {
 public:
  Runner(std::shared_ptr<const Model> model, std::shared_ptr<kernels::Backend> backend,
         state::KvType k_type, state::KvType v_type, int64_t context)
      : model_(std::move(model)),
        backend_(std::move(backend)),
        cache_(model_->kv_spec(k_type, v_type, context), nullptr) {}

  state::KvCache& cache() { return cache_; }

  // One pass over tokens, of which the first `keep` are committed (all: -1). Rows of logits from
  // first_logits on, or what faulted, by op name.
  struct Result {
    std::vector<std::vector<float>> logits;
    std::vector<std::pair<int64_t, std::string>> faults;  // row, op
  };
  Result pass(std::span<const int32_t> tokens, int64_t first_logits = 0, int64_t keep = -1) {
    const auto rows = static_cast<int64_t>(tokens.size());
    const int64_t n_vocab = model_->hyperparameters().n_vocab;
    kernels::Pass pass;
    kernels::PassSegment segment;
    segment.tokens = tokens;
    segment.first_position = cache_.size();
    segment.kv = cache_.append(rows);
    segment.first_logits_row = first_logits;
    pass.segments.push_back(segment);
    std::vector<float> memory(static_cast<size_t>((rows - first_logits) * n_vocab));
    pass.logits = memory;
    backend_->run(model_->graph(), pass);
    cache_.commit(keep < 0 ? rows : keep);
    Result result;
    for (int64_t row = 0; row < rows - first_logits; ++row) {
      const auto begin = memory.begin() + row * n_vocab;
      result.logits.emplace_back(begin, begin + n_vocab);
    }
    for (const kernels::PassFault& fault : pass.faults) {
      result.faults.emplace_back(fault.row,
                                 model_->graph().ops[static_cast<size_t>(fault.op)].name);
    }
    return result;
  }

  // The whole history in passes of `chunk` rows; logits of every row.
  std::vector<std::vector<float>> history(std::span<const int32_t> tokens, size_t chunk) {
    std::vector<std::vector<float>> all;
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      Result result = pass(tokens.subspan(begin, std::min(chunk, tokens.size() - begin)));
      if (!result.faults.empty()) throw std::runtime_error("fault in " + result.faults[0].second);
      for (auto& row : result.logits) all.push_back(std::move(row));
    }
    return all;
  }

 private:
  std::shared_ptr<const Model> model_;
  std::shared_ptr<kernels::Backend> backend_;
  state::KvCache cache_;
};

}  // namespace lockstep::model
