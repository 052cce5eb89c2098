// What was tried before, what of it is a dead end, and what is called a record.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lab/results/catalog.h"

namespace lockstep::lab {

// One verdict on one candidate.
struct Attempt {
  const Catalog::Item* candidate = nullptr;
  const Catalog::Item* verdict = nullptr;  // null: never judged
  const Catalog::Item* run = nullptr;
  const Catalog::Item* row = nullptr;     // the run's first
  std::string lane, judged, said, retry;  // retry "": none was recorded
  std::optional<double> tok_s;
  // Of the decode rate, as shares (0.01 is 1 %): what the candidate was to gain, and what its
  // verdict measured.
  std::optional<double> predicted, effect;
  Provenance provenance = Provenance::reported;  // of the verdict
  bool in_change = true;  // the change itself says what was asked for, not only the run's name
};

// In the order in which they were written.
std::vector<Attempt> attempts(const Catalog& catalog);

// Of the attempts that say both: how much of what was predicted came.
struct Realised {
  int64_t attempts = 0;
  double predicted = 0, measured = 0;  // sums
};
Realised realised(const std::vector<Attempt>& attempts);

struct Tried {
  std::vector<Setting> settings;   // what the query asks for
  std::vector<std::string> words;  // and the words beside
  std::vector<Attempt> found;
  // Where nothing was found: other values of the settings asked for, the nearest first.
  std::vector<std::pair<Setting, Attempt>> near;
};
// Attempts that set all of the query's settings (by their normalised names and values) and whose
// change, recipe or run name has all of its words. "p_min" alone finds every value of it.
Tried tried(const Catalog& catalog, std::string_view query);

// Attempts with the same lane, fingerprint and recipe, of which a verdict rejects and none says
// better.
struct DeadEnd {
  std::vector<Attempt> attempts;  // at least one
  std::optional<double> best_tok_s;
};
std::vector<DeadEnd> dead_ends(const Catalog& catalog);

// A rung of the ladder that somebody says: its claims in order of time.
struct ClaimedRecord {
  const Catalog::Item* claim = nullptr;
  std::string name, lane, when;
  double value = 0;
  Provenance provenance = Provenance::reported;
};
std::vector<ClaimedRecord> claimed_ladder(const Catalog& catalog);

// Why a record of the catalog may not stand: facts that are only reported or inferred, an identity
// that is not full, rows that selected and confirmed at once. Empty where nothing speaks against
// it.
std::vector<std::string> record_faults(const Catalog& catalog, const Object& record);

}  // namespace lockstep::lab
