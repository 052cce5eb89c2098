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

// Drafts are no longer: rows beyond a chunk that a pass, or a snapshot's pages, may cover.
constexpr int64_t kMostDrafted = 64;

}  // namespace

state::KvSpec kv_spec_of(const model::Model& model, const ModelSourceOptions& options) {
  const int64_t context =
      options.context > 0 ? options.context : model.hyperparameters().n_ctx_train;
  return model.kv_spec(options.k_type, options.v_type, context);
}

ModelSource::ModelSource(std::shared_ptr<const model::Model> model,
                         std::shared_ptr<kernels::Backend> backend, int64_t target_n_vocab,
                         ModelSourceOptions options)
    : lane_(model, backend, kv_spec_of(*model, options),
            options.kv_pool ? options.kv_pool
                            : state::make_page_pool(options.kv_max_bytes, backend->page_memory())),
      options_(std::move(options)),
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

// Brings the lane to all of the history but its last token, or as far as it may at once. It cannot
// where there is an id that the draft model lacks, at its context's end, after a fault.
ModelSource::Read ModelSource::catch_up(std::span<const int32_t> history) {
  const auto size = static_cast<int64_t>(history.size());
  const auto known = static_cast<int64_t>(tokens_.size());
  while (agreed_ < std::min(size, known) &&
         tokens_[static_cast<size_t>(agreed_)] == history[static_cast<size_t>(agreed_)]) {
    ++agreed_;
  }
  const int64_t wanted = std::min(agreed_, size - 1);
  if (wanted < known) cut(wanted);
  before_draft_.reset();
  if (size > lane_.kv().spec().context) return Read::cannot;
  const auto missing = history.subspan(tokens_.size());
  const int64_t n_vocab = lane_.n_vocab();
  if (std::any_of(missing.begin(), missing.end(), [&](int32_t id) { return id >= n_vocab; })) {
    return Read::cannot;
  }
  if (options_.prefixes && std::ssize(missing) > kernels::kPagePositions) {
    const auto match = options_.prefixes->match(history.first(static_cast<size_t>(size - 1)), true);
    if (match.positions > std::ssize(tokens_)) {
      options_.prefixes->give(match, lane_.kv());
      tokens_.assign(history.begin(), history.begin() + static_cast<ptrdiff_t>(match.positions));
      agreed_ = match.positions;
    }
  }
  int64_t left = options_.read_at_most > 0 ? options_.read_at_most : size;
  while (static_cast<int64_t>(tokens_.size()) < size - 1) {
    const int64_t rows =
        std::min({options_.chunk, left, size - 1 - static_cast<int64_t>(tokens_.size())});
    if (rows < 1) return Read::behind;
    left -= rows;
    const auto chunk = history.subspan(tokens_.size(), static_cast<size_t>(rows));
    const Lane::Outcome outcome = lane_.run(chunk, rows);
    lane_.commit(outcome.good_rows);
    tokens_.insert(tokens_.end(), chunk.begin(),
                   chunk.begin() + static_cast<ptrdiff_t>(outcome.good_rows));
    agreed_ = static_cast<int64_t>(tokens_.size());
    keep_prefix(false);
    if (outcome.good_rows < rows) {
      set_fault(lane_.describe_fault(outcome.fault_op, lane_.kv().size()));
      return Read::cannot;
    }
  }
  return Read::all;
}

// Only while the lane holds what the history is known to have: what is drafted may be wrong, and is
// of no use to others.
void ModelSource::keep_prefix(bool tail) {
  if (!options_.prefixes || tokens_.empty()) return;
  options_.prefixes->keep(tokens_, lane_.kv(), tail);
}

bool ModelSource::read(std::span<const int32_t> history) {
  // catch_up() would cut what it knows beyond.
  const size_t n = std::min(tokens_.size(), history.size());
  if (n + 1 >= history.size() &&
      std::equal(tokens_.begin(), tokens_.begin() + static_cast<ptrdiff_t>(n), history.begin())) {
    return true;
  }
  return catch_up(history) != Read::cannot;
}

void ModelSource::release() {
  cut(agreed_);
  before_draft_.reset();
  keep_prefix(true);
  cut(0);
}

// A pass that reads takes a chunk; one that drafts leaves a snapshot of what was before it, and
// with it a copy of the last page.
state::Claim ModelSource::claim(int64_t tokens) const {
  const state::KvCache& kv = lane_.kv();
  const int64_t positions = std::min(tokens, kv.spec().context);
  state::Claim claim = kv.claim(positions, options_.chunk + kMostDrafted);
  claim.to_come += kv_bytes_beyond();
  return claim;
}

int64_t ModelSource::kv_bytes_per_position() const {
  return state::bytes_per_position(lane_.kv().spec());
}

int64_t ModelSource::kv_bytes_beyond() const {
  return slides_ ? kernels::kPagePositions * kv_bytes_per_position() : 0;
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
  if (history.empty() || n_max < 1) return proposal;
  const Read read = catch_up(history);
  proposal.behind = read == Read::behind;
  if (read != Read::all) return proposal;
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
