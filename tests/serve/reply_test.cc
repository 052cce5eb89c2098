// Answers of chats, from scripted events: what a client puts together from a stream is what the
// whole answer says, however the text was cut.
#include "serve/reply.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "serve/prepare.h"
#include "synth/synth.h"
#include "text/utf8_stream.h"

namespace lockstep::serve {
namespace {

const text::Tokenizer& tokenizer() {
  static const auto file = synth::make_in_memory(synth::parse_synth(
      "llama-tiny,layers=1,embd=64,heads=2,kv_heads=1,head_dim=32,ffn=128,ctx=128@q8_0,seed=1"));
  static const text::Tokenizer made = text::Tokenizer::load(file);
  return made;
}

std::shared_ptr<Job> make_job(bool stream, const ChatSyntax& syntax, int64_t n = 1) {
  auto job = std::make_shared<Job>();
  job->id = 7;
  job->request.surface = Surface::oai_chat;
  job->request.stream = stream;
  job->request.n = n;
  job->prepared.prompts = {{1, 2, 3}};
  job->prepared.output = syntax;
  return job;
}

Event tokens(const std::string& text, int sequence = 0) {
  Event event;
  event.kind = Event::Kind::tokens;
  event.sequence = sequence;
  event.text = text;
  return event;
}
Event end(StopKind stop, const std::string& text = "", int sequence = 0) {
  Event event = tokens(text, sequence);
  event.kind = Event::Kind::end;
  event.stop = stop;
  event.result = std::make_shared<decode::Result>();
  return event;
}

Reply make_reply(const std::shared_ptr<Job>& job) {
  return {job, tokenizer(), {.model = "m", .fingerprint = "f", .created = 5, .context = 128}};
}

std::vector<Json> objects(const std::string& stream) {
  std::vector<Json> list;
  for (size_t at = 0; at < stream.size();) {
    const size_t next = stream.find("\n\n", at);
    const std::string block = stream.substr(at, next - at);
    EXPECT_TRUE(block.starts_with("data: "));
    if (block != "data: [DONE]") list.push_back(Json::parse(block.substr(6)));
    at = next + 2;
  }
  return list;
}

// A message as OpenAI's clients put it together; the index of a call is not part of it.
struct Client {
  Json message = Json::object();
  std::string finish;

  void read(const Json& object) {
    for (const Json& choice : object["choices"]) {
      const Json& delta = choice["delta"];
      for (const auto& [name, value] : delta.items()) {
        if (name == "tool_calls") {
          for (const Json& call : value) add(call);
        } else if (value.is_string() && message.contains(name) && message[name].is_string()) {
          message[name] = message[name].get<std::string>() + value.get<std::string>();
        } else if (!value.is_null() || !message.contains(name)) {
          message[name] = value;
        }
      }
      if (!choice["finish_reason"].is_null()) {
        EXPECT_TRUE(finish.empty());
        finish = choice["finish_reason"];
        EXPECT_TRUE(delta.empty());
      }
    }
  }
  void add(const Json& call) {
    const size_t index = call["index"];
    Json& calls = message["tool_calls"];
    if (index == calls.size()) {
      EXPECT_EQ(call["type"], "function");
      calls.push_back({{"id", call["id"]},
                       {"type", "function"},
                       {"function", {{"name", call["function"]["name"]}, {"arguments", ""}}}});
    }
    Json& arguments = calls[index]["function"]["arguments"];
    arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
  }
};

struct Script {
  CallSyntax calls;
  std::string text, finish;
};
const Script kScripts[] = {
    {CallSyntax::hermes,
     "<think>Which one?</think>I look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": "
     "{\"city\": "
     "\"Zürich\"}}\n</tool_call>\n<tool_call>{\"name\": \"add\", \"arguments\": {}}</tool_call>",
     "tool_calls"},
    {CallSyntax::llama3, "{\"name\": \"weather\", \"parameters\": {\"city\": \"Oslo\"}}",
     "tool_calls"},
    {CallSyntax::mistral, "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": [1, 2]}}]",
     "tool_calls"},
    {CallSyntax::hermes, "<tool_call>{\"name\": 5}</tool_call>", "stop"},
    {CallSyntax::none, "plain text", "stop"},
};

TEST(Reply, AStreamPutTogetherIsTheWhole) {
  size_t with_calls = 0;
  for (const Script& script : kScripts) {
    const ChatSyntax syntax = {.calls = script.calls,
                               .parallel = true,
                               .tools = {"weather", "add"},
                               .thoughts = true,
                               .begins_in_thought = false};
    const auto job = make_job(false, syntax);
    Reply whole = make_reply(job);
    whole.collect(end(StopKind::eos, script.text));
    ASSERT_TRUE(whole.complete());
    const Json choice = Json::parse(whole.body())["choices"][0];
    Json expected = choice["message"];
    EXPECT_EQ(choice["finish_reason"], script.finish);
    with_calls += expected.contains("tool_calls") ? 1 : 0;
    for (size_t cut = 0; cut <= script.text.size(); ++cut) {
      const auto streaming = make_job(true, syntax);
      Reply reply = make_reply(streaming);
      Client client;
      std::string bytes = reply.stream(tokens(script.text.substr(0, cut)));
      bytes += reply.stream(end(StopKind::eos, script.text.substr(cut)));
      EXPECT_TRUE(bytes.ends_with("data: [DONE]\n\n"));
      const auto all = objects(bytes);
      EXPECT_EQ(all[0]["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", nullptr}}));
      // A cut inside a character cannot come from the scheduler, and is mended on the way.
      if (text::well_formed_utf8(script.text.substr(0, cut)) != script.text.substr(0, cut))
        continue;
      for (const Json& object : all) client.read(object);
      EXPECT_EQ(client.finish, script.finish);
      if (!client.message.contains("content")) client.message["content"] = nullptr;
      for (const auto& [name, value] : expected.items()) {
        EXPECT_EQ(client.message[name], value) << name << " of " << script.text << " at " << cut;
      }
      EXPECT_EQ(client.message.size(), expected.size());
    }
  }
  EXPECT_EQ(with_calls, 3u);
}

