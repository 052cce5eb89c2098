// One JSON object written piece by piece: a result of any size takes a fixed amount of memory.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::app {

// Writes to standard output as print() does. The calls must spell one object: key, value, key, ...
// between the constructor, which opens it, and finish(), which closes it.
class JsonStream {
 public:
  JsonStream();

  JsonStream& key(std::string_view name);
  void value(std::string_view text);  // well-formed UTF-8
  void value(double number);          // null where it is not finite
  void value(std::nullptr_t);
  template <std::integral T>
  void value(T number) {
    if constexpr (std::same_as<T, bool>) {
      boolean(number);
    } else {
      integer(static_cast<int64_t>(number));
    }
  }
  template <typename List>
  void values(const List& list) {
    begin('[');
    for (const auto& element : list) value(element);
    end(']');
  }
  void begin(char bracket);  // { or [
  void end(char bracket);    // } or ]
  void finish();

 private:
  void integer(int64_t number);
  void boolean(bool value);
  void separate(bool container);
  void new_line();
  void put(std::string_view text);
  void quote(std::string_view text);

  struct Level {
    bool array = false, empty = true, lines = false;
  };
  static constexpr int kMaxDepth = 8;
  Level levels_[kMaxDepth];
  int depth_ = -1;
  bool after_key_ = false;
  std::string buffer_;
};

}  // namespace lockstep::app
