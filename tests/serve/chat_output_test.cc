// What models write, cut at every byte: thoughts, calls and content are the same however it comes.
#include "serve/chat_output.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "serve/json_scanner.h"

namespace lockstep::serve {
namespace {

struct Call {
  std::string id, name, arguments;
  bool operator==(const Call&) const = default;
};

// What a client has put together.
struct Answer {
  std::string reasoning, content;
  std::vector<Call> calls;
  bool called = false;
  bool operator==(const Answer&) const = default;

  void add(const ChatDelta& delta) {
    reasoning += delta.reasoning;
    content += delta.content;
    for (const CallDelta& call : delta.calls) {
      const auto i = static_cast<size_t>(call.index);
      if (!call.name.empty()) {
        EXPECT_EQ(i, calls.size()) << "a call begins twice, or out of turn";
        calls.push_back({call.id, call.name, ""});
      }
      ASSERT_LT(i, calls.size()) << "arguments before the call's name";
      calls[i].arguments += call.arguments;
    }
  }
};

std::ostream& operator<<(std::ostream& out, const Answer& answer) {
  out << "thought <" << answer.reasoning << "> content <" << answer.content << ">";
  for (const Call& call : answer.calls)
    out << " call " << call.name << " <" << call.arguments << ">";
  return out << (answer.called ? " called" : "");
}

std::string id_of(int index) {
  return "id" + std::to_string(index);
}

template <typename Parser>
Answer read(Parser parser, const std::vector<std::string_view>& pieces) {
  Answer answer;
  for (const std::string_view piece : pieces) answer.add(parser.push(piece));
  answer.add(parser.finish());
  answer.called = parser.called();
  return answer;
}

// Every way to cut text in two, and into pieces of every small length.
std::vector<std::vector<std::string_view>> cuts(std::string_view text) {
  std::vector<std::vector<std::string_view>> all = {{text}};
  for (size_t at = 0; at <= text.size(); ++at) all.push_back({text.substr(0, at), text.substr(at)});
  for (size_t length = 1; length <= 9; ++length) {
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size(); at += length) pieces.push_back(text.substr(at, length));
    all.push_back(pieces);
  }
  return all;
}

const std::set<std::string> kTools = {"weather", "add"};

ChatSyntax syntax(CallSyntax calls, bool thoughts = true, bool in_thought = false) {
  return {.calls = calls,
          .parallel = true,
          .tools = kTools,
          .thoughts = thoughts,
          .begins_in_thought = in_thought};
}

Answer same_however_cut(const ChatSyntax& of, bool whole, const std::string& text) {
  const Answer expected = read(ChatOutput(of, whole, id_of), {text});
  for (const auto& pieces : cuts(text)) {
    const Answer answer = read(ChatOutput(of, whole, id_of), pieces);
    EXPECT_EQ(answer, expected) << text;
  }
  return expected;
}

struct Case {
  CallSyntax calls;
  std::string text;
  std::string content;
  std::vector<std::pair<std::string, std::string>> called;
  std::string reasoning = {};
};

const Case kGood[] = {
    {CallSyntax::hermes,
     "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
     "",
     {{"weather", "{\"city\": \"Paris\"}"}}},
    {CallSyntax::hermes,
     "I will look.\n\n<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": "
     "\"</tool_call>\\\"}{ "
     "\\u00e9 é\", \"n\": [1, -2.5e+3, {\"x\": null}]}}</tool_call>\n<tool_call>\n{\"arguments\": "
     "{}, \"name\": \"add\"}\n</tool_call>\n",
     "I will look.",
     {{"weather",
       "{\"city\": \"</tool_call>\\\"}{ \\u00e9 é\", \"n\": [1, -2.5e+3, {\"x\": null}]}"},
      {"add", "{}"}}},
    {CallSyntax::hermes,
     "<think>\nWhat is <b>that</th?\n\n</think>\n\n<tool_call>{\"name\": \"add\"}</tool_call>",
     "",
     {{"add", "{}"}},
     "What is <b>that</th?"},
    {CallSyntax::hermes,
     "a <tool_cal and <tool_ and <<tool_call>{\"name\":\"add\",\"arguments\":{}}",
     "a <tool_cal and <tool_ and <",
     {{"add", "{}"}}},
    // The last brace forgotten, and two objects between one pair of marks.
    {CallSyntax::hermes,
     "<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": 1}\n</tool_call>",
     "",
     {{"add", "{\"a\": 1}"}}},
    {CallSyntax::hermes,
     "<tool_call>{\"name\": \"add\"}\n{\"name\": \"weather\"}</tool_call> Done.",
     " Done.",
     {{"add", "{}"}, {"weather", "{}"}}},
    {CallSyntax::llama3,
     "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}",
     "",
     {{"weather", "{\"city\": \"Oslo\"}"}}},
    {CallSyntax::llama3,
     "\n<|python_tag|>{\"type\": \"function\", \"name\": \"add\", \"parameters\": {\"a\": 1}}; "
     "{\"name\": \"add\", \"parameters\": {\"a\": 2}}",
     "",
     {{"add", "{\"a\": 1}"}, {"add", "{\"a\": 2}"}}},
    {CallSyntax::mistral,
     "[TOOL_CALLS][{\"name\": \"weather\", \"arguments\": {\"city\": \"Rome\"}, \"id\": "
     "\"abcdefghi\"}, {\"name\": \"add\", \"arguments\": {}}]",
     "",
     {{"weather", "{\"city\": \"Rome\"}"}, {"add", "{}"}}},
    {CallSyntax::mistral,
     "Wait. [TOOL_CALLS]weather[ARGS]{\"city\": \"Rome\"}[TOOL_CALLS]add{\"a\":[]}",
     "Wait.",
     {{"weather", "{\"city\": \"Rome\"}"}, {"add", "{\"a\":[]}"}}},
    {CallSyntax::mistral,
     "[TOOL_CALLS]weather[CALL_ID]abc123def[ARGS]{\"city\": \"Rome\"}",
     "",
     {{"weather", "{\"city\": \"Rome\"}"}}},
};

