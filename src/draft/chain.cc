#include "draft/chain.h"

#include <algorithm>
#include <limits>

namespace lockstep::draft {
namespace {

// Appends one of the lists beside the tokens; either may be missing.
template <typename T>
void append_list(std::vector<T>& list, size_t before, const std::vector<T>& more, size_t n,
                 T missing) {
  if (list.empty() && more.empty()) return;
  list.resize(before, missing);
  list.insert(list.end(), more.begin(),
              more.begin() + static_cast<ptrdiff_t>(std::min(n, more.size())));
  list.resize(before + n, missing);
}

}  // namespace

ChainSource::ChainSource(Sources sources)
    : sources_(std::move(sources)), proposed_(sources_.size()) {}

std::string ChainSource::name() const {
  std::vector<std::string> names;
  for (const auto& source : sources_) names.push_back(source->name());
  return "chain:" + joined(names, '+');
}

std::vector<std::string> ChainSource::parts() const {
  return parts_of(sources_);
}

Proposal ChainSource::extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                             int n_max) {
  Proposal whole;
  std::vector<int32_t> before(draft.begin(), draft.end());
  std::fill(proposed_.begin(), proposed_.end(), 0);
  size_t first_part = 0;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const size_t had = whole.tokens.size();
    const int left = n_max - static_cast<int>(had);
    if (left < 1) break;
    Proposal more = sources_[i]->extend(history, before, left);
    more.cut(static_cast<size_t>(left));
    const size_t n = more.tokens.size();
    number_parts(more, first_part);
    append_list(whole.confidence, had, more.confidence, n, std::numeric_limits<float>::quiet_NaN());
    append_list(whole.match, had, more.match, n, 0);
    append_list(whole.part, had, more.part, n, uint8_t{0});
    whole.tokens.insert(whole.tokens.end(), more.tokens.begin(), more.tokens.end());
    before.insert(before.end(), more.tokens.begin(), more.tokens.end());
    proposed_[i] = static_cast<int>(n);
    first_part += sources_[i]->parts().size();
  }
  return whole;
}

void ChainSource::observe(std::span<const int32_t> history, int accepted) {
  for (size_t i = 0; i < sources_.size(); ++i) {
    const int own = std::clamp(accepted, 0, proposed_[i]);
    sources_[i]->observe(history, own);
    accepted -= own;
  }
}

void ChainSource::truncate(int64_t common) {
  for (const auto& source : sources_) source->truncate(common);
}

void ChainSource::set_sampling(const sample::Parameters& parameters) {
  for (const auto& source : sources_) source->set_sampling(parameters);
}

bool ChainSource::synthetic() const {
  return any_synthetic(sources_);
}

std::string ChainSource::take_fault() {
  return take_fault_of(sources_);
}

std::string ChainSource::file_sha256() const {
  return file_sha256_of(sources_);
}

}  // namespace lockstep::draft
