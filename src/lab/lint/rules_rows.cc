// V1 first, V2 fresh, V3 canaries, V8 whole, V9 alone: what the row is.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "lab/lint/row_context.h"

namespace lockstep::lab {
namespace {

struct Witnesses {
  std::vector<std::string> fresh, reused;
  void say(bool is_fresh, std::string what) {
    (is_fresh ? fresh : reused).push_back(std::move(what));
  }
};

// Names of a log's signs, lockstep.lab.log/1.
void add_log_signs(const RowContext& row, Witnesses& out) {
  const Fact* signs = row.fact("witnesses");
  const auto list =
      signs ? nlohmann::json::parse(signs->value, nullptr, false) : nlohmann::json::array();
  if (!list.is_array()) return;
  // The line that says how many were cached is where cached_tokens comes from: one witness, not
  // two.
  const bool counted = row.text("cached_from") == "log" && row.integer("cached_tokens");
  for (const auto& sign : list) {
    const std::string name = sign.is_string() ? sign.get<std::string>() : "";
    if (counted && name.starts_with("cached_")) continue;
    if (name == "similarity") out.say(false, "its slot was chosen because its prompt begins alike");
    if (name == "checkpoint") out.say(false, "a context checkpoint was restored");
    if (name == "cached_tokens") out.say(false, "a log line says that tokens were taken over");
    if (name == "cached_zero") out.say(true, "a log line says that none was taken over");
    if (name == "lru") out.say(true, "its slot was chosen as the least recently used");
    if (name == "reprocessed") out.say(true, "the whole prompt was processed again");
  }
}

Witnesses witnesses_of(const RowContext& row) {
  Witnesses out;
  const auto cached = row.integer("cached_tokens");
  const auto prompt = row.integer("prompt_tokens");
  const auto evaluated = row.integer("evaluated_tokens");
  // A count that was worked out from the two others is no second witness.
  const std::string from = row.text("cached_from");
  const bool derived = from == "prompt" && evaluated;
  if (cached && !(derived && *cached == 0)) {
    out.say(*cached == 0, fmt::format("cached_tokens = {}", *cached));
  }
  if (prompt && evaluated) {
    out.say(*prompt == *evaluated,
            fmt::format("{} of {} prompt tokens were evaluated", *evaluated, *prompt));
  }
  if (row.integer("index") == 0 && !row.boolean("warmed").value_or(false)) {
    out.say(true, "it is the first row after the server's start");
  }
  // One witness together: the caches that could have kept something are off.
  const std::string ram = row.effective("cache_ram"),
                    checkpoints = row.effective("ctx_checkpoints");
  if (ram == "0" && checkpoints == "0") out.say(true, "prompt cache and checkpoints are off");
  const std::string type = row.effective("spec_type") + " " + row.drafter();
  const auto index = row.integer("index");
  if (type.find("ngram") != std::string::npos && index && *index > 0) {
    out.say(false, "an n-gram drafter remembers the requests before it");
  }
  for (const Fact& fact : row.row.object.facts()) {
    if (!fact.name.starts_with("witness.") || !fact.known()) continue;
    const bool fresh = fact.value == "0" || fact.value == "true";
    out.say(fresh, fmt::format("{} = {}", fact.name.substr(8), fact.value));
  }
  add_log_signs(row, out);
  return out;
}

}  // namespace

Finding check_first(const RowContext& row) {
  if (row.boolean("warmed").value_or(false)) {
    const auto n = row.integer("repetitions");
    return fails(fmt::format("a mean or median of {} repetitions after a warm-up, no first row",
                             n ? fmt::format("{}", *n) : "several"),
                 "quote it as that tool's figure; for a record send one request to a fresh server");
  }
  const auto index = row.integer("index");
  if (index && *index == 0) {
    const bool told = row.fact("index")->provenance == Provenance::reported;
    return holds(
        fmt::format("the first row after the server's start{}", told ? ", as reported" : ""));
  }
  if (row.result.cold_suite > 0) {
    return holds(
        fmt::format("a row of a cold suite of {} distinct prompts: its median is the "
                    "headline",
                    row.result.cold_suite));
  }
  if (index) {
    return fails(fmt::format("row {} since the server's start: warmed", *index + 1),
                 "quote the first row, or the median of a cold suite; never the best of several");
  }
  return unknown("how many requests the server had before it is not known",
                 "give the whole log from the server's start, or start a fresh server");
}

Finding check_fresh(const RowContext& row) {
  const Witnesses found = witnesses_of(row);
  if (!found.reused.empty()) {
    return fails(
        fmt::format("something was reused: {}", fmt::join(found.reused, "; ")),
        "turn the caches off (--cache-ram 0, --ctx-checkpoints 0, cache_prompt false), use a "
        "fresh server, and look for a shared template prefix where a token or two are cached");
  }
  if (found.fresh.size() >= 2) {
    return holds(fmt::format("{} witnesses: {}", found.fresh.size(), fmt::join(found.fresh, "; ")));
  }
  return unknown(
      found.fresh.empty()
          ? std::string("nothing says whether the prompt was fresh; what is missing is not "
                        "zero")
          : fmt::format("one witness alone: {}", found.fresh[0]),
      "record cached_tokens, the tokens that were evaluated, and the row's place since "
      "start");
}

Finding check_canaries(const RowContext& row) {
  const auto passed = row.integer("canary.passed"), total = row.integer("canary.total");
  if (!passed || !total || *total == 0) {
    return unknown("no canaries are recorded", "run the canary suite beside the speed rows");
  }
  if (*passed < 0 || *passed > *total) {
    return fails(fmt::format("{} of {} canaries passed, which cannot be", *passed, *total),
                 "look at how they were counted");
  }
  if (*passed < *total) {
    return fails(fmt::format("{} of {} canaries failed", *total - *passed, *total),
                 "find the fault before any speed is quoted");
  }
  // The rule of three: with n clean rows a rate above 3/n is excluded at 95 %.
  const std::string bound =
      fmt::format("{} clean rows: faults rarer than {:.2g} % would not have been seen", *total,
                  300.0 / static_cast<double>(*total));
  const auto drafting = row.boolean("canary.drafting");
  const bool drafts = !row.drafter().empty();
  if (drafts && drafting == false) {
    return fails(fmt::format("{}; but they ran without drafting, the speed rows with {}", bound,
                             row.drafter()),
                 "run them with the same drafter");
  }
  const auto length = row.integer("canary.max_tokens"), generated = row.integer("generated_tokens");
  if (length && generated && *length < *generated) {
    return fails(fmt::format("{}; but the longest had {} tokens, the speed row {}", bound, *length,
                             *generated),
                 "add canaries as long as the speed rows");
  }
  const bool ways_known = (!drafts || drafting.has_value()) && length && generated &&
                          (drafts || !row.effective("draft.source").empty() ||
                           (row.identity && row.identity->object.find("effective.draft.source") &&
                            row.identity->object.find("effective.draft.source")->known()));
  if (ways_known) return holds(bound);
  return unknown(fmt::format("{}; whether they drafted and were as long as the speed rows is not "
                             "recorded",
                             bound),
                 "record canary.drafting and canary.max_tokens");
}

Finding check_whole(const RowContext& row) {
  const auto asked = row.integer("requests.asked"), completed = row.integer("requests.completed");
  const auto failed = row.integer("requests.failed");
  if ((failed && *failed > 0) || (asked && completed && *completed < *asked)) {
    return fails(fmt::format("{} of {} requests were completed", completed.value_or(0),
                             asked ? fmt::format("{}", *asked) : "the"),
                 "run the whole suite again");
  }
  const auto suite = row.integer("suite.size");
  if (suite && static_cast<int64_t>(row.result.rows) < *suite) {
    return fails(fmt::format("{} rows of a suite of {}", row.result.rows, *suite),
                 "run all prompts of the suite: a subset has another median");
  }
  if (!row.text("error").empty()) {
    return fails(fmt::format("the request failed: {}", row.text("error").substr(0, 100)),
                 "run it again");
  }
  if (row.boolean("truncated").value_or(false)) {
    return fails("the context was full: it was cut", "give a larger context (-c)");
  }
  const std::string finish = row.text("finish_reason");
  static constexpr std::string_view lengths[] = {"length", "limit"};
  static constexpr std::string_view broken[] = {"fault", "cancelled", "context_full", "abort",
                                                "error"};
  if (std::find(std::begin(broken), std::end(broken), finish) != std::end(broken)) {
    return fails(fmt::format("it ended as {}", finish), "run it again to its end");
  }
  const auto wanted = row.integer("requested_tokens"), got = row.integer("generated_tokens");
  if (wanted && got && *got < *wanted) {
    return fails(fmt::format("{} tokens were asked for, {} came{}", *wanted, *got,
                             finish.empty() ? "" : fmt::format(" ({})", finish)),
                 "ignore the end token (ignore_eos), or compare only equal lengths");
  }
  if (wanted && got) return holds(fmt::format("all {} tokens that were asked for came", *got));
  if (got && std::find(std::begin(lengths), std::end(lengths), finish) != std::end(lengths)) {
    return holds(fmt::format("it ran to the length that was asked for: {} tokens", *got));
  }
  // A benchmark that forces its tokens has no end of its own.
  if (row.boolean("warmed").value_or(false) && (got || row.integer("tokens"))) {
    return holds("the length is forced");
  }
  return unknown(got ? fmt::format("{} tokens came; how many were asked for is not recorded", *got)
                     : std::string("how many tokens were asked for and came is not recorded"),
                 "record the requested length and the finish reason");
}

Finding check_alone(const RowContext& row) {
  std::vector<std::string> bad, missing;
  const auto over = [&](std::string_view name, int64_t most, std::string_view what) {
    const auto value = row.integer(name);
    if (value && *value > most) bad.push_back(fmt::format("{} {}", *value, what));
  };
  over("slots", 1, "slots");
  over("concurrency", 1, "requests at a time");
  over("concurrency_seen", 1, "requests were seen at a time");
  over("other_processes", 0, "other processes on the device");
  over("lanes_beside", 0, "other lanes ran on this host in the same minute");
  if (row.boolean("other_slot").value_or(false)) bad.emplace_back("another slot worked beside it");
  if (row.boolean("after_fault").value_or(false)) {
    bad.emplace_back("a fault of the device or of a pass was logged before it");
  }
  if (row.boolean("profiler").value_or(false)) bad.emplace_back("a profiler was on");
  if (row.boolean("synthetic").value_or(false)) {
    bad.emplace_back("the model or its drafts are made up");
  }
  if (row.identity) {
    for (const Fact& fact : row.identity->object.facts()) {
      if (!fact.known() || fact.value.empty() || fact.value == "0" || fact.value == "false")
        continue;
      if (fact.name.find("spec_synth") != std::string::npos ||
          fact.name.find("spec-synth") != std::string::npos) {
        bad.push_back(fmt::format("{} makes acceptance up", fact.name));
      }
      if (fact.name.find("PROFIL") != std::string::npos ||
          fact.name.find("profil") != std::string::npos) {
        bad.push_back(fmt::format("{} profiles", fact.name));
      }
    }
  }
  if (!bad.empty()) {
    return fails(fmt::format("not alone: {}", fmt::join(bad, "; ")),
                 "run it again with one slot and nothing beside it; side by side may only reject");
  }
  if (!row.integer("slots") && !row.integer("concurrency")) missing.emplace_back("slots");
  if (!row.integer("other_processes")) missing.emplace_back("other processes on the device");
  if (missing.empty()) return holds("one slot, and no other process on the device");
  return unknown(
      fmt::format("nothing speaks against it; not recorded: {}", fmt::join(missing, ", ")),
      "record what else ran on the device");
}

}  // namespace lockstep::lab
