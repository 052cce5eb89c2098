// One call of a tool as models write it, {"name": "f", "arguments": {…}}, while it is being
// written.
#pragma once

#include <cstdint>
#include <string>

#include "serve/json_scanner.h"

namespace lockstep::serve {

class CallReader {
 public:
  enum class State : uint8_t { more, done, bad };
  State feed(char c);

  // Whether all that a call needs is there, though its last brace is not.
  bool usable() const { return has_name_ && (arguments_end_ || !has_arguments_); }
  // Whether the name is known and the arguments have begun.
  bool begun() const { return has_name_ && has_arguments_; }
  const std::string& name() const { return name_; }
  // So far, as the model wrote them ("parameters" is another name for them). A call without any has
  // an empty object once it is done.
  const std::string& arguments() const { return arguments_; }

 private:
  enum class Member : uint8_t { other, name, arguments };
  State end_key();

  JsonScanner scanner_;
  Member member_ = Member::other;
  bool recording_ = false;  // a key or a name, in text_
  std::string text_;        // with its quotes
  bool has_name_ = false, has_arguments_ = false, arguments_end_ = false;
  std::string name_, arguments_;
};

}  // namespace lockstep::serve