TEST(ChatOutput, CallsAreTheSameHoweverTheyCome) {
  for (const Case& c : kGood) {
    for (const bool whole : {false, true}) {
      const Answer answer = same_however_cut(syntax(c.calls), whole, c.text);
      EXPECT_EQ(answer.content, c.content) << c.text;
      EXPECT_EQ(answer.reasoning, c.reasoning) << c.text;
      ASSERT_EQ(answer.calls.size(), c.called.size()) << c.text;
      EXPECT_TRUE(answer.called);
      for (size_t i = 0; i < c.called.size(); ++i) {
        EXPECT_EQ(answer.calls[i].id, id_of(static_cast<int>(i)));
        EXPECT_EQ(answer.calls[i].name, c.called[i].first);
        EXPECT_EQ(answer.calls[i].arguments, c.called[i].second);
        EXPECT_TRUE(nlohmann::json::accept(answer.calls[i].arguments)) << answer.calls[i].arguments;
      }
    }
  }
}

// No call: all of it is content, to the byte.
const std::pair<CallSyntax, std::string> kContent[] = {
    {CallSyntax::hermes, "<tool_call>"},
    {CallSyntax::hermes, " \n"},
    {CallSyntax::hermes, "plain, with space at its end \n"},
    {CallSyntax::hermes, "<tool_call>\nnot JSON\n</tool_call>"},
    {CallSyntax::hermes, "<tool_call>[1]</tool_call>"},
    {CallSyntax::hermes, "<tool_call>{\"name\": 5, \"arguments\": {}}</tool_call>"},
    {CallSyntax::hermes, "<tool_call>{\"name\": \"\", \"arguments\": {}}</tool_call>"},
    {CallSyntax::hermes, "<tool_call>{\"name\": \"add\", \"arguments\": \"x\"}</tool_call>"},
    {CallSyntax::hermes, "<tool_call>{\"arguments\": {}}</tool_call>"},
    {CallSyntax::hermes, "<tool_call>{\"name\": \"a\", \"name\": \"b\"}</tool_call>"},
    {CallSyntax::hermes, "<tool_call>{\"name\": \"\\ud800\"}</tool_call>"},
    {CallSyntax::hermes, "<tool_call>{'name': 'add'}</tool_call>"},
    {CallSyntax::hermes, "<tool_call>{\"name\": \"ad"},
    {CallSyntax::llama3, "{\"name\": \"Alice\", \"parameters\": {\"age\": 7}}"},  // no such tool
    {CallSyntax::llama3, "{\"answer\": 42}"},
    {CallSyntax::llama3, "see {\"name\": \"add\", \"parameters\": {}}"},  // not the whole answer
    {CallSyntax::llama3, "<|python_tag|>print(1)"},
    {CallSyntax::llama3, "{\"name\": \"add\", \"parameters\""},
    {CallSyntax::mistral, "[TOOL_CALLS]"},
    {CallSyntax::mistral, "[TOOL_CALLS][5]"},
    {CallSyntax::mistral, "[TOOL_CALLS]weather says nothing"},
    {CallSyntax::mistral, "[TOOL_CALLS]weather[ARG"},
    {CallSyntax::mistral, "[TOOL_CALLS]weather[CALL_ID]x"},
    {CallSyntax::none, "<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>"},
};

