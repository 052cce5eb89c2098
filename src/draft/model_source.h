// A small model that shares the target's vocabulary. It draws with the target's sampling parameters
// and the target's noise, so that both choose alike whenever their distributions are near.
#pragma once

#include "draft/lane.h"
#include "draft/source.h"
#include "state/prefix_tree.h"

namespace lockstep::draft {

struct ModelSourceOptions {
  int64_t context = 0;  // 0: the draft model's training context; the draft ends where it does
  state::KvType k_type = state::KvType::f16;
  state::KvType v_type = state::KvType::f16;
  int64_t chunk = 64;        // rows of a pass that catches up with the history
  int64_t kv_max_bytes = 0;  // 0: no limit
  float p_min = 0.0f;        // stops after the first token with less confidence
  // The most rows of the history that one call reads, so that others who wait for it are not held
  // up; 0: all. Until it has read the history it drafts nothing.
  int64_t read_at_most = 0;
  // Where the KV pages come from, shared with others; null: a pool of its own, within kv_max_bytes.
  std::shared_ptr<state::PagePool> kv_pool = {};
  std::shared_ptr<state::PrefixTree> prefixes = {};  // of this model and pool; null: none
};

// Vocabularies whose sizes differ by no more are the same one, padded differently (llama.cpp's
// rule). Whether the tokens agree is for the caller to have checked.
inline constexpr int64_t kVocabSizeSlack = 128;

// What a source of this model remembers of a history.
state::KvSpec kv_spec_of(const model::Model& model, const ModelSourceOptions& options);

class ModelSource final : public Source {
 public:
  // Throws Error(bad_use) when the vocabularies differ by more than kVocabSizeSlack ids.
  ModelSource(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
              int64_t target_n_vocab, ModelSourceOptions options = {});
  ~ModelSource() override;

  std::string name() const override { return "model"; }
  // Confidence: the probability of each token in its raw row.
  Proposal extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                  int n_max) override;
  void observe(std::span<const int32_t>, int) override {}
  void truncate(int64_t common) override;
  void set_sampling(const sample::Parameters& parameters) override;
  bool read(std::span<const int32_t> history) override;
  void release() override;
  state::Claim claim(int64_t tokens) const override;
  int64_t kv_bytes_per_position() const override;
  int64_t kv_bytes_beyond() const override;
  std::string file_sha256() const override;
  std::string take_fault() override;

 private:
  enum class Read : uint8_t { all, behind, cannot };
  Read catch_up(std::span<const int32_t> history);
  void keep_prefix(bool tail);
  bool run_draft(std::span<const int32_t> sequence);
  void cut(int64_t position);
  void set_fault(std::string where);

  Lane lane_;
  ModelSourceOptions options_;
  int64_t n_common_;  // ids that both vocabularies have
  sample::Sampler sampler_;
  std::vector<int32_t> tokens_;  // whose rows lane_ holds
  int64_t agreed_ = 0;           // of them, known to be the history's
  std::string fault_;            // the first, until taken
  bool faulted_ = false;
  // A sliding layer gives back what no later row can see, so that a rejected draft could not always
  // be cut off again. What was before the draft is kept instead.
  bool slides_;
  std::shared_ptr<const state::KvCache::Snapshot> before_draft_;
  int64_t before_draft_size_ = 0;
};

}  // namespace lockstep::draft
