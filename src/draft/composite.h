// What sources made of several sources share: everything that they tell each of them, or gather
// from all. How they draft is the derived class's.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "draft/source.h"

namespace lockstep::draft {

using Sources = std::vector<std::shared_ptr<Source>>;

class CompositeSource : public Source {
 public:
  // At least one source, none null. Names are listed with the separator between them.
  CompositeSource(Sources sources, std::string before_names, char separator);

  std::string name() const override;
  std::vector<std::string> parts() const override;
  void truncate(int64_t common) override;
  void set_sampling(const sample::Parameters& parameters) override;
  bool read(std::span<const int32_t> history) override;
  void release() override;
  state::Claim claim(int64_t tokens) const override;
  int64_t kv_bytes_per_position() const override;
  int64_t kv_bytes_beyond() const override;
  bool synthetic() const override;           // one of them is
  std::string take_fault() override;         // the first's that has one
  std::string file_sha256() const override;  // of those that read a file, comma-separated

 protected:
  const Sources& sources() const { return sources_; }
  // Counts a proposal's parts from `first` on.
  static void number_parts(Proposal& proposal, size_t first);

 private:
  Sources sources_;
  std::string before_names_;
  char separator_;
};

}  // namespace lockstep::draft
