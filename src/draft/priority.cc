#include "draft/priority.h"

#include <algorithm>

namespace lockstep::draft {
namespace {

void append_to_list(std::string& list, const std::string& item) {
  if (item.empty()) return;
  if (!list.empty()) list += ',';
  list += item;
}

}  // namespace

PrioritySource::PrioritySource(std::vector<std::shared_ptr<Source>> sources)
    : sources_(std::move(sources)) {}

std::string PrioritySource::name() const {
  std::string list;
  for (const auto& source : sources_) append_to_list(list, source->name());
  return list;
}

Proposal PrioritySource::propose(std::span<const int32_t> history, int n_max) {
  for (proposer_ = 0; proposer_ < sources_.size(); ++proposer_) {
    Proposal proposal = sources_[proposer_]->propose(history, n_max);
    if (!proposal.tokens.empty()) return proposal;
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
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const auto& source) { return source->synthetic(); });
}

std::string PrioritySource::take_fault() {
  std::string fault;
  for (const auto& source : sources_) {
    if (fault.empty()) fault = source->take_fault();
  }
  return fault;
}

std::string PrioritySource::file_sha256() const {
  std::string list;
  for (const auto& source : sources_) append_to_list(list, source->file_sha256());
  return list;
}

}  // namespace lockstep::draft