TEST(Reply, CallsHaveIdsOfTheirOwn) {
  const ChatSyntax syntax = {.calls = CallSyntax::hermes,
                             .parallel = true,
                             .tools = {},
                             .thoughts = true,
                             .begins_in_thought = false};
  const std::string text =
      "<tool_call>{\"name\": \"a\"}</tool_call><tool_call>{\"name\": \"a\"}</tool_call>";
  const auto job = make_job(false, syntax, 2);
  Reply reply = make_reply(job);
  reply.collect(end(StopKind::eos, text, 0));
  reply.collect(end(StopKind::eos, text, 1));
  std::set<std::string> ids;
  const Json body = Json::parse(reply.body());
  for (const Json& choice : body["choices"]) {
    for (const Json& call : choice["message"]["tool_calls"]) ids.insert(call["id"]);
    EXPECT_TRUE(choice["message"]["content"].is_null());
  }
  EXPECT_EQ(ids.size(), 4u);
  // Mistral's templates take nine letters and digits, and nothing else.
  for (const std::string& id : ids) {
    EXPECT_EQ(id.size(), 9u);
    EXPECT_TRUE(std::all_of(id.begin(), id.end(), [](char c) { return std::isalnum(c); })) << id;
  }
}

TEST(Reply, ALimitSaysSoThoughThereAreCalls) {
  const ChatSyntax syntax = {.calls = CallSyntax::hermes,
                             .parallel = true,
                             .tools = {},
                             .thoughts = true,
                             .begins_in_thought = false};
  for (const bool stream : {false, true}) {
    const auto job = make_job(stream, syntax);
    Reply reply = make_reply(job);
    const Event last = end(StopKind::limit, "<tool_call>{\"name\": \"a\"}</tool_call> an");
    std::string finish;
    if (stream) {
      Client client;
      for (const Json& object : objects(reply.stream(last))) client.read(object);
      finish = client.finish;
    } else {
      reply.collect(last);
      finish = Json::parse(reply.body())["choices"][0]["finish_reason"];
    }
    EXPECT_EQ(finish, "length");
  }
}

TEST(Reply, OriginsOfTokens) {
  const auto job = make_job(true, {});
  job->request.token_origins = true;
  Reply reply = make_reply(job);
  Event event = tokens("");
  // A step of a draft of three of which two were right, one of a draft that was right, one without.
  event.ids = {5, 6, 7, 8, 9, 10};
  event.steps = {{3, 3, 2}, {2, 1, 1}, {1, 0, 0}};
  const auto all = objects(reply.stream(event));
  const Json told = all.at(1)["lockstep"];
  EXPECT_EQ(told["drafts"], (Json{{3, 2}, {1, 1}, {0, 0}}));
  std::vector<std::string> origins;
  std::string bytes;
  for (const Json& token : told["tokens"]) {
    origins.push_back(token["origin"]);
    if (token["piece"].is_string()) {
      bytes += token["piece"].get<std::string>();
    } else {
      for (const Json& byte : token["piece"]) bytes += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_EQ(origins, (std::vector<std::string>{"accepted", "accepted", "corrected", "accepted",
                                               "plain", "plain"}));
  EXPECT_EQ(bytes, tokenizer().decode(event.ids, false));
  // The end's own tokens are told once.
  Event last = end(StopKind::eos);
  last.ids = {11};
  last.steps = {{1, 0, 0}};
  size_t count = 0;
  for (const Json& object : objects(reply.stream(last))) {
    if (object.contains("lockstep") && object["lockstep"].contains("tokens")) {
      count += object["lockstep"]["tokens"].size();
    }
  }
  EXPECT_EQ(count, 1u);
  // Nobody who does not ask is told.
  const auto other = make_job(true, {});
  Reply silent = make_reply(other);
  EXPECT_EQ(silent.stream(event).find("origin"), std::string::npos);
}

TEST(Prepare, HowTemplatesHaveCallsWritten) {
  EXPECT_EQ(call_syntax("{{ messages }}"), CallSyntax::none);
  EXPECT_EQ(call_syntax("<tool_call>"), CallSyntax::none);  // it does not take tools
  EXPECT_EQ(call_syntax("{% if tools %}<tool_call>"), CallSyntax::hermes);
  EXPECT_EQ(call_syntax("{% if tools %}<tool_call><function=f>"), CallSyntax::none);
  EXPECT_EQ(call_syntax("{% if tools %}[TOOL_CALLS]"), CallSyntax::mistral);
  EXPECT_EQ(call_syntax("{% if tools %}<|start_header_id|> {\"name\": , \"parameters\": }"),
            CallSyntax::llama3);
  EXPECT_EQ(call_syntax("{% if tools %}<|python_tag|>"), CallSyntax::llama3);
  EXPECT_EQ(call_syntax("{% if tools %}something else"), CallSyntax::none);
}

}  // namespace
}  // namespace lockstep::serve
