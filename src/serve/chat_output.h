// From the text that a chat model writes to what a client reads: thoughts, content, calls of tools.
// Works byte by byte, so that the sum of all deltas does not depend on how the text was cut.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "serve/call_reader.h"

namespace lockstep::serve {

// How a model was trained to write calls.
enum class CallSyntax : uint8_t {
  none,     // no calls are looked for
  hermes,   // <tool_call>{"name": …, "arguments": {…}}</tool_call>, also Qwen's
  llama3,   // the whole answer is {"name": …, "parameters": {…}}, perhaps after <|python_tag|>
  mistral,  // [TOOL_CALLS][{"name": …, "arguments": {…}}, …], or [TOOL_CALLS]name[ARGS]{…}
};

struct ChatSyntax {
  CallSyntax calls = CallSyntax::none;
  bool parallel = true;            // false: what comes after the first call is content
  std::set<std::string> tools;     // the names that there are
  bool thoughts = false;           // what <think> and </think> enclose at the beginning is apart
  bool begins_in_thought = false;  // the prompt ended with <think>
};

struct CallDelta {
  int index = 0;         // of the answer's calls
  std::string id, name;  // in the first delta of a call, else empty
  std::string arguments;
};

struct ChatDelta {
  std::string reasoning, content;
  std::vector<CallDelta> calls;
  bool empty() const { return reasoning.empty() && content.empty() && calls.empty(); }
};

// What is no call after all becomes content, with the text that introduced it, so that nothing is
// lost: but for white space beside calls and thoughts, and the marks themselves.
class ChatOutput {
 public:
  // whole_calls: a call's deltas wait until it has been read to its end, so that one that breaks is
  // content; else its arguments are told while they come, and one that breaks in them is left as it
  // is, with the rest of its text in the content. make_id: the id of an answer's call.
  ChatOutput(ChatSyntax syntax, bool whole_calls, std::function<std::string(int index)> make_id);

  ChatDelta push(std::string_view text);
  ChatDelta finish();
  // Whether there were calls, and none of them broke.
  bool called() const { return calls_ > 0 && !broken_; }

 private:
  enum class State : uint8_t {
    start,  // of the answer, or after the thoughts
    thought,
    content,
    gap,   // a call's object comes next
    name,  // Mistral's newer form: the name stands before the object
    call,
    after_call,
  };
  void byte(char c);
  void start_byte(char c);
  void thought_byte(char c);
  void content_byte(char c);
  void gap_byte(char c);
  void name_byte(char c);
  void call_byte(char c);
  void after_call_byte(char c);
  enum class Match : uint8_t { none, begun, whole };
  Match match(std::string_view text, std::string_view* mark) const;
  bool may_call() const;
  void enter_mark(std::string_view mark);
  void begin_object();
  void tell_call();
  void end_call();
  void break_call();   // what raw_ has is content
  void refeed_held();  // as content

  const ChatSyntax syntax_;
  const bool whole_calls_;
  const std::function<std::string(int)> make_id_;
  State state_ = State::start;
  bool may_think_ = false;   // at the start
  bool drop_space_ = false;  // at the start, and at a thought's
  std::string held_;         // white space, then what may become a mark
  std::string raw_;   // of the call, as far as it is not told: what becomes content if it is none
  std::string name_;  // before [ARGS]
  bool named_before_ = false;  // name_ is the name, and the object the arguments alone
  bool array_ = false;         // Mistral's list
  CallReader reader_;
  bool telling_ = false;  // the call's name is told
  size_t told_ = 0;       // bytes of its arguments
  int calls_ = 0;
  bool broken_ = false;
  ChatDelta delta_;
};

}  // namespace lockstep::serve
