// Several sources, asked in order: the first that proposes anything wins (llama.cpp's meaning of a
// comma list). All of them see every outcome.
#pragma once

#include "draft/parts.h"

namespace lockstep::draft {

class PrioritySource final : public Source {
 public:
  // At least one source, none null.
  explicit PrioritySource(Sources sources);

  std::string name() const override;  // "ngram,model"
  std::vector<std::string> parts() const override;
  Proposal extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                  int n_max) override;
  void observe(std::span<const int32_t> history, int accepted) override;
  void truncate(int64_t common) override;
  void set_sampling(const sample::Parameters& parameters) override;
  bool synthetic() const override;
  std::string take_fault() override;
  std::string file_sha256() const override;  // of those that read a file, comma-separated

 private:
  Sources sources_;
  size_t proposer_ = 0;
};

}  // namespace lockstep::draft
