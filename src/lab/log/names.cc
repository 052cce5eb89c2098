#include "lab/log/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace lockstep::lab::log {

std::string_view name_of(DraftLine line) {
  constexpr std::string_view kNames[] = {"none", "1", "2", "2b", "3"};
  return kNames[static_cast<size_t>(line)];
}

std::string_view name_of(Denominator denominator) {
  constexpr std::string_view kNames[] = {"unknown", "n", "n-1", "either", "neither"};
  return kNames[static_cast<size_t>(denominator)];
}

std::string_view name_of(CachedFrom from) {
  constexpr std::string_view kNames[] = {"", "log", "prompt", "end"};
  return kNames[static_cast<size_t>(from)];
}

std::string_view name_of(Witness witness) {
  constexpr std::string_view kNames[] = {"cached_tokens", "similarity", "checkpoint", "context_end",
                                         "cached_zero",   "lru",        "reprocessed"};
  return kNames[static_cast<size_t>(witness)];
}

std::string generation_text(const Analysis& analysis) {
  if (analysis.request_count == 0 && analysis.interval_count == 0) return "no request is in it";
  std::vector<std::string> parts;
  std::vector<std::string_view> engines;
  for (const Life& life : analysis.lives) {
    if (std::find(engines.begin(), engines.end(), life.engine) == engines.end()) {
      engines.push_back(life.engine);
    }
  }
  for (const std::string_view engine : engines) {
    int64_t lines[5] = {}, denominators[5] = {}, requests = 0;
    std::string build;
    bool builds_differ = false;
    for (const Life& life : analysis.lives) {
      if (life.engine != engine) continue;
      requests += life.requests;
      for (size_t i = 0; i < 5; ++i)
        lines[i] += life.draft_lines[i], denominators[i] += life.denominators[i];
      if (life.build.empty()) continue;
      builds_differ |= !build.empty() && build != life.build;
      build = life.build;
    }
    if (engine == "vllm") {
      parts.push_back("vLLM's SpecDecoding metrics");
      continue;
    }
    if (requests == 0) continue;
    std::string part(engine);
    if (!build.empty())
      part += fmt::format(" {}", builds_differ ? "of several builds" : escape(build, 40));
    std::string drafts;
    for (size_t i = 1; i < 5; ++i) {
      if (lines[i] == 0) continue;
      if (!drafts.empty()) drafts += " and ";
      drafts += name_of(static_cast<DraftLine>(i));
    }
    part += drafts.empty() ? ", no draft lines" : ", draft lines of generation " + drafts;
    const auto of = [&](Denominator d) { return denominators[static_cast<size_t>(d)]; };
    if (of(Denominator::all) > 0 && of(Denominator::steps) > 0) {
      part += ", decode rates over n in some rows and over n-1 in others";
    } else if (of(Denominator::all) > 0) {
      part += ", decode rates over all n tokens (older servers)";
    } else if (of(Denominator::steps) > 0) {
      part += ", decode rates over the n-1 tokens after the first (newer servers)";
    } else if (of(Denominator::either) > 0) {
      part += ", rows too short to tell by what the decode rate was divided";
    }
    parts.push_back(std::move(part));
  }
  return fmt::format("{}", fmt::join(parts, "; "));
}

}  // namespace lockstep::lab::log
