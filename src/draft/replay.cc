#include "draft/replay.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/philox.h"

namespace lockstep::draft {

ReplaySource::ReplaySource(ReplayOptions options) : options_(std::move(options)) {
  if (options_.n_vocab < 2) {
    throw Error(ExitCode::bad_use, "replay: a vocabulary of less than two tokens has no wrong one");
  }
  if (options_.rates.empty()) throw Error(ExitCode::bad_use, "replay: no acceptance rate given");
  for (const double rate : options_.rates) {
    if (!(rate >= 0.0 && rate <= 1.0)) {
      throw Error(ExitCode::bad_use, fmt::format("replay: rate {} is not in 0 to 1", rate));
    }
  }
  for (const int32_t id : options_.recording) {
    if (id < 0 || id >= options_.n_vocab) {
      throw Error(ExitCode::bad_use,
                  fmt::format("replay: recorded token {} is not in the vocabulary (ids 0 to {})",
                              id, options_.n_vocab - 1));
    }
  }
}

Proposal ReplaySource::extend(std::span<const int32_t> history, std::span<const int32_t> draft,
                              int n_max) {
  const std::vector<int32_t>& recording = options_.recording;
  const auto size = static_cast<int64_t>(history.size());
  if (size >= static_cast<int64_t>(recording.size())) return {};
  while (compared_ < size &&
         history[static_cast<size_t>(compared_)] == recording[static_cast<size_t>(compared_)]) {
    ++compared_;
  }
  if (compared_ < size) return {};
  const auto drafted = static_cast<int64_t>(draft.size());
  Proposal proposal;
  bool missed = false;
  for (int64_t i = 0; i < drafted + n_max; ++i) {
    const int64_t position = size + i;
    if (position >= static_cast<int64_t>(recording.size())) break;
    if (i < drafted) {
      if (draft[static_cast<size_t>(i)] != recording[static_cast<size_t>(position)]) return {};
      continue;
    }
    const auto words = philox4x32_10(
        {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
        {static_cast<uint32_t>(options_.seed), static_cast<uint32_t>(options_.seed >> 32)});
    const double rate = options_.rates[std::min(static_cast<size_t>(i), options_.rates.size() - 1)];
    if (static_cast<double>(words[0]) * 0x1p-32 >= rate) missed = true;
    int32_t token = recording[static_cast<size_t>(position)];
    if (missed) {
      // Any other id, all equally far.
      const int64_t step = 1 + static_cast<int64_t>(words[1] % (options_.n_vocab - 1));
      token = static_cast<int32_t>((token + step) % options_.n_vocab);
    }
    proposal.tokens.push_back(token);
  }
  return proposal;
}

void ReplaySource::truncate(int64_t common) {
  compared_ = std::min(compared_, common);
}

}  // namespace lockstep::draft
