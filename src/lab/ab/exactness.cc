#include "lab/ab/exactness.h"

#include <fmt/format.h>

#include <map>
#include <set>

#include "base/error.h"

namespace lockstep::lab::ab {
namespace {

// A hash's first digits, as messages quote it.
std::string short_hash(const std::string& hash) {
  return escape(hash.substr(0, 16), 40);
}

}  // namespace

Exactness compare_tokens(const runs::Runs& a, const runs::Runs& b) {
  Exactness out;
  std::map<std::string, std::map<std::string, const char*>> hashes;  // prompt, hash: the arm
  int64_t with_hash = 0;
  out.cls = a.exactness.empty() ? b.exactness : a.exactness;
  const bool within_arm = out.cls == "repeatable";
  for (const runs::Runs* arm : {&a, &b}) {
    const char* name = arm == &a ? "A" : "B";
    for (const runs::Row& row : arm->rows) {
      if (row.token_sha256.empty()) {
        ++out.without_hash;
        continue;
      }
      ++with_hash;
      // Kept apart by arm where only repeats within one have to agree.
      hashes[within_arm ? fmt::format("{} {}", name, row.prompt) : row.prompt].try_emplace(
          row.token_sha256, name);
    }
  }
  if (out.cls.empty()) out.cls = with_hash > 0 ? "tokens" : "not said";
  out.judged = with_hash > 0 && (out.cls == "tokens" || out.cls == "bits" || within_arm);
  if (!out.judged) return out;
  for (const auto& [prompt, seen] : hashes) {
    ++out.compared;
    if (seen.size() < 2) continue;
    if (++out.different == 1) {
      const auto first = seen.begin(), second = std::next(first);
      out.first_difference = fmt::format("prompt \"{}\": {} in {}, {} in {}", escape(prompt, 80),
                                         short_hash(first->first), first->second,
                                         short_hash(second->first), second->second);
    }
  }
  return out;
}

}  // namespace lockstep::lab::ab
