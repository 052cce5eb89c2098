#include "lab/ledger/history.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/error.h"
#include "lab/results/kinds.h"

namespace lockstep::lab {
namespace {

std::optional<double> number_of(const Object& object, std::string_view name) {
  const Fact* fact = object.find(name);
  return fact ? fact->number() : std::nullopt;
}

// Facts that may stand under a record.
bool supports(Provenance provenance) {
  return provenance == Provenance::verified || provenance == Provenance::logged;
}

std::string searched_text(const Attempt& attempt) {
  std::string text = attempt.candidate->object.value("change") + " " +
                     attempt.candidate->object.value("recipe") + " " +
                     attempt.candidate->object.value("hypothesis");
  if (attempt.run) text += " " + attempt.run->object.value("name");
  return folded(text);
}

// "moe_selected_softmax" means llama_gemma4_moe_selected_softmax, too.
bool key_means(std::string_view asked, std::string_view key) {
  return key == asked || (asked.size() >= 3 && key.ends_with("_" + std::string(asked)));
}

const Fact* setting_fact(const Object& candidate, std::string_view asked) {
  for (const Fact& fact : candidate.facts()) {
    if (fact.name.starts_with("setting.") && fact.known() &&
        key_means(asked, std::string_view(fact.name).substr(8))) {
      return &fact;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<Attempt> attempts(const Catalog& catalog) {
  std::map<std::string, const Catalog::Item*, std::less<>> first_row;
  for (const Catalog::Item* row : catalog.of(Kind::row)) {
    const std::string run = row->object.value("run");
    if (run.empty()) continue;
    const Fact* index = row->object.find("index");
    const bool first = index && index->integer() == 0;
    if (first || !first_row.contains(run)) first_row[run] = row;
  }
  std::vector<Attempt> out;
  std::set<std::string> judged;
  for (const Catalog::Item* verdict : catalog.of(Kind::verdict)) {
    Attempt attempt;
    attempt.verdict = verdict;
    attempt.candidate = catalog.follow(verdict->object, "candidate");
    if (!attempt.candidate) continue;
    judged.insert(attempt.candidate->id);
    attempt.run = catalog.follow(verdict->object, "run");
    const Fact* said = verdict->object.find("verdict");
    attempt.judged = said ? said->value : "unknown";
    attempt.provenance = said ? said->provenance : Provenance::inferred;
    attempt.said = verdict->object.value("said");
    attempt.lane = verdict->object.value("lane");
    if (attempt.lane.empty()) attempt.lane = attempt.candidate->object.value("lane");
    attempt.predicted = number_of(attempt.candidate->object, "predicted_effect");
    attempt.effect = number_of(verdict->object, "effect");
    attempt.retry = verdict->object.value("retry");
    if (attempt.retry.empty()) attempt.retry = attempt.candidate->object.value("retry");
    if (attempt.run) {
      const auto at = first_row.find(attempt.run->id);
      if (at != first_row.end()) {
        attempt.row = at->second;
        const Fact* rate = attempt.row->object.find("decode_tok_s");
        if (rate) attempt.tok_s = rate->number();
      }
    }
    out.push_back(std::move(attempt));
  }
  for (const Catalog::Item* candidate : catalog.of(Kind::candidate)) {
    if (judged.contains(candidate->id)) continue;
    Attempt attempt;
    attempt.candidate = candidate;
    attempt.lane = candidate->object.value("lane");
    attempt.judged = "unknown";
    attempt.predicted = number_of(candidate->object, "predicted_effect");
    attempt.retry = candidate->object.value("retry");
    out.push_back(std::move(attempt));
  }
  return out;
}

Realised realised(const std::vector<Attempt>& attempts) {
  Realised out;
  for (const Attempt& attempt : attempts) {
    if (!attempt.predicted || !attempt.effect) continue;
    ++out.attempts;
    out.predicted += *attempt.predicted;
    out.measured += *attempt.effect;
  }
  return out;
}

Tried tried(const Catalog& catalog, std::string_view query) {
  Tried out;
  out.settings = settings_of_text(query);
  std::vector<std::string> keys;  // asked for without a value
  for (const std::string& word : words_of_text(query)) {
    const std::vector<Setting> compact = settings_of_run_name(word);
    if (!compact.empty()) {
      out.settings.insert(out.settings.end(), compact.begin(), compact.end());
    } else {
      out.words.push_back(word);
    }
  }
  const std::vector<Attempt> all = attempts(catalog);
  // A word that is the name of a setting somebody tried asks for that setting.
  std::set<std::string> tried_keys;
  for (const Attempt& attempt : all) {
    for (const Setting& setting : settings_of(attempt.candidate->object)) {
      tried_keys.insert(setting.key);
    }
  }
  for (const std::string& word : out.words) {
    for (const std::string& key : tried_keys) {
      if (folded(key) == word || folded(canonical_key(word)) == folded(key)) {
        keys.push_back(key);
        break;
      }
    }
  }
  for (const Attempt& one : all) {
    Attempt attempt = one;
    bool matches = !out.settings.empty() || !out.words.empty();
    for (const Setting& setting : out.settings) {
      const Fact* fact = setting_fact(attempt.candidate->object, setting.key);
      if (!fact || fact->value != setting.value) {
        matches = false;
      } else if (fact->provenance == Provenance::inferred) {
        attempt.in_change = false;
      }
    }
    const std::string text = searched_text(attempt);
    for (const std::string& word : out.words) {
      const bool has_key = std::any_of(keys.begin(), keys.end(), [&](const std::string& key) {
        return (folded(key) == word || folded(canonical_key(word)) == folded(key)) &&
               setting_fact(attempt.candidate->object, key);
      });
      matches &= has_key || text.find(word) != std::string::npos;
    }
    if (matches) out.found.push_back(std::move(attempt));
  }
  if (!out.found.empty()) return out;
  for (const Setting& setting : out.settings) {
    for (const Attempt& attempt : all) {
      const Fact* fact = setting_fact(attempt.candidate->object, setting.key);
      if (fact && fact->value != setting.value) {
        out.near.emplace_back(Setting{setting.key, fact->value}, attempt);
      }
    }
    const auto asked = read_number(setting.value);
    if (!asked) continue;
    std::stable_sort(out.near.begin(), out.near.end(), [&](const auto& a, const auto& b) {
      const auto distance = [&](const Setting& s) {
        const auto value = read_number(s.value);
        return value && s.key == setting.key ? std::abs(*value - *asked) : HUGE_VAL;
      };
      return distance(a.first) < distance(b.first);
    });
  }
  return out;
}

std::vector<DeadEnd> dead_ends(const Catalog& catalog) {
  using Key = std::tuple<std::string, std::string, std::string>;
  std::map<Key, DeadEnd> groups;
  std::set<Key> alive;
  std::vector<Key> order;
  for (const Attempt& attempt : attempts(catalog)) {
    if (!attempt.verdict) continue;
    const Key key{attempt.lane, attempt.candidate->object.value("fingerprint"),
                  attempt.candidate->object.value("recipe")};
    if (attempt.judged == "better") alive.insert(key);
    if (!rejects(attempt.judged)) continue;
    DeadEnd& end = groups[key];
    if (end.attempts.empty()) order.push_back(key);
    if (attempt.tok_s) end.best_tok_s = std::max(end.best_tok_s.value_or(0), *attempt.tok_s);
    end.attempts.push_back(attempt);
  }
  std::vector<DeadEnd> out;
  for (const Key& key : order) {
    if (!alive.contains(key)) out.push_back(std::move(groups[key]));
  }
  return out;
}

std::vector<ClaimedRecord> claimed_ladder(const Catalog& catalog) {
  std::vector<ClaimedRecord> out;
  for (const Catalog::Item* claim : catalog.of(Kind::claim)) {
    const Fact* value = claim->object.find("value");
    if (!value || !value->number()) continue;
    ClaimedRecord record;
    record.claim = claim;
    record.value = *value->number();
    record.provenance = value->provenance;
    record.lane = claim->object.value("lane");
    record.when = claim->object.value("started_at");
    const Catalog::Item* run = catalog.follow(claim->object, "run");
    record.name = run ? run->object.value("name") : claim->object.value("name");
    out.push_back(std::move(record));
  }
  std::stable_sort(out.begin(), out.end(), [](const ClaimedRecord& a, const ClaimedRecord& b) {
    return std::tie(a.lane, a.when) < std::tie(b.lane, b.when);
  });
  return out;
}

std::vector<std::string> record_faults(const Catalog& catalog, const Object& record) {
  std::vector<std::string> out;
  for (const Fact& fact : record.facts()) {
    const bool figure = fact.number().has_value();
    if (figure && !supports(fact.provenance)) {
      out.push_back(fmt::format("{} is {}: only what is verified or logged supports a record",
                                fact.name, name_of(fact.provenance)));
    }
  }
  const Catalog::Item* identity = catalog.follow(record, "identity");
  if (!identity) {
    out.emplace_back("it has no identity");
  } else {
    const std::vector<std::string> gaps = identity_gaps(identity->object);
    if (!gaps.empty()) {
      out.push_back(fmt::format("its identity lacks {}", fmt::join(gaps, ", ")));
    }
    for (const std::string_view key : kIdentityKeys) {
      const Fact* fact = identity->object.find(fmt::format("effective.{}", key));
      if (fact && fact->known() && !supports(fact->provenance)) {
        out.push_back(fmt::format("{} of its identity is {}", key, name_of(fact->provenance)));
      }
    }
  }
  const auto rows = [&](std::string_view name) {
    std::vector<std::string> ids;
    const nlohmann::json list = nlohmann::json::parse(record.value(name), nullptr, false);
    if (list.is_array()) {
      for (const auto& id : list) {
        if (id.is_string()) ids.push_back(id.get<std::string>());
      }
    }
    return ids;
  };
  const std::vector<std::string> selected = rows("selection_rows"),
                                 confirmed = rows("confirmation_rows");
  if (selected.empty()) out.emplace_back("selection_rows names no row");
  if (confirmed.empty()) out.emplace_back("confirmation_rows names no row");
  for (const std::string& id : confirmed) {
    if (std::find(selected.begin(), selected.end(), id) != selected.end()) {
      out.push_back(fmt::format("row {} selected it and confirmed it", id.substr(0, 12)));
    }
  }
  std::set<std::string> all(selected.begin(), selected.end());
  all.insert(confirmed.begin(), confirmed.end());
  all.insert(record.value("row"));
  for (const std::string& id : all) {
    const Catalog::Item* row = catalog.find(id);
    if (!row || row->object.kind() != Kind::row) {
      out.push_back(fmt::format("{} is no row of the ledger", escape(id.substr(0, 12))));
      continue;
    }
    const Fact* rate = row->object.find("decode_tok_s");
    if (!rate || !rate->known()) {
      out.push_back(fmt::format("row {} has no decode rate", id.substr(0, 12)));
    } else if (!supports(rate->provenance)) {
      out.push_back(
          fmt::format("the rate of row {} is {}", id.substr(0, 12), name_of(rate->provenance)));
    }
  }
  return out;
}

}  // namespace lockstep::lab
