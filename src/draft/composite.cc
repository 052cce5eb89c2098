#include "draft/composite.h"

#include <algorithm>

namespace lockstep::draft {
namespace {

// The items that are not empty, with `separator` between them.
std::string joined(const std::vector<std::string>& items, char separator) {
  std::string list;
  for (const std::string& item : items) {
    if (item.empty()) continue;
    if (!list.empty()) list += separator;
    list += item;
  }
  return list;
}

}  // namespace

CompositeSource::CompositeSource(Sources sources, std::string before_names, char separator)
    : sources_(std::move(sources)), before_names_(std::move(before_names)), separator_(separator) {}

std::string CompositeSource::name() const {
  std::vector<std::string> names;
  for (const auto& source : sources_) names.push_back(source->name());
  return before_names_ + joined(names, separator_);
}

std::vector<std::string> CompositeSource::parts() const {
  std::vector<std::string> parts;
  for (const auto& source : sources_) {
    for (std::string& part : source->parts()) parts.push_back(std::move(part));
  }
  return parts;
}

void CompositeSource::truncate(int64_t common) {
  for (const auto& source : sources_) source->truncate(common);
}

void CompositeSource::set_sampling(const sample::Parameters& parameters) {
  for (const auto& source : sources_) source->set_sampling(parameters);
}

bool CompositeSource::read(std::span<const int32_t> history) {
  bool reads = false;
  for (const auto& source : sources_) reads |= source->read(history);
  return reads;
}

void CompositeSource::release() {
  for (const auto& source : sources_) source->release();
}

state::Claim CompositeSource::claim(int64_t tokens) const {
  state::Claim claim;
  for (const auto& source : sources_) claim += source->claim(tokens);
  return claim;
}

int64_t CompositeSource::kv_bytes_per_position() const {
  int64_t bytes = 0;
  for (const auto& source : sources_) bytes += source->kv_bytes_per_position();
  return bytes;
}

int64_t CompositeSource::kv_bytes_beyond() const {
  int64_t bytes = 0;
  for (const auto& source : sources_) bytes += source->kv_bytes_beyond();
  return bytes;
}

bool CompositeSource::synthetic() const {
  return std::any_of(sources_.begin(), sources_.end(),
                     [](const auto& source) { return source->synthetic(); });
}

std::string CompositeSource::take_fault() {
  std::string fault;
  for (const auto& source : sources_) {
    if (fault.empty()) fault = source->take_fault();
  }
  return fault;
}

std::string CompositeSource::file_sha256() const {
  std::vector<std::string> hashes;
  for (const auto& source : sources_) hashes.push_back(source->file_sha256());
  return joined(hashes, ',');
}

void CompositeSource::number_parts(Proposal& proposal, size_t first) {
  proposal.part.resize(proposal.tokens.size());
  for (uint8_t& part : proposal.part) part = static_cast<uint8_t>(part + first);
}

}  // namespace lockstep::draft
