#include "draft/parts.h"

#include <algorithm>

namespace lockstep::draft {

std::vector<std::string> parts_of(const Sources& sources) {
  std::vector<std::string> parts;
  for (const auto& source : sources) {
    for (std::string& part : source->parts()) parts.push_back(std::move(part));
  }
  return parts;
}

std::string joined(const std::vector<std::string>& items, char separator) {
  std::string list;
  for (const std::string& item : items) {
    if (item.empty()) continue;
    if (!list.empty()) list += separator;
    list += item;
  }
  return list;
}

std::string file_sha256_of(const Sources& sources) {
  std::vector<std::string> hashes;
  for (const auto& source : sources) hashes.push_back(source->file_sha256());
  return joined(hashes, ',');
}

std::string take_fault_of(const Sources& sources) {
  std::string fault;
  for (const auto& source : sources) {
    if (fault.empty()) fault = source->take_fault();
  }
  return fault;
}

bool any_synthetic(const Sources& sources) {
  return std::any_of(sources.begin(), sources.end(),
                     [](const auto& source) { return source->synthetic(); });
}

void number_parts(Proposal& proposal, size_t first) {
  proposal.part.resize(proposal.tokens.size());
  for (uint8_t& part : proposal.part) part = static_cast<uint8_t>(part + first);
}

}  // namespace lockstep::draft
