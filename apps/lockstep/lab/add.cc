// lockstep lab add: one object, said by hand or by a script.
#include <fmt/format.h>

#include <memory>

#include "lab/lab.h"
#include "lab/ledger/history.h"
#include "lab/ledger_common.h"
#include "lab/results/kinds.h"

namespace lockstep::app {
namespace {

struct AddOptions : LedgerOptions {
  std::string kind;
  std::vector<std::string> words;
  std::optional<std::string> file, artifact, provenance, source, supersedes;
};

class Adder {
 public:
  Adder(lab::Ledger& ledger, lab::Object& object, lab::Origin origin)
      : ledger_(ledger), object_(object), origin_(std::move(origin)) {}

  void set(const std::string& name, const Json& value) {
    const auto type = lab::field_type(object_.kind(), name);
    if (!type) {
      bad_use(fmt::format("{}: no field of a {}; there are: {}", shorten(name),
                          lab::name_of(object_.kind()), lab::fields_of(object_.kind())));
    }
    if (value.is_null()) {
      object_.absent(origin_, name, "not known");
      return;
    }
    const auto wrong = [&](std::string_view wanted) {
      bad_use(fmt::format("{}={}: {} has to be {}", shorten(name), shorten(text(value)),
                          shorten(name), wanted));
    };
    switch (*type) {
      case lab::FactType::text: {
        const bool setting = name.starts_with("setting.");
        object_.text(origin_,
                     setting ? fmt::format("setting.{}", lab::canonical_key(name.substr(8))) : name,
                     setting ? lab::canonical_value(text(value)) : text(value));
        break;
      }
      case lab::FactType::integer: {
        const auto number = lab::read_integer(text(value));
        if (!number) wrong("a whole number");
        object_.integer(origin_, name, *number);
        break;
      }
      case lab::FactType::real: {
        const auto number = lab::read_number(text(value));
        if (!number) wrong("a number");
        object_.real(origin_, name, *number);
        break;
      }
      case lab::FactType::boolean:
        if (text(value) != "true" && text(value) != "false") wrong("true or false");
        object_.boolean(origin_, name, text(value) == "true");
        break;
      case lab::FactType::ref:
        object_.ref(origin_, name, resolved(text(value)));
        break;
      case lab::FactType::json:
        object_.json(origin_, name, list(name, value));
        break;
      case lab::FactType::absent:
        break;
    }
  }

