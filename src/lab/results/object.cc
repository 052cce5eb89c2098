#include "lab/results/object.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <span>

#include "base/error.h"
#include "base/sha256.h"

namespace lockstep::lab {
namespace {

template <typename Enum, size_t n>
std::optional<Enum> named(const std::string_view (&names)[n], std::string_view name) {
  const auto at = std::find(std::begin(names), std::end(names), name);
  if (at == std::end(names)) return std::nullopt;
  return static_cast<Enum>(at - std::begin(names));
}

std::string one_line(std::string_view text) {
  std::string out = clean_text(text);
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

// Length of the well-formed UTF-8 sequence at text[i] (Unicode 15, table 3-7), 0 where there is
// none.
size_t utf8_length(std::string_view text, size_t i) {
  const auto byte = [&](size_t k) { return static_cast<uint8_t>(text[k]); };
  const uint8_t lead = byte(i);
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || i + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
  }
  const uint8_t second = byte(i + 1);
  if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
      (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return length;
}

}  // namespace

std::string_view name_of(Provenance provenance) {
  return kProvenances[static_cast<size_t>(provenance)];
}
std::string_view name_of(FactType type) {
  return kFactTypes[static_cast<size_t>(type)];
}
std::string_view name_of(Kind kind) {
  return kKinds[static_cast<size_t>(kind)];
}
std::optional<Provenance> provenance_named(std::string_view name) {
  return named<Provenance>(kProvenances, name);
}
std::optional<FactType> fact_type_named(std::string_view name) {
  return named<FactType>(kFactTypes, name);
}
std::optional<Kind> kind_named(std::string_view name) {
  return named<Kind>(kKinds, name);
}

std::string text_sha256(std::string_view text) {
  return to_hex(sha256(std::as_bytes(std::span(text.data(), text.size()))));
}

std::string clean_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const size_t length = text[i] == '\0' ? 0 : utf8_length(text, i);
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++i;
    } else {
      out += text.substr(i, length);
      i += length;
    }
  }
  return out;
}

std::string shortest(double value) {
  return value == 0 ? "0" : fmt::format("{}", value);
}

std::optional<double> read_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    return std::nullopt;
  }
  return value;
}

std::optional<int64_t> read_integer(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> Fact::number() const {
  if (type != FactType::integer && type != FactType::real) return std::nullopt;
  return read_number(value);
}

std::optional<int64_t> Fact::integer() const {
  return type == FactType::integer ? read_integer(value) : std::nullopt;
}

std::optional<bool> Fact::boolean() const {
  if (type != FactType::boolean) return std::nullopt;
  return value == "true";
}

std::string Fact::digest() const {
  return text_sha256(
      fmt::format("{}\n{}\n{}\n{}\n{}", name, name_of(type), name_of(provenance), source, value));
}

Object& Object::set(Fact fact) {
  fact.name = one_line(fact.name);
  fact.source = one_line(fact.source);
  fact.value = clean_text(fact.value);
  if (fact.value.size() > kMaxValue) {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: a value of {} bytes; the ledger keeps up to {} in a field, and "
                            "longer things as artifacts",
                            shorten(fact.name), fact.value.size(), kMaxValue));
  }
  const auto at = std::find_if(facts_.begin(), facts_.end(),
                               [&](const Fact& other) { return other.name == fact.name; });
  if (at != facts_.end()) {
    *at = std::move(fact);
  } else {
    facts_.push_back(std::move(fact));
  }
  return *this;
}

Object& Object::text(const Origin& origin, std::string_view name, std::string_view value) {
  return set(
      {std::string(name), FactType::text, std::string(value), origin.provenance, origin.source});
}
Object& Object::integer(const Origin& origin, std::string_view name, int64_t value) {
  return set({std::string(name), FactType::integer, fmt::format("{}", value), origin.provenance,
              origin.source});
}
Object& Object::real(const Origin& origin, std::string_view name, double value) {
  if (!std::isfinite(value)) return absent(origin, name, "not a finite number");
  return set(
      {std::string(name), FactType::real, shortest(value), origin.provenance, origin.source});
}
Object& Object::boolean(const Origin& origin, std::string_view name, bool value) {
  return set({std::string(name), FactType::boolean, value ? "true" : "false", origin.provenance,
              origin.source});
}
Object& Object::json(const Origin& origin, std::string_view name, std::string_view dumped) {
  return set(
      {std::string(name), FactType::json, std::string(dumped), origin.provenance, origin.source});
}
Object& Object::ref(const Origin& origin, std::string_view name, std::string_view id) {
  return set({std::string(name), FactType::ref, std::string(id), origin.provenance, origin.source});
}
Object& Object::absent(const Origin& origin, std::string_view name, std::string_view why) {
  return set(
      {std::string(name), FactType::absent, std::string(why), origin.provenance, origin.source});
}

const Fact* Object::find(std::string_view name) const {
  const auto at = std::find_if(facts_.begin(), facts_.end(),
                               [&](const Fact& fact) { return fact.name == name; });
  return at == facts_.end() ? nullptr : &*at;
}

std::string Object::value(std::string_view name) const {
  const Fact* fact = find(name);
  return fact && fact->known() ? fact->value : "";
}

std::string Object::id() const {
  std::string lines = fmt::format("{}\n{}\n", name_of(kind_), supersedes_);
  for (const Fact& fact : facts_) lines += fact.digest() + "\n";
  return text_sha256(lines);
}

}  // namespace lockstep::lab
