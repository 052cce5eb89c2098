#include "draft/lane.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

namespace lockstep::draft {

Lane::Lane(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
           const state::KvSpec& spec, int64_t kv_max_bytes)
    : Lane(std::move(model), backend, spec,
           state::make_page_pool(kv_max_bytes, backend->page_memory())) {}

Lane::Lane(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
           const state::KvSpec& spec, std::shared_ptr<state::PagePool> pool)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      kv_(spec, std::move(pool)),
      n_vocab_(model_->graph().n_vocab) {}

Lane::Outcome Lane::run(std::span<const int32_t> tokens, int64_t first_logits_row,
                        kernels::Plant* plant, int64_t greatest_wanted) {
  const Part part{this, tokens, first_logits_row, greatest_wanted};
  return run_together({&part, 1}, own_logits_, plant).front();
}

std::vector<Lane::Outcome> Lane::run_together(std::span<const Part> parts,
                                              kernels::LogitsBuffer& logits,
                                              kernels::Plant* plant) {
  std::vector<Outcome> outcomes;
  if (parts.empty()) return outcomes;
  const model::Model* model = parts.front().lane->model_.get();
  kernels::Backend& backend = *parts.front().lane->backend_;
  size_t wanted = 0;
  kernels::Pass pass;
  bool whole_rows = false;
  for (const Part& part : parts) {
    if (part.lane->model_.get() != model || part.lane->backend_.get() != &backend) {
      throw std::logic_error("Lane::run_together: another model or backend");
    }
    const size_t rows = part.tokens.size() - static_cast<size_t>(part.first_logits_row);
    wanted += rows * static_cast<size_t>(part.lane->n_vocab_);
    if (rows == 0) continue;
    if (part.greatest_wanted <= 0) whole_rows = true;
    pass.greatest_wanted = std::max(pass.greatest_wanted, part.greatest_wanted);
  }
  if (whole_rows) pass.greatest_wanted = 0;
  pass.plant = plant;
  pass.logits = logits.first(backend, wanted);
  size_t appended = 0;
  try {
    for (const Part& part : parts) {
      pass.segments.push_back({.tokens = part.tokens,
                               .first_position = part.lane->kv_.size(),
                               .kv = part.lane->kv_.append(std::ssize(part.tokens)),
                               .first_logits_row = part.first_logits_row});
      ++appended;
    }
    backend.run(model->graph(), pass);
  } catch (...) {
    for (const Part& part : parts.first(appended)) part.lane->kv_.commit(0);
    throw;
  }
  // Rows of the pass: those of the first segment, then those of the next.
  int64_t first_row = 0;
  size_t first_logit = 0;
  auto greatest = pass.greatest.begin();
  for (const Part& part : parts) {
    Lane& lane = *part.lane;
    const int64_t rows = std::ssize(part.tokens);
    const auto size = static_cast<size_t>((rows - part.first_logits_row) * lane.n_vocab_);
    lane.first_logits_row_ = part.first_logits_row;
    lane.logits_ = pass.logits.subspan(first_logit, size);
    lane.greatest_.clear();
    if (!pass.greatest.empty()) {
      const auto end = greatest + (rows - part.first_logits_row);
      lane.greatest_.assign(std::move_iterator(greatest), std::move_iterator(end));
      greatest = end;
    }
    Outcome outcome{.good_rows = rows};
    for (const kernels::PassFault& fault : pass.faults) {
      const int64_t row = fault.row - first_row;
      if (row >= 0 && row < outcome.good_rows) outcome = {row, fault.op};
    }
    outcomes.push_back(outcome);
    first_row += rows;
    first_logit += size;
  }
  return outcomes;
}

std::span<const kernels::Candidate> Lane::greatest(int64_t row) const {
  if (row < first_logits_row_) throw std::logic_error("Lane::greatest: a row without logits");
  if (greatest_.empty()) return {};
  return greatest_[static_cast<size_t>(row - first_logits_row_)];
}

std::span<const float> Lane::logits(int64_t row) const {
  if (!greatest(row).empty()) throw std::logic_error("Lane::logits: only the greatest are there");
  return logits_.subspan(static_cast<size_t>((row - first_logits_row_) * n_vocab_),
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
