// One request of law_ops (tests/law/PROTOCOL.md): its fields by name, arrays as base64.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace lockstep::kernels {

using nlohmann::json;

[[noreturn]] inline void refuse(const std::string& what) {
  throw std::runtime_error(what);
}

inline std::string to_base64(const void* data, size_t size) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* bytes = static_cast<const uint8_t*>(data);
  std::string out;
  out.reserve((size + 2) / 3 * 4);
  for (size_t i = 0; i < size; i += 3) {
    const uint32_t group = static_cast<uint32_t>(bytes[i]) << 16 |
                           (i + 1 < size ? bytes[i + 1] << 8 : 0) |
                           (i + 2 < size ? bytes[i + 2] : 0);
    out += kDigits[group >> 18];
    out += kDigits[group >> 12 & 63];
    out += i + 1 < size ? kDigits[group >> 6 & 63] : '=';
    out += i + 2 < size ? kDigits[group & 63] : '=';
  }
  return out;
}

inline std::vector<uint8_t> from_base64(const std::string& text) {
  static const std::array<int8_t, 256> kValues = [] {
    std::array<int8_t, 256> values{};
    values.fill(-1);
    const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < digits.size(); ++i) {
      values[static_cast<uint8_t>(digits[i])] = static_cast<int8_t>(i);
    }
    return values;
  }();
  if (text.size() % 4 != 0) refuse("base64 of a length that isn't a multiple of 4");
  std::vector<uint8_t> out;
  out.reserve(text.size() / 4 * 3);
  for (size_t i = 0; i < text.size(); i += 4) {
    const bool last = i + 4 == text.size();
    const size_t padding =
        last ? (text[i + 3] == '=') + (text[i + 2] == '=' && text[i + 3] == '=') : 0;
    uint32_t group = 0;
    for (size_t k = 0; k < 4; ++k) {
      const int value = k >= 4 - padding ? 0 : kValues[static_cast<uint8_t>(text[i + k])];
      if (value < 0) refuse("a character that is not base64");
      group = group << 6 | static_cast<uint32_t>(value);
    }
    for (size_t k = 0; k < 3 - padding; ++k)
      out.push_back(static_cast<uint8_t>(group >> (16 - 8 * k)));
  }
  return out;
}

// One request, read by name.
class Request {
 public:
  explicit Request(const json& object) : object_(object) {}

  bool has(const char* name) const { return object_.contains(name); }
  int64_t integer(const char* name, int64_t min, int64_t max) const {
    const json& value = at(name);
    if (!value.is_number_integer()) refuse(std::string(name) + " must be an integer");
    const auto n = value.get<int64_t>();
    if (n < min || n > max) refuse(std::string(name) + " is out of range");
    return n;
  }
  std::string text(const char* name) const {
    const json& value = at(name);
    if (!value.is_string()) refuse(std::string(name) + " must be a string");
    return value.get<std::string>();
  }
  template <typename T>
  std::vector<T> array(const char* name) const {
    const std::vector<uint8_t> bytes = from_base64(text(name));
    if (bytes.size() % sizeof(T) != 0) refuse(std::string(name) + " isn't whole elements");
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  template <typename T>
  std::vector<T> array(const char* name, int64_t size) const {
    std::vector<T> values = array<T>(name);
    if (static_cast<int64_t>(values.size()) != size) {
      refuse(std::string(name) + " has " + std::to_string(values.size()) + " elements, " +
             std::to_string(size) + " are needed");
    }
    return values;
  }
  // [rows][width], rows from the size.
  template <typename T>
  std::vector<T> rows(const char* name, int64_t width, int64_t* count) const {
    std::vector<T> values = array<T>(name);
    const auto size = static_cast<int64_t>(values.size());
    if (width <= 0 || size % width != 0) refuse(std::string(name) + " isn't whole rows");
    *count = size / width;
    return values;
  }
  float scalar(const char* name) const { return array<float>(name, 1)[0]; }
  float scalar(const char* name, float otherwise) const {
    return has(name) ? scalar(name) : otherwise;
  }

 private:
  const json& at(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) refuse(std::string("\"") + name + "\" is missing");
    return *found;
  }
  const json& object_;
};

template <typename T>
std::string encoded(const std::vector<T>& values) {
  return to_base64(values.data(), values.size() * sizeof(T));
}

}  // namespace lockstep::kernels
