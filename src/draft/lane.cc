#include "draft/lane.h"

#include <fmt/format.h>

#include <stdexcept>

namespace lockstep::draft {

Lane::Lane(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
           const state::KvSpec& spec, int64_t kv_max_bytes)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      kv_(spec, state::make_page_pool(kv_max_bytes, backend_->page_memory())),
      n_vocab_(model_->graph().n_vocab) {}

Lane::Outcome Lane::run(std::span<const int32_t> tokens, int64_t first_logits_row,
                        kernels::Plant* plant) {
  const auto rows = static_cast<int64_t>(tokens.size());
  const int64_t first_position = kv_.size();
  const auto wanted = static_cast<size_t>((rows - first_logits_row) * n_vocab_);
  // Only grown: filling with zeros what the pass writes anyway would cost a sweep of memory.
  if (logits_.size() < wanted) logits_.resize(wanted);
  first_logits_row_ = first_logits_row;
  kernels::Pass pass;
  pass.segments.push_back({.tokens = tokens,
                           .first_position = first_position,
                           .kv = kv_.append(rows),
                           .first_logits_row = first_logits_row});
  pass.plant = plant;
  pass.logits = std::span(logits_).first(wanted);
  try {
    backend_->run(model_->graph(), pass);
  } catch (...) {
    kv_.commit(0);
    throw;
  }
  Outcome outcome{.good_rows = rows};
  for (const kernels::PassFault& fault : pass.faults) {
    if (fault.row < outcome.good_rows) outcome = {fault.row, fault.op};
  }
  return outcome;
}

std::span<const float> Lane::logits(int64_t row) const {
  if (row < first_logits_row_) throw std::logic_error("Lane::logits: a row without logits");
  return std::span(logits_).subspan(static_cast<size_t>((row - first_logits_row_) * n_vocab_),
                                    static_cast<size_t>(n_vocab_));
}

std::string Lane::describe_fault(int op, int64_t position) const {
  const kernels::Op& faulted = model_->graph().ops[static_cast<size_t>(op)];
  if (faulted.layer < 0) {
    return fmt::format("non-finite value in {} at position {}", faulted.name, position);
  }
  return fmt::format("non-finite value in {} of layer {} at position {}", faulted.name,
                     faulted.layer, position);
}

}  // namespace lockstep::draft
