#include "lab/ledger_common.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "lab/results/reader.h"

namespace lockstep::app {
namespace {

// Characters, not bytes: enough for columns of names and figures.
size_t width_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::string cut(std::string_view text, size_t widest) {
  if (width_of(text) <= widest) return std::string(text);
  size_t bytes = 0, characters = 0;
  while (bytes < text.size() && characters < widest - 1) {
    ++bytes;
    while (bytes < text.size() && (static_cast<uint8_t>(text[bytes]) & 0xC0) == 0x80) ++bytes;
    ++characters;
  }
  return std::string(text.substr(0, bytes)) + "…";
}

}  // namespace

void LedgerOptions::bind(Flags& flags) {
  flags.text("--ledger", where);
  flags.toggle("--json", json);
}

std::string LedgerOptions::place() const {
  if (where && where->empty()) bad_use("--ledger: empty; give a path or postgresql://…");
  return where.value_or(".lockstep/ledger.db");
}

lab::Ledger LedgerOptions::open(lab::Database::Mode mode) const {
  return lab::Ledger(place(), mode);
}

std::string read_result_file(const std::string& path) {
  namespace fs = std::filesystem;
  const auto refuse = [&](std::string_view why) {
    throw Error(ExitCode::bad_file, fmt::format("{}: {}", shorten(path), why));
  };
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) refuse("a directory; name the files in it");
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(std::strerror(errno));
  std::string bytes;
  std::vector<char> buffer(size_t{1} << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())) ||
         file.gcount() > 0) {
    bytes.append(buffer.data(), static_cast<size_t>(file.gcount()));
    if (bytes.size() > lab::kMaxResultBytes) {
      refuse(fmt::format("more than {} MiB; split it", lab::kMaxResultBytes >> 20));
    }
  }
  if (file.bad()) refuse("cannot be read to its end");
  return bytes;
}

std::string table_of(const std::vector<std::vector<std::string>>& rows, size_t widest) {
  std::vector<size_t> widths;
  std::vector<std::vector<std::string>> shown;
  for (const auto& row : rows) {
    std::vector<std::string> cells;
    for (size_t i = 0; i < row.size(); ++i) {
      const bool last = i + 1 == row.size();
      cells.push_back(cut(escape(row[i]), last ? 200 : widest));
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], width_of(cells.back()));
    }
    shown.push_back(std::move(cells));
  }
  std::string out;
  for (const auto& cells : shown) {
    std::string line;
    for (size_t i = 0; i < cells.size(); ++i) {
      line += cells[i];
      if (i + 1 < cells.size()) line += std::string(widths[i] - width_of(cells[i]) + 2, ' ');
    }
    while (line.ends_with(' ')) line.pop_back();
    out += line + "\n";
  }
  return out;
}

std::string short_id(std::string_view id) {
  return std::string(id.substr(0, 12));
}

std::string short_source(std::string_view source) {
  if (!source.starts_with("artifact ") || source.size() < 73) return std::string(source);
  return fmt::format("artifact {}{}", source.substr(9, 12), source.substr(73));
}

std::string number_text(const std::optional<double>& value) {
  return value ? fmt::format("{:.3f}", *value) : "-";
}

Json number_json(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

Json fact_json(const lab::Fact& fact) {
  Json out;
  switch (fact.type) {
    case lab::FactType::integer:
      out["value"] = fact.integer().value_or(0);
      break;
    case lab::FactType::real:
      out["value"] = fact.number().value_or(0);
      break;
    case lab::FactType::boolean:
      out["value"] = fact.value == "true";
      break;
    case lab::FactType::json: {
      Json value = Json::parse(fact.value, nullptr, false);
      out["value"] = value.is_discarded() ? Json(fact.value) : std::move(value);
      break;
    }
    case lab::FactType::absent:
      out["value"] = nullptr;
      out["absent"] = fact.value;
      break;
    default:
      out["value"] = fact.value;
  }
  out["type"] = lab::name_of(fact.type);
  out["provenance"] = lab::name_of(fact.provenance);
  out["source"] = fact.source;
  return out;
}

Json object_json(std::string_view id, const lab::Object& object) {
  Json facts = Json::object();
  for (const lab::Fact& fact : object.facts()) facts[fact.name] = fact_json(fact);
  return {{"id", id},
          {"kind", lab::name_of(object.kind())},
          {"supersedes", object.supersedes().empty() ? Json() : Json(object.supersedes())},
          {"facts", facts}};
}

Json attempt_json(const lab::Attempt& attempt) {
  Json settings = Json::object();
  for (const lab::Setting& setting : lab::settings_of(attempt.candidate->object)) {
    settings[setting.key] = setting.value;
  }
  const auto text = [](const std::string& value) { return value.empty() ? Json() : Json(value); };
  return {{"candidate", attempt.candidate->id},
          {"change", text(attempt.candidate->object.value("change"))},
          {"recipe", text(attempt.candidate->object.value("recipe"))},
          {"settings", settings},
          {"fingerprint", text(attempt.candidate->object.value("fingerprint"))},
          {"lane", text(attempt.lane)},
          {"verdict", attempt.judged},
          {"said", text(attempt.said)},
          {"provenance", lab::name_of(attempt.provenance)},
          {"retry", text(attempt.retry)},
          {"decode_tok_s", number_json(attempt.tok_s)},
          {"predicted_effect", number_json(attempt.predicted)},
          {"effect", number_json(attempt.effect)},
          {"run", attempt.run ? Json(attempt.run->id) : Json()},
          {"name", text(attempt.run ? attempt.run->object.value("name") : "")},
          {"asked_in", attempt.in_change ? "change" : "name"}};
}

}  // namespace lockstep::app
