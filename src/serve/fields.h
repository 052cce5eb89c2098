// Reading the fields of a request's JSON object, each error naming the field and what was given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "serve/error.h"

namespace lockstep::serve {

inline constexpr int kMaxDepth = 64;  // of nested arrays and objects in a body

// The object in a request's body. Throws RequestError(400) for anything but one JSON object in
// UTF-8 without more than kMaxDepth levels, saying where it ends to be one.
Json parse_body(std::string_view body);

// null counts as absent in all of these.
class Fields {
 public:
  // path: what messages put before a field's name, "messages[2]."; object must be an object.
  explicit Fields(const Json& object, std::string path = "");

  const Json* find(const std::string& name) const;  // null: absent
  bool has(const std::string& name) const { return find(name) != nullptr; }
  std::optional<bool> boolean(const std::string& name) const;
  // A whole number, also one written as 3.0.
  std::optional<int64_t> integer(const std::string& name, int64_t min, int64_t max) const;
  std::optional<double> number(const std::string& name, double min, double max) const;
  std::optional<std::string> text(const std::string& name) const;
  std::string path(const std::string& name) const { return path_ + name; }
  [[noreturn]] void refuse(const std::string& name, const std::string& why) const;

 private:
  const Json& object_;
  std::string path_;
};

// A value as messages quote it: short, one line, whatever it is.
std::string quote(const Json& value);

}  // namespace lockstep::serve
