#include "lab/results/kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace lockstep::lab {
namespace {

struct Field {
  std::string_view name;  // "setting.*": every name that starts with "setting."
  FactType type;
  bool needed = false;
};
constexpr FactType T = FactType::text, I = FactType::integer, R = FactType::real,
                   B = FactType::boolean, J = FactType::json, O = FactType::ref;

// Every kind may say these.
const std::vector<Field> kCommon = {{"note", T},   {"artifact", O}, {"place", T},
                                    {"format", T}, {"lane", T},     {"name", T}};

const std::vector<Field>& fields(Kind kind) {
  static const std::vector<Field> artifact = {{"sha256", O, true}, {"bytes", I, true}, {"file", T}};
  static const std::vector<Field> import = {
      {"file", T}, {"importer", I, true}, {"objects", I, true}, {"skipped", I}, {"notes", J}};
  // sampling and hashes of drafts are JSON; everything else of an identity is a text or a number.
  static const std::vector<Field> identity = {
      {"requested.*", T}, {"effective.*", T}, {"receipt.*", T}};
  static const std::vector<Field> row = {{"run", O},
                                         {"identity", O},
                                         {"index", I},
                                         {"test", T},
                                         {"test_kind", T},
                                         {"prompt_tokens", I},
                                         {"cached_tokens", I},
                                         {"generated_tokens", I},
                                         {"evaluated_tokens", I},
                                         {"first_tokens", I},
                                         {"requested_tokens", I},
                                         {"tokens", I},
                                         {"depth", I},
                                         {"width", I},
                                         {"passes", I},
                                         {"repetitions", I},
                                         {"events", I},
                                         {"prompt_ms", R},
                                         {"decode_ms", R},
                                         {"ms", R},
                                         {"ms_per_pass", R},
                                         {"ttft_ms", R},
                                         {"decode_tok_s", R},
                                         {"printed_tok_s", R},
                                         {"prompt_tok_s", R},
                                         {"tok_s", R},
                                         {"wall_tok_s", R},
                                         {"stddev_tok_s", R},
                                         {"samples_tok_s", J},
                                         {"samples_ms", J},
                                         {"bytes_per_pass", R},
                                         {"bandwidth_gb_s", R},
                                         {"fraction", R},
                                         {"denominator", T},
                                         {"printed_denominator", T},
                                         {"draft.source", T},
                                         {"draft.steps", I},
                                         {"draft.verify_steps", I},
                                         {"draft.drafted", I},
                                         {"draft.accepted", I},
                                         {"draft.mean_len", R},
                                         {"draft.per_position", J},
                                         {"draft.depths", J},
                                         {"finish", T},
                                         {"finish_reason", T},
                                         {"token_sha256", T},
                                         {"prompt_sha256", T},
                                         {"synthetic", B},
                                         {"warmed", B},
                                         {"truncated", B},
                                         {"other_slot", B},
                                         {"after_fault", B},
                                         {"witnesses", J},
                                         {"witness.*", J},
                                         {"cached_from", T},
                                         {"contradictions", J},
                                         {"error", T}};
  static const std::vector<Field> run = {{"candidate", O},
                                         {"identity", O},
                                         {"engine", T},
                                         {"device", T},
                                         {"batch", T},
                                         {"stage", T},
                                         {"started_at", T},
                                         {"ended", T},
                                         {"lanes_beside", I},
                                         {"canary.passed", I},
                                         {"canary.total", I},
                                         {"canary.widths", J},
                                         {"canary.drafting", B},
                                         {"canary.max_tokens", I},
                                         {"support.mean_tok_s", R},
                                         {"support.max_tok_s", R},
                                         {"slots", I},
                                         {"concurrency", I},
                                         {"concurrency_seen", I},
                                         {"other_processes", I},
                                         {"profiler", B},
                                         {"synthetic", B},
                                         {"generation", J},
                                         {"request_rate", T},
                                         {"requests.asked", I},
                                         {"requests.completed", I},
                                         {"requests.failed", I},
                                         {"duration_s", R},
                                         {"total.prompt_tokens", I},
                                         {"total.generated_tokens", I},
                                         {"total.tok_s", R},
                                         {"median_tpot_ms", R},
                                         {"median_ttft_ms", R},
                                         {"draft.drafted", I},
                                         {"draft.accepted", I},
                                         {"draft.steps", I},
                                         {"draft.mean_len", R},
                                         {"draft.per_position", J},
                                         {"treatment.receipt", T},
                                         {"suite", T},
                                         {"suite.size", I}};
  static const std::vector<Field> block = {
      {"order", T, true}, {"runs", J, true}, {"candidate", O}, {"control", O}};
  static const std::vector<Field> candidate = {{"change", T},        {"recipe", T},
                                               {"setting.*", T},     {"env.*", T},
                                               {"binary_sha256", T}, {"patch.repository", T},
                                               {"patch.base", T},    {"patch.diff", O},
                                               {"patch.build", T},   {"fingerprint", T, true},
                                               {"hypothesis", T},    {"predicted_effect", R},
                                               {"retry", T}};
  static const std::vector<Field> verdict = {
      {"verdict", T, true}, {"candidate", O, true}, {"run", O},   {"block", O},  {"stage", T},
      {"said", T},          {"reasons", J},         {"fault", T}, {"effect", R}, {"effect_low", R},
      {"effect_high", R},   {"inert", B},           {"retry", T}};
  static const std::vector<Field> record = {
      {"row", O, true},      {"identity", O, true},       {"candidate", O, true},
      {"control", O, true},  {"metric", T, true},         {"level", R, true},
      {"unit", T, true},     {"effect", R, true},         {"effect_low", R},
      {"effect_high", R},    {"selected", R, true},       {"confirmed", R, true},
      {"expected", R, true}, {"selection_rows", J, true}, {"confirmation_rows", J, true}};
  static const std::vector<Field> oracle = {
      {"prompt_sha256", T, true}, {"token_sha256", T, true}, {"tokens", O},
      {"generated_tokens", I},    {"identity", O},           {"model.sha256", T, true},
      {"kernel", T, true},        {"drafting", B, true}};
  static const std::vector<Field> claim = {
      {"metric", T, true}, {"value", R, true}, {"unit", T}, {"said", T}, {"by", T},
      {"where", T},        {"candidate", O},   {"run", O},  {"row", O},  {"started_at", T}};
  switch (kind) {
    case Kind::artifact:
      return artifact;
    case Kind::import:
      return import;
    case Kind::identity:
      return identity;
    case Kind::row:
      return row;
    case Kind::run:
      return run;
    case Kind::block:
      return block;
    case Kind::candidate:
      return candidate;
    case Kind::verdict:
      return verdict;
    case Kind::record:
      return record;
    case Kind::oracle:
      return oracle;
    case Kind::claim:
      return claim;
  }
  return artifact;
}

const Field* field_of(Kind kind, std::string_view name) {
  for (const std::vector<Field>* list : {&fields(kind), &kCommon}) {
    for (const Field& field : *list) {
      if (field.name.ends_with(".*")
              ? name.size() >= field.name.size() &&
                    name.starts_with(field.name.substr(0, field.name.size() - 1))
              : name == field.name) {
        return &field;
      }
    }
  }
  return nullptr;
}

bool is_hex64(std::string_view text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

// A field of a family holds whatever was said; a real may be a whole number.
bool fits(const Field& field, const Fact& fact) {
  if (!fact.known() || field.name.ends_with(".*")) return true;
  if (field.type == FactType::real) return fact.number().has_value();
  return fact.type == field.type;
}

}  // namespace

std::optional<FactType> field_type(Kind kind, std::string_view name) {
  const Field* field = field_of(kind, name);
  return field ? std::optional(field->type) : std::nullopt;
}

std::string fields_of(Kind kind) {
  std::string out;
  for (const std::vector<Field>* list : {&fields(kind), &kCommon}) {
    for (const Field& field : *list) out += (out.empty() ? "" : ", ") + std::string(field.name);
  }
  return out;
}

std::string fault_of(const Object& object) {
  const std::string_view kind = name_of(object.kind());
  for (const Fact& fact : object.facts()) {
    const Field* field = field_of(object.kind(), fact.name);
    if (!field) {
      return fmt::format("{}: no field of a {}; there are: {}", shorten(fact.name), kind,
                         fields_of(object.kind()));
    }
    if (!fits(*field, fact)) {
      return fmt::format("{}: {}, where a {} has {}", shorten(fact.name), name_of(fact.type), kind,
                         name_of(field->type));
    }
    if (fact.type == FactType::ref && !is_hex64(fact.value)) {
      return fmt::format("{}: {} is no id", fact.name, shorten(fact.value));
    }
  }
  for (const Field& field : fields(object.kind())) {
    const Fact* fact = field.needed ? object.find(field.name) : nullptr;
    if (field.needed && (!fact || !fact->known())) {
      return fmt::format("a {} has to say: {}", kind, field.name);
    }
  }
  if (object.kind() == Kind::verdict) {
    const std::string verdict = object.value("verdict");
    if (std::find(std::begin(kVerdicts), std::end(kVerdicts), verdict) == std::end(kVerdicts)) {
      return fmt::format("verdict {}: give one of {}", shorten(verdict),
                         fmt::join(kVerdicts, ", "));
    }
  }
  return "";
}

bool rejects(std::string_view verdict) {
  return verdict == "not_better" || verdict == "inexact" || verdict == "invalid" ||
         verdict == "fault";
}

}  // namespace lockstep::lab