TEST(ChatOutput, WhatIsNoCallIsContent) {
  for (const auto& [calls, text] : kContent) {
    for (const bool whole : {false, true}) {
      const Answer answer = same_however_cut(syntax(calls), whole, text);
      EXPECT_EQ(answer.content, text);
      EXPECT_TRUE(answer.calls.empty() && answer.reasoning.empty() && !answer.called) << text;
    }
  }
}

TEST(ChatOutput, ACallThatBreaksInItsArguments) {
  const std::string head = "<tool_call>{\"name\": \"add\", \"arguments\": ";
  for (const char* rest : {"{\"a\": oops}}</tool_call>", "{\"a\": 1", "{\"a\": \"two\nlines\"}}"}) {
    // Of a whole answer it is content.
    const Answer whole = same_however_cut(syntax(CallSyntax::hermes), true, head + rest);
    EXPECT_EQ(whole.content, head + rest);
    EXPECT_TRUE(whole.calls.empty());
    EXPECT_FALSE(whole.called);
    // Of a stream its beginning was told already; nothing of the rest is lost.
    const Answer streamed = same_however_cut(syntax(CallSyntax::hermes), false, head + rest);
    ASSERT_EQ(streamed.calls.size(), 1u);
    EXPECT_EQ(streamed.calls[0].arguments + streamed.content, rest);
    EXPECT_FALSE(streamed.called);
  }
}

TEST(ChatOutput, ACallAfterOneThatBroke) {
  const std::string text = "[TOOL_CALLS]add{a }[TOOL_CALLS]weather{\"city\": \"Rome\"}";
  const Answer streamed = same_however_cut(syntax(CallSyntax::mistral), false, text);
  ASSERT_EQ(streamed.calls.size(), 2u);
  EXPECT_EQ(streamed.calls[1].name, "weather");
  EXPECT_EQ(streamed.calls[1].arguments, "{\"city\": \"Rome\"}");
  EXPECT_NE(streamed.calls[0].id, streamed.calls[1].id);
  EXPECT_FALSE(streamed.called);
  const Answer whole = same_however_cut(syntax(CallSyntax::mistral), true, text);
  ASSERT_EQ(whole.calls.size(), 1u);
  EXPECT_EQ(whole.calls[0].name, "weather");
  EXPECT_EQ(whole.content, "[TOOL_CALLS]add{a }");
  EXPECT_TRUE(whole.called);
}

TEST(ChatOutput, ArgumentsAreToldWhileTheyCome) {
  ChatOutput output(syntax(CallSyntax::hermes), false, id_of);
  EXPECT_TRUE(output.push("<tool_call>{\"name\": \"add\", \"argum").empty());
  const ChatDelta first = output.push("ents\": {\"a\"");
  ASSERT_EQ(first.calls.size(), 1u);
  EXPECT_EQ(first.calls[0].name, "add");
  EXPECT_EQ(first.calls[0].arguments, "{\"a\"");
  const ChatDelta second = output.push(": 1");
  ASSERT_EQ(second.calls.size(), 1u);
  EXPECT_TRUE(second.calls[0].name.empty() && second.calls[0].id.empty());
  EXPECT_EQ(second.calls[0].arguments, ": 1");
}

TEST(ChatOutput, OneCallAloneWhereSoAsked) {
  for (const Case& c : kGood) {
    ChatSyntax of = syntax(c.calls);
    of.parallel = false;
    const Answer answer = same_however_cut(of, false, c.text);
    ASSERT_EQ(answer.calls.size(), 1u) << c.text;
    EXPECT_EQ(answer.calls[0].name, c.called[0].first);
    for (size_t i = 1; i < c.called.size(); ++i) {
      EXPECT_NE(answer.content.find(c.called[i].first), std::string::npos) << c.text;
    }
  }
}

