#include "draft/priority.h"

namespace lockstep::draft {
PrioritySource::PrioritySource(Sources sources) : sources_(std::move(sources)) {}

std::string PrioritySource::name() const {
  std::vector<std::string> names;
  for (const auto& source : sources_) names.push_back(source->name());
  return joined(names, ',');
}

std::vector<std::string> PrioritySource::parts() const {
  return parts_of(sources_);
}

Proposal PrioritySource::extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                                int n_max) {
  size_t first_part = 0;
  for (proposer_ = 0; proposer_ < sources_.size(); ++proposer_) {
    Proposal proposal = sources_[proposer_]->extend(history, draft, n_max);
    if (!proposal.tokens.empty()) {
      number_parts(proposal, first_part);
      return proposal;
    }
    first_part += sources_[proposer_]->parts().size();
  }
  return {};
}

void PrioritySource::observe(std::span<const int32_t> history, int accepted) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    sources_[i]->observe(history, i == proposer_ ? accepted : 0);
  }
}

void PrioritySource::truncate(int64_t common) {
  for (const auto& source : sources_) source->truncate(common);
}

void PrioritySource::set_sampling(const sample::Parameters& parameters) {
  for (const auto& source : sources_) source->set_sampling(parameters);
}

bool PrioritySource::synthetic() const {
  return any_synthetic(sources_);
}

std::string PrioritySource::take_fault() {
  return take_fault_of(sources_);
}

std::string PrioritySource::file_sha256() const {
  return file_sha256_of(sources_);
}

}  // namespace lockstep::draft
