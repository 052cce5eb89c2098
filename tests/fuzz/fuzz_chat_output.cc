// Fuzzes what reads a chat's answer. Input: a byte of choices, a byte of where to cut, then the
// text. Whatever it is: the sum of the deltas does not depend on the cuts, calls that are whole
// have arguments that are a JSON object, and of a text that is no call, nothing is lost.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "serve/chat_output.h"

using namespace lockstep::serve;

namespace {

uint64_t inputs = 0, calls = 0;

void report() {
  std::fprintf(stderr, "fuzz_chat_output: %llu inputs, %llu calls\n",
               static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(calls));
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_chat_output: %s\n", what);
  std::abort();
}

struct Answer {
  std::string reasoning, content;
  std::vector<CallDelta> calls;
  bool called = false;

  void add(const ChatDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    for (const CallDelta& call : delta.calls) {
      const auto i = static_cast<size_t>(call.index);
      check(i <= calls.size(), "a call out of turn");
      if (i == calls.size()) {
        check(!call.name.empty() && !call.id.empty(), "a call without a name");
        calls.push_back(call);
      } else {
        calls[i].arguments += call.arguments;
      }
    }
  }
  bool operator==(const Answer& other) const {
    if (reasoning != other.reasoning || content != other.content || called != other.called ||
        calls.size() != other.calls.size()) {
      return false;
    }
    for (size_t i = 0; i < calls.size(); ++i) {
      if (calls[i].name != other.calls[i].name || calls[i].arguments != other.calls[i].arguments) {
        return false;
      }
    }
    return true;
  }
};

Answer read(const ChatSyntax& syntax, bool whole, std::string_view text, size_t piece) {
  ChatOutput output(syntax, whole, [](int index) { return std::to_string(index); });
  Answer answer;
  for (size_t at = 0; at < text.size(); at += piece)
    answer.add(output.push(text.substr(at, piece)));
  answer.add(output.finish());
  answer.called = output.called();
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool registered = std::atexit(report) == 0;
  check(registered, "atexit");
  if (size < 2) return 0;
  ++inputs;
  const ChatSyntax syntax = {.calls = static_cast<CallSyntax>(data[0] & 3),
                             .parallel = (data[0] & 4) != 0,
                             .tools = {"f", "weather"},
                             .thoughts = (data[0] & 8) != 0,
                             .begins_in_thought = (data[0] & 16) != 0};
  const bool whole = (data[0] & 32) != 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Answer answer = read(syntax, whole, text, text.size() + 1);
  check(answer == read(syntax, whole, text, 1), "it depends on the cuts");
  check(answer == read(syntax, whole, text, 1 + data[1]), "it depends on the cuts");
  calls += answer.calls.size();
  if (whole || answer.called) {
    for (const CallDelta& call : answer.calls) {
      JsonScanner scanner;
      for (const char c : call.arguments) scanner.feed(c);
      check(scanner.done(), "arguments that are no object");
    }
  }
  if (answer.calls.empty() && !syntax.thoughts) check(answer.content == text, "text is lost");
  check(syntax.parallel || answer.calls.size() <= 1, "more than one call");
  return 0;
}
