#include "lab/results/reader.h"

#include <algorithm>

#include "lab/csv/csv.h"
#include "lab/results/fingerprint.h"
#include "lab/results/read_context.h"

namespace lockstep::lab {
namespace {

constexpr std::string_view kUsable =
    "give a table of runs (CSV with run, change, fresh_tok_s, verdict), llama-bench -o json, jsonl "
    "or csv, lockstep run, bench or lab log --json, a server's answer with its timings, or vllm "
    "bench serve --save-result";

[[noreturn]] void refuse(std::string_view name, std::string_view what) {
  throw Error(ExitCode::bad_file, fmt::format("{}: {}; {}", name, what, kUsable));
}

bool is_llama_bench(const Json& object) {
  return object.is_object() && object.contains("build_commit") && object.contains("avg_ts");
}

bool is_vllm_bench(const Json& object) {
  return object.is_object() && object.contains("request_throughput") &&
         (object.contains("model_id") || object.contains("output_throughput"));
}

// What llama-server and `lockstep serve` answer a client with.
bool is_server_answer(const Json& object) {
  const Json* timings = at_path(object, "timings");
  return timings && timings->is_object() && timings->contains("predicted_n") &&
         timings->contains("predicted_ms");
}

std::string schema_of(const Json& object) {
  if (!object.is_object()) return "";
  const auto at = object.find("schema");
  return at != object.end() && at->is_string() ? at->get<std::string>() : "";
}

// One JSON value that is a whole result; false where it is none of the known ones.
bool read_object(Reading& reading, const Json& value, std::string_view place) {
  const std::string schema = schema_of(value);
  const auto format = [&](std::string_view name) {
    if (reading.format.empty()) reading.format = name;
  };
  if (schema == "lockstep.run/1") {
    format(schema), read_lockstep_run(reading, value);
  } else if (schema == "lockstep.bench/1") {
    format(schema), read_lockstep_bench(reading, value);
  } else if (schema == "lockstep.bench-row/1") {
    format(schema), read_lockstep_bench_row(reading, value, place);
  } else if (schema == "lockstep.lab.log/1") {
    format(schema), read_lab_log(reading, value);
  } else if (is_llama_bench(value)) {
    format("llama-bench"), read_llama_bench(reading, value, place);
  } else if (is_vllm_bench(value)) {
    format("vllm-bench"), read_vllm_bench(reading, value);
  } else if (is_server_answer(value)) {
    format("server-answer"), read_server_answer(reading, value, place);
  } else {
    return false;
  }
  return true;
}

void read_json(Reading& reading, std::string_view name, const Json& value) {
  if (value.is_array()) {
    size_t i = 0;
    for (const Json& element : value) {
      const std::string place = fmt::format("[{}]", i++);
      if (!read_object(reading, element, place)) {
        skip(reading, fmt::format("{}: element {} is no result", name, place));
      }
    }
  } else if (!read_object(reading, value, "")) {
    const std::string schema = schema_of(value);
    refuse(name, schema.empty() ? "JSON, but no result that is known"
                                : fmt::format("schema {} is not known", shorten(schema)));
  }
}

// Every line a JSON object of its own.
void read_lines(Reading& reading, std::string_view name, std::string_view bytes) {
  int64_t line = 0;
  for (size_t begin = 0; begin < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', begin), bytes.size());
    const std::string_view text = bytes.substr(begin, end - begin);
    begin = end + 1;
    ++line;
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Json value = Json::parse(text, nullptr, false);
    if (value.is_discarded()) {
      skip(reading, fmt::format("line {}: no JSON", line));
    } else if (!read_object(reading, value, fmt::format("line {}", line))) {
      skip(reading, fmt::format("line {}: no result that is known", line));
    }
  }
  if (reading.objects.empty()) refuse(name, "no line of it is a result");
}

}  // namespace

const Json* at_path(const Json& object, std::string_view path) {
  const Json* at = &object;
  while (true) {
    const size_t dot = path.find('.');
    if (!at->is_object()) return nullptr;
    const auto next = at->find(std::string(path.substr(0, dot)));
    if (next == at->end()) return nullptr;
    at = &*next;
    if (dot == std::string_view::npos) return at;
    path.remove_prefix(dot + 1);
  }
}

std::string plain(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return shortest(value.get<double>());
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void copy_fact(Object& object, const Origin& origin, const Json& from, std::string_view path,
               std::string_view name, Want want) {
  const Json* value = at_path(from, path);
  if (!value) {
    object.absent(origin, name, "not in the file");
    return;
  }
  if (value->is_null()) {
    object.absent(origin, name, "null in the file");
    return;
  }
  switch (want) {
    case Want::integer:
      // Unsigned numbers above the signed range are no counts that anything had.
      if (value->is_number_integer() &&
          !(value->is_number_unsigned() && value->get<uint64_t>() > uint64_t{INT64_MAX})) {
        object.integer(origin, name, value->get<int64_t>());
        return;
      }
      break;
    case Want::real:
      if (value->is_number()) {
        object.real(origin, name, value->get<double>());
        return;
      }
      break;
    case Want::boolean:
      if (value->is_boolean()) {
        object.boolean(origin, name, value->get<bool>());
        return;
      }
      break;
    case Want::text:
      if (value->is_string()) {
        object.text(origin, name, value->get<std::string>());
        return;
      }
      break;
    case Want::json: {
      std::string dumped = value->dump(-1, ' ', false, Json::error_handler_t::replace);
      if (dumped.size() > kMaxValue / 2) {
        object.absent(origin, name,
                      fmt::format("{} bytes: kept in the artifact alone", dumped.size()));
      } else {
        object.json(origin, name, dumped);
      }
      return;
    }
  }
  object.absent(
      origin, name,
      fmt::format("not of its type in the file: {}", shorten(plain(*value).substr(0, 200))));
}

void set_place(Object& object, const Reading& reading, std::string_view place) {
  const Origin origin{Provenance::verified, ""};
  object.ref(origin, "artifact", reading.artifact);
  if (!place.empty()) object.text(origin, "place", place);
  object.text(origin, "format", reading.format);
}

Reading read_result(std::string_view name, std::string_view bytes) {
  Reading reading;
  reading.artifact = text_sha256(bytes);
  if (bytes.empty()) refuse(name, "empty");
  if (bytes.size() > kMaxResultBytes) {
    throw Error(ExitCode::bad_file, fmt::format("{}: {} bytes; results of up to {} MiB are read",
                                                name, bytes.size(), kMaxResultBytes >> 20));
  }
  if (bytes.starts_with("\xFF\xFE") || bytes.starts_with("\xFE\xFF")) {
    throw Error(ExitCode::bad_file, fmt::format("{}: UTF-16; save it as UTF-8", name));
  }
  if (bytes.starts_with("\xEF\xBB\xBF")) bytes.remove_prefix(3);
  const size_t first = bytes.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) refuse(name, "only blanks");
  if (bytes.substr(0, 4096).find('\0') != std::string_view::npos) {
    refuse(name, "binary, no text");
  }
  if (bytes[first] == '{' || bytes[first] == '[') {
    const Json value = Json::parse(bytes, nullptr, false);
    if (!value.is_discarded()) {
      read_json(reading, name, value);
    } else if (bytes[first] == '{' && bytes.find('\n', first) != std::string_view::npos) {
      read_lines(reading, name, bytes);
    } else {
      refuse(name, "JSON that ends in the middle or has a fault");
    }
  } else {
    const std::string_view header = bytes.substr(first, bytes.find('\n', first) - first);
    if (header.find("build_commit") != std::string_view::npos) {
      reading.format = "llama-bench";
      read_llama_bench_csv(reading, bytes);
    } else if (header.find(',') != std::string_view::npos) {
      reading.format = "runs-csv";
      read_runs_csv(reading, bytes);
    } else {
      refuse(name, "neither JSON nor CSV");
    }
  }
  if (reading.objects.empty()) {
    refuse(name, reading.notes.empty()
                     ? "no row of it can be used"
                     : fmt::format("no row of it can be used ({})", reading.notes.front()));
  }
  return reading;
}

std::vector<std::string> identity_gaps(const Object& identity) {
  std::vector<std::string> gaps;
  for (const std::string_view key : kIdentityKeys) {
    const Fact* fact = identity.find(fmt::format("effective.{}", key));
    if (!fact || !fact->known()) gaps.emplace_back(key);
  }
  // A draft that is a file has a hash, and a draft has a length.
  const Fact* draft = identity.find("effective.draft.source");
  if (draft && draft->known() && !draft->value.empty() && draft->value != "none") {
    const Fact* n_max = identity.find("effective.n_max");
    if (!n_max || !n_max->known()) gaps.emplace_back("n_max");
  }
  return gaps;
}

std::vector<std::string> identity_mismatches(const Object& identity) {
  std::vector<std::string> out;
  for (const Fact& fact : identity.facts()) {
    if (!fact.name.starts_with("requested.") || !fact.known()) continue;
    const std::string key = fact.name.substr(10);
    const Fact* effective = identity.find("effective." + key);
    if (!effective || !effective->known()) continue;
    if (canonical_value(fact.value) != canonical_value(effective->value)) {
      out.push_back(
          fmt::format("{}: requested {}, effective {}", key, fact.value, effective->value));
    }
  }
  return out;
}

std::optional<bool> retry_holds(std::string_view condition, const Object* identity) {
  if (condition == "never") return false;
  if (!condition.starts_with("when ")) return std::nullopt;
  condition.remove_prefix(5);
  const size_t equals = condition.find('=');
  if (equals == std::string_view::npos || equals == 0) return std::nullopt;
  const bool differs = condition[equals - 1] == '!';
  const auto trimmed = [](std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    return std::string(text);
  };
  const std::string key = trimmed(condition.substr(0, equals - differs));
  const std::string value = trimmed(condition.substr(equals + 1));
  const Fact* fact = identity ? identity->find("effective." + key) : nullptr;
  if (!fact || !fact->known()) return std::nullopt;
  return (canonical_value(fact->value) == canonical_value(value)) != differs;
}

}  // namespace lockstep::lab
