#include "draft/model_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "kernels/math/elementary.h"

namespace lockstep::draft {
namespace {

int64_t common_vocabulary(const model::Model& model, int64_t target_n_vocab) {
  const int64_t n_vocab = model.graph().n_vocab;
  if (std::abs(n_vocab - target_n_vocab) > kVocabSizeSlack) {
    throw Error(
        ExitCode::bad_use,
        fmt::format("draft model {} has {} tokens, the target {}; give one with the target's "
                    "vocabulary",
                    model.file().name(), n_vocab, target_n_vocab));
  }
  return std::min(n_vocab, target_n_vocab);
}

state::KvSpec spec_of(const model::Model& model, const ModelSourceOptions& options) {
  const int64_t context =
      options.context > 0 ? options.context : model.hyperparameters().n_ctx_train;
  return model.kv_spec(options.k_type, options.v_type, context);
}

}  // namespace

ModelSource::ModelSource(std::shared_ptr<const model::Model> model,
                         std::shared_ptr<kernels::Backend> backend, int64_t target_n_vocab,
                         ModelSourceOptions options)
    : lane_(model, std::move(backend), spec_of(*model, options), options.kv_max_bytes),
      options_(options),
      n_common_(common_vocabulary(*model, target_n_vocab)),
      sampler_({}, n_common_) {
  const auto& layers = lane_.kv().spec().layers;
  slides_ = std::any_of(layers.begin(), layers.end(),
                        [](const state::KvLayerSpec& layer) { return layer.window > 0; });
}

ModelSource::~ModelSource() = default;

void ModelSource::set_sampling(const sample::Parameters& parameters) {
  sample::Parameters own = parameters;
  std::erase_if(own.logit_bias, [&](const auto& entry) { return entry.first >= n_common_; });
  sampler_ = sample::Sampler(std::move(own), n_common_);
}

std::string ModelSource::file_sha256() const {
  return to_hex(lane_.model().file_sha256());
}

std::string ModelSource::take_fault() {
  return std::exchange(fault_, "");
}

void ModelSource::set_fault(std::string where) {
  if (!std::exchange(faulted_, true)) fault_ = std::move(where);
}

void ModelSource::truncate(int64_t common) {
  agreed_ = std::min(agreed_, common);
}

// Cuts the lane to `position`, or as near below as it can.
void ModelSource::cut(int64_t position) {
  state::KvCache& kv = lane_.kv();
  int64_t kept = kv.reusable(position);
  if (kept < position && before_draft_ && before_draft_size_ <= position) {
    kv.restore(before_draft_);
    kept = before_draft_size_;
  } else {
    kv.truncate(kept);
  }
  tokens_.resize(static_cast<size_t>(kept));
  agreed_ = kept;
}

// Brings the lane to all of the history but its last token. False where it can't: an id that the
// draft model lacks, its context's end, a fault.
bool ModelSource::catch_up(std::span<const int32_t> history) {
  const auto size = static_cast<int64_t>(history.size());
  const auto known = static_cast<int64_t>(tokens_.size());
  while (agreed_ < std::min(size, known) &&
         tokens_[static_cast<size_t>(agreed_)] == history[static_cast<size_t>(agreed_)]) {
    ++agreed_;
  }
  const int64_t wanted = std::min(agreed_, size - 1);
  if (wanted < known) cut(wanted);
  before_draft_.reset();
  if (size > lane_.kv().spec().context) return false;
  const auto missing = history.subspan(tokens_.size());
  const int64_t n_vocab = lane_.n_vocab();
  if (std::any_of(missing.begin(), missing.end(), [&](int32_t id) { return id >= n_vocab; })) {
    return false;
  }
  while (static_cast<int64_t>(tokens_.size()) < size - 1) {
    const int64_t rows = std::min(options_.chunk, size - 1 - static_cast<int64_t>(tokens_.size()));
    const auto chunk = history.subspan(tokens_.size(), static_cast<size_t>(rows));
    const Lane::Outcome outcome = lane_.run(chunk, rows);
    lane_.commit(outcome.good_rows);
    tokens_.insert(tokens_.end(), chunk.begin(),
                   chunk.begin() + static_cast<ptrdiff_t>(outcome.good_rows));
    agreed_ = static_cast<int64_t>(tokens_.size());
    if (outcome.good_rows < rows) {
      set_fault(lane_.describe_fault(outcome.fault_op, lane_.kv().size()));
      return false;
    }
  }
  return true;
}

// Runs the rows that a draft stands for, behind those of the history: all but its last token's.
bool ModelSource::run_draft(std::span<const int32_t> sequence) {
  const auto end = static_cast<int64_t>(sequence.size()) - 1;
  if (end >= lane_.kv().spec().context) return false;
  while (static_cast<int64_t>(tokens_.size()) < end) {
    const int64_t rows = std::min(options_.chunk, end - static_cast<int64_t>(tokens_.size()));
    const auto chunk = sequence.subspan(tokens_.size(), static_cast<size_t>(rows));
    const Lane::Outcome outcome = lane_.run(chunk, rows);
    lane_.commit(outcome.good_rows);
    tokens_.insert(tokens_.end(), chunk.begin(),
                   chunk.begin() + static_cast<ptrdiff_t>(outcome.good_rows));
    // Of tokens that may be wrong: no fault to speak of, but nothing to draft from.
    if (outcome.good_rows < rows) return false;
  }
  return true;
}

Proposal ModelSource::extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                             int n_max) {
  Proposal proposal;
  if (history.empty() || n_max < 1 || !catch_up(history)) return proposal;
  if (std::any_of(draft.begin(), draft.end(),
                  [&](int32_t id) { return id < 0 || id >= lane_.n_vocab(); })) {
    return proposal;
  }
  if (slides_) {
    before_draft_ = lane_.kv().snapshot();
    before_draft_size_ = lane_.kv().size();
  }
  std::vector<int32_t> sequence(history.begin(), history.end());
  sequence.insert(sequence.end(), draft.begin(), draft.end());
  if (!draft.empty() && !run_draft(sequence)) return proposal;
  while (static_cast<int>(proposal.tokens.size()) < n_max) {
    if (lane_.kv().size() >= lane_.kv().spec().context) break;
    const Lane::Outcome outcome = lane_.run(std::span(sequence).last(1), 0);
    lane_.commit(outcome.good_rows);
    if (outcome.good_rows < 1) {
      set_fault(lane_.describe_fault(outcome.fault_op, lane_.kv().size()));
      break;
    }
    tokens_.push_back(sequence.back());
    const auto row = lane_.logits(0).first(static_cast<size_t>(n_common_));
    const auto position = static_cast<int64_t>(sequence.size());
    const sample::Choice choice = sampler_.choose(row, sequence, position);
    if (choice.fault) {
      set_fault(
          fmt::format("{} at position {}", sample::choice_fault_name(choice.reason), position - 1));
      break;
    }
    const float confidence = math::exp(static_cast<float>(sample::logprob_of(row, choice.token)));
    proposal.tokens.push_back(choice.token);
    proposal.confidence.push_back(confidence);
    sequence.push_back(choice.token);
    if (confidence < options_.p_min) break;
  }
  return proposal;
}

}  // namespace lockstep::draft
