#include "lab/lint/lint.h"

#include <nlohmann/json.hpp>
#include <set>

#include "lab/lint/row_context.h"

namespace lockstep::lab {
namespace {

using Check = Finding (*)(const RowContext&);
constexpr std::array<Check, 12> kChecks = {
    check_first,  check_fresh, check_canaries, check_identity, check_exact,    check_closed,
    check_metric, check_whole, check_alone,    check_treated,  check_possible, check_new};

std::string label_of(const RowContext& row) {
  for (const std::string_view name : {"name", "test", "place"}) {
    const std::string text = row.row.object.value(name);
    if (!text.empty()) return text;
  }
  return row.row.id.substr(0, 12);
}

}  // namespace

std::string_view name_of(Outcome outcome) {
  static constexpr std::string_view names[] = {"holds", "fails", "unknown"};
  return names[static_cast<size_t>(outcome)];
}

const Fact* RowContext::fact(std::string_view name) const {
  for (const Catalog::Item* item : {&row, run}) {
    if (!item) continue;
    const Fact* found = item->object.find(name);
    if (found && found->known()) return found;
  }
  return nullptr;
}
std::optional<double> RowContext::number(std::string_view name) const {
  const Fact* found = fact(name);
  return found ? found->number() : std::nullopt;
}
std::optional<int64_t> RowContext::integer(std::string_view name) const {
  const Fact* found = fact(name);
  const std::optional<int64_t> value = found ? found->integer() : std::nullopt;
  if (value && (*value > kMostCount || *value < -kMostCount)) return std::nullopt;
  return value;
}
std::optional<bool> RowContext::boolean(std::string_view name) const {
  const Fact* found = fact(name);
  return found ? found->boolean() : std::nullopt;
}
std::string RowContext::text(std::string_view name) const {
  const Fact* found = fact(name);
  return found ? found->value : "";
}
std::string RowContext::effective(std::string_view key) const {
  return identity ? identity->object.value(fmt::format("effective.{}", key)) : "";
}
std::string RowContext::requested(std::string_view key) const {
  return identity ? identity->object.value(fmt::format("requested.{}", key)) : "";
}
std::string RowContext::drafter() const {
  for (const std::string& source :
       {text("draft.source"), effective("draft.source"), requested("draft.source")}) {
    if (!source.empty() && source != "none") return source;
  }
  return "";
}
std::vector<double> RowContext::numbers(std::string_view name) const {
  std::vector<double> out;
  const Fact* found = fact(name);
  if (!found || found->type != FactType::json) return out;
  const auto list = nlohmann::json::parse(found->value, nullptr, false);
  if (!list.is_array()) return out;
  for (const auto& value : list) {
    if (!value.is_number()) return {};
    out.push_back(value.get<double>());
  }
  return out;
}

std::string exact_key(const Object& row) {
  const std::string prompt = row.value("prompt_sha256"), n = row.value("generated_tokens");
  if (prompt.empty() || n.empty()) return "";
  return prompt + " " + n + " " + row.value("identity");
}

std::vector<LintedRow> lint(const Catalog& catalog, const LintOptions& options,
                            const Catalog::Item* only) {
  std::vector<const Catalog::Item*> rows = catalog.of(Kind::row);
  const auto key_of = [](const Catalog::Item& item) {
    return item.object.value("artifact") + item.object.value("format");
  };
  const auto context = [&](const Catalog::Item& item, const ResultFacts& result) {
    return RowContext{catalog,
                      options,
                      item,
                      catalog.run_of(item),
                      catalog.identity_of(item),
                      catalog.candidate_of(item),
                      result};
  };
  // A cold suite has at least as many prompts as the smallest that is called one (cold12).
  constexpr size_t kColdSuite = 12;
  std::map<std::string, ResultFacts> results;
  std::map<std::string, std::set<std::string>> prompts;
  std::set<std::string> with_rows, warm;
  for (const Catalog::Item* row : rows) {
    const std::string key = key_of(*row);
    ResultFacts& result = results[key];
    ++result.rows;
    with_rows.insert(row->object.value("run"));
    const Fact* cached = row->object.find("cached_tokens");
    const std::string prompt = row->object.value("prompt_sha256");
    if (!cached || cached->integer() != 0 || prompt.empty() ||
        !prompts[key].insert(prompt).second) {
      warm.insert(key);
    }
    const Denominator denominator = denominator_of(context(*row, result));
    result.all |= denominator == Denominator::all;
    result.steps |= denominator == Denominator::steps;
    const std::string exact = exact_key(row->object), tokens = row->object.value("token_sha256");
    if (!exact.empty() && !tokens.empty()) result.tokens[exact].insert(tokens);
  }
  for (auto& [key, result] : results) {
    if (!warm.contains(key) && prompts[key].size() >= kColdSuite) result.cold_suite = result.rows;
  }
  for (const Catalog::Item* run : catalog.of(Kind::run)) {
    if (!with_rows.contains(run->id)) rows.push_back(run);
  }
  if (only) rows = {only};
  std::vector<LintedRow> out;
  for (const Catalog::Item* item : rows) {
    const RowContext row = context(*item, results[key_of(*item)]);
    LintedRow linted;
    linted.id = item->id;
    linted.name = label_of(row);
    for (size_t i = 0; i < kChecks.size(); ++i) linted.findings[i] = kChecks[i](row);
    out.push_back(std::move(linted));
  }
  return out;
}

}  // namespace lockstep::lab
