// What sources made of several sources share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "draft/source.h"

namespace lockstep::draft {

using Sources = std::vector<std::shared_ptr<Source>>;

std::vector<std::string> parts_of(const Sources& sources);
// The items that are not empty, with `separator` between them.
std::string joined(const std::vector<std::string>& items, char separator);
std::string file_sha256_of(const Sources& sources);  // comma-separated
std::string take_fault_of(const Sources& sources);   // the first
bool any_synthetic(const Sources& sources);

// Counts a proposal's parts from `first` on.
void number_parts(Proposal& proposal, size_t first);

}  // namespace lockstep::draft