TEST(ChatOutput, Thoughts) {
  struct Thought {
    std::string text, reasoning, content;
    bool in_thought = false;
  };
  const Thought cases[] = {
      {"<think>\na b\n</think>\n\nanswer\n", "a b", "answer\n"},
      {"\n <think>x</think>y <think>z</think>", "x", "y <think>z</think>"},
      {"a <think>x</think>", "", "a <think>x</think>"},
      {"<think>\n\n</think>\n\nyes", "", "yes"},
      {"<think>cut </thi", "cut </thi", ""},
      {"<think>cut  \n", "cut", ""},
      {"<thi", "", "<thi"},
      {"<thinking>", "", "<thinking>"},
      {"a b\n</think>\nyes", "a b", "yes", true},
      {"\n<think>\na</think>yes", "a", "yes", true},
      {"<thin air</think>", "<thin air", "", true},
      {"</think>", "", "", true},
      {"no end", "no end", "", true},
  };
  for (const CallSyntax calls : {CallSyntax::none, CallSyntax::hermes}) {
    for (const Thought& c : cases) {
      const Answer answer = same_however_cut(syntax(calls, true, c.in_thought), false, c.text);
      EXPECT_EQ(answer.reasoning, c.reasoning) << c.text;
      EXPECT_EQ(answer.content, c.content) << c.text;
      // Not asked for, they are content.
      const Answer plain = same_however_cut(syntax(calls, false, c.in_thought), false, c.text);
      EXPECT_EQ(plain.content, c.text);
      EXPECT_EQ(plain.reasoning, "");
    }
  }
}

// Looks for marks in each piece alone.
class Naive {
 public:
  ChatDelta push(std::string_view text) {
    ChatDelta delta;
    if (text.find("<tool_call>") == std::string_view::npos) {
      delta.content = text;
    } else {
      delta.calls.push_back({.index = 0, .id = "id0", .name = "add", .arguments = "{}"});
    }
    return delta;
  }
  ChatDelta finish() { return {}; }
  bool called() const { return false; }
};

TEST(ChatOutput, TheComparisonFindsAParserThatDependsOnTheCuts) {
  const std::string text = "<tool_call>{\"name\": \"add\"}</tool_call>";
  const Answer expected = read(Naive(), {text});
  size_t differ = 0;
  for (const auto& pieces : cuts(text)) differ += read(Naive(), pieces) != expected ? 1 : 0;
  EXPECT_GT(differ, 10u);
}

TEST(JsonScanner, TakesWhatAParserTakesAndNoMore) {
  const std::vector<std::string> objects = {
      "{}",
      "{\"a\":1}",
      " {}",
      "{\"a\" : [ ] , \"b\":{ \"c\" : [1,2 , {}]}}",
      "{\"a\":-0.5e-7,\"b\":1E+2,\"c\":0,\"d\":10}",
      "{\"a\":true,\"b\":false,\"c\":null}",
      "{\"a\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u12aF\"}",
      "{\"a\":01}",
      "{\"a\":1.}",
      "{\"a\":.5}",
      "{\"a\":-}",
      "{\"a\":1e}",
      "{\"a\":+1}",
      "{\"a\":tru}",
      "{\"a\":truee}",
      "{\"a\":\"\\x\"}",
      "{\"a\":\"\\u12g4\"}",
      "{\"a\":\"\n\"}",
      "{\"a\",1}",
      "{\"a\":1,}",
      "{,}",
      "{\"a\":[1,]}",
      "{\"a\":[1}",
      "{\"a\":1]",
      "{1:2}",
      "{\"a\":1 2}",
      "{\"a\":1e1.1}",
      "[]",
  };
  size_t accepted = 0;
  for (const std::string& text : objects) {
    // The same with every byte replaced, too.
    for (size_t at = 0; at <= text.size(); ++at) {
      for (const char c : std::string("x{}[]\":,0 1.e-\\t")) {
        std::string changed = text;
        if (at < text.size()) changed[at] = c;
        JsonScanner scanner;
        for (const char byte : changed) scanner.feed(byte);
        const bool object = nlohmann::json::parse(changed, nullptr, false).is_object() &&
                            changed.front() == '{' && changed.back() == '}';
        EXPECT_EQ(scanner.done() && !scanner.bad(), object) << changed;
        accepted += object ? 1 : 0;
      }
    }
  }
  EXPECT_GT(accepted, 100u);
  JsonScanner deep;
  for (int i = 0; i < 100; ++i) {
    for (const char c : std::string("{\"a\":")) deep.feed(c);
  }
  EXPECT_TRUE(deep.bad());
}

}  // namespace
}  // namespace lockstep::serve