 private:
  static std::string text(const Json& value) {
    return value.is_string() ? value.get<std::string>()
                             : value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  std::string resolved(const std::string& id) {
    if (id.size() == 64 && ledger_.has_artifact(id)) return id;
    return ledger_.resolve(id);
  }
  // Lists of ids are written whole.
  std::string list(const std::string& name, const Json& value) {
    Json json = value;
    if (value.is_string()) json = Json::parse(value.get<std::string>(), nullptr, false);
    if (json.is_discarded()) bad_use(fmt::format("{}: not JSON", shorten(name)));
    if (name == "runs" || name == "selection_rows" || name == "confirmation_rows") {
      if (!json.is_array()) bad_use(fmt::format("{}: give a list of ids", name));
      for (Json& id : json) id = ledger_.resolve(text(id));
    }
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  }

  lab::Ledger& ledger_;
  lab::Object& object_;
  lab::Origin origin_;
};

lab::Origin origin_of(const AddOptions& options) {
  lab::Origin origin;
  origin.source = options.source.value_or("");
  if (!options.provenance) return origin;
  const auto provenance = lab::provenance_named(*options.provenance);
  if (!provenance) {
    bad_use(fmt::format("--provenance {}: give logged, reported or inferred",
                        shorten(*options.provenance)));
  }
  // "verified" is what the lab measured itself, and nobody can say it in its place.
  if (*provenance == lab::Provenance::verified) {
    bad_use(
        "--provenance verified: only what the lab measures itself is; give logged with the log as "
        "--artifact, or reported");
  }
  if (*provenance == lab::Provenance::logged && !options.artifact) {
    bad_use("--provenance logged: give the log that says it with --artifact");
  }
  origin.provenance = *provenance;
  return origin;
}

// What a candidate changes, from the words of its change, and its fingerprint.
void complete_candidate(lab::Object& object, const lab::Origin& origin) {
  const std::string change = object.value("change");
  for (const lab::Setting& setting : lab::settings_of_text(change)) {
    if (!object.find("setting." + setting.key)) {
      object.text(origin, "setting." + setting.key, setting.value);
    }
  }
  if (object.find("fingerprint")) return;
  std::vector<lab::Setting> settings = lab::settings_of(object);
  if (settings.empty()) {
    if (change.empty()) bad_use("a candidate has to say its change or a setting.KEY=VALUE");
    settings.push_back({"words", lab::folded(change)});
  }
  object.text({lab::Provenance::inferred, "settings"}, "fingerprint", lab::fingerprint(settings));
}

ExitCode add(const AddOptions& options) {
  const auto kind = lab::kind_named(options.kind);
  if (!kind || *kind == lab::Kind::import || *kind == lab::Kind::artifact) {
    bad_use(
        fmt::format("{}: no kind to add; give identity, row, run, block, candidate, verdict, "
                    "record, oracle or claim, and its fields as NAME=VALUE",
                    options.kind.empty() ? "no kind" : shorten(options.kind)));
  }
  lab::Origin origin = origin_of(options);
  lab::Ledger ledger = options.open(lab::Database::Mode::create);
  lab::Object object(*kind);
  const std::string log = options.artifact ? read_result_file(*options.artifact) : "";
  if (options.artifact) {
    const std::string sha = lab::text_sha256(log);
    if (origin.source.empty()) origin.source = "artifact " + sha;
    object.ref({lab::Provenance::verified, ""}, "artifact", sha);
  }
  Adder adder(ledger, object, origin);
  if (options.file) {
    const Json facts = Json::parse(read_result_file(*options.file), nullptr, false);
    if (!facts.is_object()) {
      throw Error(ExitCode::bad_file,
                  fmt::format("{}: not one JSON object of fields", shorten(*options.file)));
    }
    for (const auto& [name, value] : facts.items()) adder.set(name, value);
  }
  for (const std::string& word : options.words) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      bad_use(fmt::format("{}: give fields as NAME=VALUE, and NAME=? for what is not known",
                          shorten(word)));
    }
    const std::string value = word.substr(equals + 1);
    adder.set(word.substr(0, equals), value == "?" ? Json() : Json(value));
  }
  if (*kind == lab::Kind::candidate) complete_candidate(object, origin);
  if (options.supersedes) object.supersede(ledger.resolve(*options.supersedes));
  if (*kind == lab::Kind::record) {
    if (const std::string fault = lab::fault_of(object); !fault.empty()) bad_use(fault);
    const auto faults = lab::record_faults(lab::load_catalog(ledger), object);
    if (!faults.empty()) {
      throw Error(ExitCode::check_failed, fmt::format("no record: {}", fmt::join(faults, "; ")));
    }
  }
  lab::Writer writer(ledger);
  if (options.artifact) writer.add_artifact(log, *options.artifact);
  const lab::Writer::Added added = writer.add(object);
  writer.commit();
  if (options.json) {
    Json out = {{"schema", "lockstep.lab.add/1"}, {"added", added.fresh}};
    out.update(object_json(added.id, object));
    print_json(out);
    return ExitCode::ok;
  }
  print(fmt::format("{} {}{}\n", options.kind, added.id, added.fresh ? "" : " (was there)"));
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_add(Flags& flags) {
  const auto options = std::make_shared<AddOptions>();
  options->bind(flags);
  flags.text("--file", options->file);
  flags.text("--artifact", options->artifact);
  flags.text("--provenance", options->provenance);
  flags.text("--source", options->source);
  flags.text("--supersedes", options->supersedes);
  flags.positional("KIND", "identity, row, run, block, candidate, verdict, record, oracle or claim",
                   options->kind);
  flags.positionals("NAME=VALUE", "its fields; NAME=? for what is not known", options->words);
  flags.describe(
      "Adds one object to the ledger. Nothing is edited: --supersedes puts a new object in "
      "the place of an old one, which stays. A record is refused where an identity or "
      "measured figures are missing under it.",
      "lockstep lab add candidate change=\"MTP_P_MIN=0.136\" lane=gemma4-q8 "
      "retry=\"when engine.commit != 839a572a\"");
  return [options] { return add(*options); };
}

}  // namespace lockstep::app
