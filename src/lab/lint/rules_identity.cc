// V4 identity, V5 exact, V10 treated, V12 new: what ran, and what it is compared with.
#include <algorithm>
#include <set>

#include "lab/lint/row_context.h"
#include "lab/results/kinds.h"

namespace lockstep::lab {
namespace {

// Names that differ from the control's beside what the candidate declares.
std::vector<std::string> undeclared(const RowContext& row) {
  std::vector<std::string> out;
  const auto mine = traits_of(row.catalog, row.row);
  const auto control = traits_of(*row.options.control, *row.options.control_item);
  std::set<std::string> declared;
  if (row.candidate) {
    for (const Setting& setting : settings_of(row.candidate->object)) declared.insert(setting.key);
  }
  for (const Difference& d : differences(control, mine)) {
    if (d.same || !d.a || !d.b || !d.a->known() || !d.b->known()) continue;
    const size_t dot = d.name.find('.');
    const std::string key = dot == std::string::npos ? d.name : d.name.substr(dot + 1);
    // Settings and words of the candidate are what is declared.
    if (d.name.starts_with("setting.") || d.name == "change" || d.name == "recipe" ||
        d.name == "stage" || declared.contains(canonical_key(key))) {
      continue;
    }
    out.push_back(fmt::format("{}: {} there, {} here", d.name, d.a->value.substr(0, 60),
                              d.b->value.substr(0, 60)));
  }
  return out;
}

// Variables steer most engines as much as flags do. Ours reads none below its command line.
std::string environment_note(const Object& identity) {
  if (identity.value("effective.engine.name") == "lockstep") return "";
  for (const Fact& fact : identity.facts()) {
    if (fact.known() &&
        (fact.name.starts_with("effective.env.") || fact.name == "receipt.environ")) {
      return "";
    }
  }
  return "; its environment variables are not recorded, so that two such rows may differ in them";
}

}  // namespace

Finding check_identity(const RowContext& row) {
  if (!row.identity) {
    return fails(
        "no identity came with it: it is evidence, and never a record",
        "capture what ran (model and binary by hash, device, settings), or add it with lab "
        "add identity");
  }
  const Object& identity = row.identity->object;
  const std::vector<std::string> mismatches = identity_mismatches(identity);
  if (!mismatches.empty()) {
    return fails(fmt::format("what ran is not what was asked for: {}", fmt::join(mismatches, "; ")),
                 "quote it under the effective values");
  }
  const std::vector<std::string> gaps = identity_gaps(identity);
  if (gaps.size() >= std::size(kIdentityKeys)) {
    return unknown("only what was asked for is known, nothing of what ran",
                   "read the effective values from the server: its log, /props, its process");
  }
  if (!gaps.empty()) {
    return fails(fmt::format("the identity lacks {}", fmt::join(gaps, ", ")),
                 "add what is missing (lab add identity), or measure again with it captured");
  }
  if (row.options.control && row.options.control_item) {
    const std::vector<std::string> others = undeclared(row);
    if (!others.empty()) {
      return fails(fmt::format("it differs from the control in what was not declared: {}",
                               fmt::join(others, "; ")),
                   "declare it as part of the candidate, or make it equal");
    }
    return holds("complete, effective as requested, and the control's but for what is declared" +
                 environment_note(identity));
  }
  return holds("complete, and effective as requested where both are known" +
               environment_note(identity));
}

Finding check_exact(const RowContext& row) {
  const std::string tokens = row.text("token_sha256"), prompt = row.text("prompt_sha256");
  if (tokens.empty()) {
    return unknown("the tokens are not recorded", "record the token ids, or their hash");
  }
  // The same prompt under the same identity twice has to give the same tokens.
  const auto together = row.result.tokens.find(exact_key(row.row.object));
  if (together != row.result.tokens.end() && together->second.size() > 1) {
    return fails("the same prompt gave other tokens in another row of this result",
                 "find what is not repeatable before any speed is quoted");
  }
  if (prompt.empty()) {
    return unknown("the prompt is not recorded, so no oracle can be looked up",
                   "record the prompt's hash");
  }
  const std::string model = row.effective("model.sha256"), law = row.effective("law");
  std::string near;
  const auto judge = [&](const std::string& oracle_tokens, const std::string& oracle_count,
                         const std::string& oracle_model, const std::string& kernel,
                         bool drafted) -> std::optional<Finding> {
    if (drafted) {
      near = std::string("the oracle was made with drafting on");
    } else if (!model.empty() && !oracle_model.empty() && model != oracle_model) {
      near = std::string("the oracle is another model's");
    } else if (!law.empty() && !kernel.empty() && law != kernel) {
      near = fmt::format("the oracle was made by other kernels ({}, here {})", kernel, law);
    } else if (!oracle_count.empty() && oracle_count != row.text("generated_tokens")) {
      near = fmt::format("the oracle has {} tokens, the row {}", oracle_count,
                         row.text("generated_tokens"));
    } else if (oracle_tokens == tokens) {
      return holds("the tokens are the oracle's");
    } else {
      return fails(fmt::format("the tokens are not the oracle's: {}…, not {}…",
                               tokens.substr(0, 12), oracle_tokens.substr(0, 12)),
                   "the change is not exact: find the first token that differs, or judge it in the "
                   "quality class");
    }
    return std::nullopt;
  };
  if (row.options.oracle) {
    for (const Catalog::Item* item : row.options.oracle->of(Kind::row)) {
      const Object& other = item->object;
      if (other.value("prompt_sha256") != prompt || other.value("token_sha256").empty()) continue;
      const Catalog::Item* identity = row.options.oracle->identity_of(*item);
      const auto of_oracle = [&](std::string_view key) {
        return identity ? identity->object.value(fmt::format("effective.{}", key)) : "";
      };
      if (const auto found = judge(other.value("token_sha256"), other.value("generated_tokens"),
                                   of_oracle("model.sha256"), of_oracle("law"),
                                   !other.value("draft.source").empty())) {
        return *found;
      }
    }
  }
  if (row.options.ledger) {
    for (const Catalog::Item* item : row.options.ledger->of(Kind::oracle)) {
      const Object& other = item->object;
      if (other.value("prompt_sha256") != prompt) continue;
      if (const auto found = judge(other.value("token_sha256"), other.value("generated_tokens"),
                                   other.value("model.sha256"), other.value("kernel"),
                                   other.value("drafting") != "false")) {
        return *found;
      }
    }
  }
  return unknown(near.empty() ? std::string("there is no oracle for this prompt")
                              : fmt::format("no oracle fits: {}", near),
                 "make one: the same prompt and kernels with drafting off (--oracle)");
}

Finding check_treated(const RowContext& row) {
  const std::string drafter = row.drafter();
  if (row.candidate && row.options.ledger) {
    for (const Catalog::Item* verdict : row.options.ledger->of(Kind::verdict)) {
      if (verdict->object.value("inert") != "true") continue;
      const Catalog::Item* other = row.options.ledger->candidate_of(*verdict);
      if (!other || verdict->object.value("lane") != row.text("lane")) continue;
      for (const Setting& mine : settings_of(row.candidate->object)) {
        for (const Setting& inert : settings_of(other->object)) {
          if (mine.key == inert.key) {
            return fails(fmt::format("{} is inert under this lane: at its extremes it changed "
                                     "nothing (verdict {})",
                                     mine.key, verdict->id.substr(0, 12)),
                         "leave it out of the sweep");
          }
        }
      }
    }
  }
  const std::string receipt = row.text("treatment.receipt");
  if (!drafter.empty()) {
    const auto drafted = row.integer("draft.drafted"), accepted = row.integer("draft.accepted");
    if (!drafted) {
      return fails(
          fmt::format("drafting with {} was asked for, and no count of drafted tokens shows "
                      "it (absent is not 100 %)",
                      drafter),
          "look in the log whether the drafter was loaded");
    }
    if (*drafted == 0) {
      return fails(fmt::format("drafting with {} was asked for, and nothing was drafted", drafter),
                   "look in the log whether the drafter was loaded");
    }
    // 100 tokens: a real drafter of 0.97 would miss at least one of them with 95 %.
    if (accepted && *accepted == *drafted && *drafted >= 100) {
      return unknown(
          fmt::format("every one of {} drafted tokens was accepted: a drafter that copies "
                      "the prompt or its own text, or a made-up acceptance",
                      *drafted),
          "repeat it on text that does not repeat itself");
    }
    if (!row.candidate || !receipt.empty()) {
      return holds(fmt::format("{} tokens were drafted with {}", *drafted, drafter));
    }
  }
  if (!receipt.empty()) return holds(fmt::format("a receipt: {}", receipt.substr(0, 120)));
  if (row.candidate && !settings_of(row.candidate->object).empty()) {
    std::string what;
    for (const Setting& setting : settings_of(row.candidate->object)) {
      what += fmt::format("{}{}={}", what.empty() ? "" : ", ", setting.key, setting.value);
    }
    return unknown(fmt::format("nothing shows that {} did anything", what),
                   "record a receipt: a counter, a log line or an effective value that it changed");
  }
  const Fact* source = row.identity ? row.identity->object.find("effective.draft.source") : nullptr;
  if (!row.candidate && source && source->known()) {
    return holds("plain decoding, and nothing is declared as changed");
  }
  return unknown("what was changed is not recorded", "name it as a candidate");
}

Finding check_new(const RowContext& row) {
  if (!row.options.ledger) {
    return unknown("there is no ledger to ask", "give one with --ledger");
  }
  if (!row.candidate) {
    return unknown("what was changed is not recorded, so it can't be looked up",
                   "name it as a candidate");
  }
  const std::string mark = row.candidate->object.value("fingerprint");
  const std::string recipe = row.candidate->object.value("recipe");
  const std::string lane = row.options.lane.empty() ? row.text("lane") : row.options.lane;
  if (lane.empty()) {
    return unknown("its lane is not known", "give it with --lane");
  }
  std::string other_recipe;
  for (const Catalog::Item* verdict : row.options.ledger->of(Kind::verdict)) {
    if (!rejects(verdict->object.value("verdict"))) continue;
    const Catalog::Item* other = row.options.ledger->candidate_of(*verdict);
    if (!other || other->object.value("fingerprint") != mark) continue;
    std::string its_lane = verdict->object.value("lane");
    if (its_lane.empty()) its_lane = other->object.value("lane");
    if (its_lane != lane) continue;
    // The verdict on this very row is no earlier one.
    const Catalog::Item* run = row.options.ledger->run_of(*verdict);
    if (run && ((row.run && run->id == row.run->id) ||
                (!row.options.artifact.empty() &&
                 run->object.value("artifact") == row.options.artifact))) {
      continue;
    }
    if (other->object.value("recipe") != recipe) {
      other_recipe = other->object.value("recipe");
      continue;
    }
    std::string retry = verdict->object.value("retry");
    if (retry.empty()) retry = other->object.value("retry");
    const std::string what =
        fmt::format("it was rejected before under {} ({}, verdict {})", lane,
                    verdict->object.value("verdict"), verdict->id.substr(0, 12));
    if (retry.empty()) {
      return fails(what + "; no retry condition is recorded", "see lab show of that verdict");
    }
    const auto holds_now = retry_holds(retry, row.identity ? &row.identity->object : nullptr);
    if (!holds_now) {
      return unknown(fmt::format("{}; it may be tried again {}", what, retry),
                     "look whether that holds");
    }
    if (!*holds_now) {
      return fails(fmt::format("{}, and its retry condition ({}) does not hold", what, retry),
                   "try something else");
    }
  }
  if (!other_recipe.empty()) {
    return unknown(fmt::format("the same change was rejected under {} with another recipe ({})",
                               lane, other_recipe),
                   "say why it should do better with this one");
  }
  return holds("the ledger has no rejection of it under this lane that still stands");
}

}  // namespace lockstep::lab
