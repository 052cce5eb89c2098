#include "serve/fields.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"

namespace lockstep::serve {
namespace {

// Whether brackets nest deeper than kMaxDepth: found before parsing, since what reads, copies and
// writes JSON values may recurse.
bool too_deep(std::string_view body) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
      continue;
    }
    if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

[[noreturn]] void refuse_body(const std::string& message) {
  throw RequestError({.message = message});
}

}  // namespace

void refuse_field(const std::string& param, const std::string& message) {
  throw RequestError({.message = fmt::format("{}: {}", param, message), .param = param});
}

ApiError unavailable(const std::string& message) {
  return {.status = 503, .type = "unavailable_error", .message = message};
}
ApiError not_supported(const std::string& message) {
  return {.status = 501, .type = "not_supported_error", .message = message};
}
ApiError internal_error(const std::string& message) {
  return {.status = 500, .type = "server_error", .message = message};
}

Json error_json(const ApiError& error) {
  Json object = {{"code", error.status},
                 {"message", error.message},
                 {"type", error.type},
                 {"param", error.param.empty() ? Json() : Json(error.param)}};
  if (error.extra.is_object()) object.update(error.extra);
  return {{"error", object}};
}

Json parse_body(std::string_view body) {
  if (too_deep(body)) {
    refuse_body(fmt::format("the body nests deeper than {} levels", kMaxDepth));
  }
  Json json;
  try {
    json = Json::parse(body);
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: …"
    const std::string what = error.what();
    const size_t end = what.find("] ");
    refuse_body(fmt::format("the body is not JSON: {}",
                            escape(end == std::string::npos ? what : what.substr(end + 2), 300)));
  }
  if (!json.is_object()) {
    refuse_body(fmt::format("the body is a JSON {}; it must be an object", json.type_name()));
  }
  return json;
}

std::string quote(const Json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  if (value.is_object()) return "an object";
  return shorten(value.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {}

const Json* Fields::find(const std::string& name) const {
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

void Fields::refuse(const std::string& name, const std::string& why) const {
  refuse_field(path_ + name, why);
}

std::optional<bool> Fields::boolean(const std::string& name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(name, fmt::format("{} is not true or false", quote(*value)));
  return value->get<bool>();
}

std::optional<int64_t> Fields::integer(const std::string& name, int64_t min, int64_t max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  const auto out_of_range = [&] {
    refuse(name, fmt::format("{} is out of range; give {} to {}", quote(*value), min, max));
  };
  int64_t number = 0;
  if (value->is_number_unsigned()) {
    if (value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) out_of_range();
    number = value->get<int64_t>();
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
  } else if (value->is_number_float()) {
    const double real = value->get<double>();
    if (std::floor(real) != real) {
      refuse(name, fmt::format("{} is not a whole number", quote(*value)));
    }
    if (!(std::fabs(real) <= 0x1p53)) out_of_range();
    number = static_cast<int64_t>(real);
  } else {
    refuse(name, fmt::format("{} is not a whole number", quote(*value)));
  }
  if (number < min || number > max) out_of_range();
  return number;
}

std::optional<double> Fields::number(const std::string& name, double min, double max) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(name, fmt::format("{} is not a number", quote(*value)));
  const double number = value->get<double>();
  if (!(number >= min && number <= max)) {
    refuse(name, fmt::format("{} is out of range; give {} to {}", quote(*value), min, max));
  }
  return number;
}

std::optional<std::string> Fields::text(const std::string& name) const {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(name, fmt::format("{} is not a string", quote(*value)));
  return value->get<std::string>();
}

}  // namespace lockstep::serve
