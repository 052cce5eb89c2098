// Bodies to requests: what is taken, and that what is refused is refused by name.
#include "serve/request.h"

#include <gtest/gtest.h>

#include <limits>

#include "serve/fields.h"

namespace lockstep::serve {
namespace {

Request parse(Surface surface, const std::string& body) {
  RequestDefaults defaults;
  defaults.sampling.temperature = 0.5f;
  defaults.max_tokens = 77;
  return parse_request(surface, body, defaults);
}

// The error's field; "" where none is named, "accepted" where there is no error.
std::string refused(Surface surface, const std::string& body) {
  try {
    parse(surface, body);
    return "accepted";
  } catch (const RequestError& error) {
    EXPECT_EQ(error.error().status, 400) << body;
    EXPECT_FALSE(error.error().message.empty());
    EXPECT_LT(error.error().message.size(), 500u) << body;
    return error.error().param;
  }
}

std::string with(const std::string& fields) {
  return R"({"prompt": "a", )" + fields + "}";
}

constexpr Surface kNative = Surface::completion, kText = Surface::oai_completion,
                  kChat = Surface::oai_chat;

TEST(Request, DefaultsHoldWhereNothingIsSaid) {
  const Request request = parse(kNative, R"({"prompt": "a", "unheard_of": {"x": 1}})");
  EXPECT_EQ(request.sampling.temperature, 0.5f);
  EXPECT_EQ(request.max_tokens, 77);
  EXPECT_EQ(request.n, 1);
  EXPECT_FALSE(request.stream);
  EXPECT_TRUE(request.cache_prompt);
  EXPECT_FALSE(request.seed_given);
  EXPECT_EQ(request.id_slot, -1);
  ASSERT_EQ(request.prompts.size(), 1u);
  EXPECT_EQ(std::get<std::string>(request.prompts[0].at(0)), "a");
}

TEST(Request, TakesEveryField) {
  const Request r = parse(
      kNative, with(R"("n_predict": 9, "temperature": 0, "top_k": 3, "top_p": 0.5, "min_p": 0.1,
              "repeat_last_n": -1, "repeat_penalty": 1.5, "frequency_penalty": 0.25,
              "presence_penalty": -0.5, "seed": 7, "stop": ["x", "", "y"], "stream": true,
              "n_probs": 4, "cache_prompt": false, "id_slot": 2, "return_tokens": true,
              "timings_per_token": true, "return_progress": true, "ignore_eos": true,
              "samplers": ["top_k", "xtc", "temperature"],
              "logit_bias": [[3, -1.5], ["word", false]], "n": 2)"));
  EXPECT_EQ(r.max_tokens, 9);
  EXPECT_EQ(r.sampling.temperature, 0.0f);
  EXPECT_EQ(r.sampling.top_k, 3);
  EXPECT_EQ(r.sampling.top_p, 0.5f);
  EXPECT_EQ(r.sampling.min_p, 0.1f);
  EXPECT_EQ(r.sampling.repeat_last_n, -1);
  EXPECT_EQ(r.sampling.repeat_penalty, 1.5f);
  EXPECT_EQ(r.sampling.frequency_penalty, 0.25f);
  EXPECT_EQ(r.sampling.presence_penalty, -0.5f);
  EXPECT_TRUE(r.seed_given);
  EXPECT_EQ(r.sampling.seed, 7u);
  EXPECT_EQ(r.stops, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(r.stream && r.return_tokens && r.timings_per_token && r.return_progress &&
              r.ignore_eos && r.logprobs);
  EXPECT_EQ(r.top, 4);
  EXPECT_FALSE(r.cache_prompt);
  EXPECT_EQ(r.id_slot, 2);
  EXPECT_EQ(r.n, 2);
  EXPECT_EQ(r.sampling.stages,
            (std::vector<sample::Stage>{sample::Stage::top_k, sample::Stage::temperature}));
  ASSERT_EQ(r.sampling.logit_bias.size(), 1u);
  EXPECT_EQ(r.sampling.logit_bias[0], (std::pair<int32_t, float>{3, -1.5f}));
  ASSERT_EQ(r.text_bias.size(), 1u);
  EXPECT_EQ(r.text_bias[0].second, -std::numeric_limits<float>::infinity());
}

TEST(Request, PromptsOfEveryForm) {
  EXPECT_EQ(parse(kNative, R"({"prompt": [1, 2, 3]})").prompts.size(), 1u);
  EXPECT_EQ(parse(kNative, R"({"prompt": [1, "a", 3]})").prompts[0].size(), 3u);
  EXPECT_EQ(parse(kNative, R"({"prompt": ["a", "b"]})").prompts.size(), 2u);
  EXPECT_EQ(parse(kNative, R"({"prompt": [[1, 2], "b", ["x", 4]]})").prompts.size(), 3u);
  EXPECT_EQ(refused(kNative, "{}"), "prompt");
  EXPECT_EQ(refused(kNative, R"({"prompt": null})"), "prompt");
  EXPECT_EQ(refused(kNative, R"({"prompt": {}})"), "prompt.prompt_string");
  EXPECT_EQ(parse(kNative, R"({"prompt": [[1], {"prompt_string": "b"}]})").prompts.at(1),
            Prompt{"b"});
  EXPECT_EQ(refused(kNative, R"({"prompt": {"prompt_string": "b", "multimodal_data": "x"}})"),
            "prompt.multimodal_data");
  EXPECT_EQ(refused(kNative, R"({"prompt": [1, -2]})"), "prompt[1]");
  EXPECT_EQ(refused(kNative, R"({"prompt": [1, 99999999999999999999]})"), "prompt[1]");
  EXPECT_EQ(refused(kNative, R"({"prompt": [1, 1.5]})"), "prompt[1]");
  EXPECT_EQ(refused(kNative, R"({"prompt": [[1, true]]})"), "prompt[0][1]");
  EXPECT_EQ(parse_ids(Json::array({1, 2}), "tokens").size(), 2u);
  EXPECT_THROW(parse_ids(Json::array({1, "a"}), "tokens"), RequestError);
}

TEST(Request, WrongTypesAndRangesAreRefusedByName) {
  for (const auto& [field, value] :
       std::vector<std::pair<std::string, std::string>>{{"temperature", "\"hot\""},
                                                        {"temperature", "1e999"},
                                                        {"temperature", "1e39"},
                                                        {"top_k", "1.5"},
                                                        {"top_k", "4294967296"},
                                                        {"top_p", "[]"},
                                                        {"repeat_last_n", "-2"},
                                                        {"repeat_penalty", "0"},
                                                        {"seed", "1.5"},
                                                        {"seed", "18446744073709551616"},
                                                        {"stop", "5"},
                                                        {"stop", "[5]"},
                                                        {"stream", "1"},
                                                        {"n", "0"},
                                                        {"n", "1000000"},
                                                        {"n_probs", "-1"},
                                                        {"n_probs", "100000"},
                                                        {"id_slot", "-2"},
                                                        {"logit_bias", "5"},
                                                        {"logit_bias", "[[1]]"},
                                                        {"logit_bias", "{\"1\": null}"},
                                                        {"samplers", "5"},
                                                        {"samplers", "[\"no\"]"},
                                                        {"samplers", "\"q\""},
                                                        {"stream_options", "3"},
                                                        {"model", "3"},
                                                        {"max_tokens", "\"5\""},
                                                        {"cache_prompt", "\"yes\""}}) {
    const std::string param = refused(kNative, with("\"" + field + "\": " + value));
    // A number that no double holds is no JSON that can be read.
    if (value == "1e999") {
      EXPECT_EQ(param, "");
    } else {
      EXPECT_EQ(param.substr(0, field.size()), field) << value;
    }
  }
}

TEST(Request, WhatIsNotSupportedIsAcceptedWhereItDoesNothing) {
  for (const std::string neutral :
       {"\"dry_multiplier\": 0", "\"xtc_probability\": 0.0", "\"typical_p\": 1", "\"mirostat\": 0",
        "\"seed\": -1", "\"n_predict\": -1", "\"top_n_sigma\": -1", "\"dynatemp_range\": 0",
        "\"grammar\": \"\"", "\"json_schema\": null", "\"min_keep\": 0", "\"lora\": []",
        "\"response_format\": {\"type\": \"text\"}", "\"mirostat_tau\": 5", "\"dry_base\": 1.75",
        "\"samplers\": [\"penalties\", \"dry\", \"top_n_sigma\", \"top_k\", \"typ_p\", \"top_p\", "
        "\"min_p\", \"xtc\", \"temperature\"]",
        "\"samplers\": \"edskypmxt\""}) {
    EXPECT_EQ(refused(kNative, with(neutral)), "accepted") << neutral;
  }
  for (const auto& [field, value] : std::vector<std::pair<std::string, std::string>>{
           {"dry_multiplier", "0.8"},
           {"xtc_probability", "0.5"},
           {"typical_p", "0.9"},
           {"mirostat", "2"},
           {"top_n_sigma", "1"},
           {"dynatemp_range", "0.5"},
           {"grammar", "\"root ::= x\""},
           {"json_schema", "{}"},
           {"min_keep", "3"},
           {"lora", "[{\"id\": 0}]"},
           {"response_format", "{\"type\": \"json_object\"}"},
           {"post_sampling_probs", "true"},
           {"t_max_predict_ms", "500"}}) {
    EXPECT_EQ(refused(kNative, with("\"" + field + "\": " + value)), field) << value;
  }
  EXPECT_EQ(refused(kText, with("\"echo\": true")), "echo");
  EXPECT_EQ(refused(kText, with("\"suffix\": \"x\"")), "suffix");
  EXPECT_EQ(refused(kText, with("\"best_of\": 2")), "best_of");
  EXPECT_EQ(refused(kText, with("\"best_of\": 1, \"echo\": false, \"suffix\": null")), "accepted");
}

TEST(Request, SeedsThatMeanADrawnOne) {
  for (const std::string seed : {"-1", "4294967295", "null"}) {
    EXPECT_FALSE(parse(kNative, with("\"seed\": " + seed)).seed_given) << seed;
  }
  EXPECT_EQ(parse(kNative, with("\"seed\": 9007199254740993")).sampling.seed, 9007199254740993u);
}

TEST(Request, LimitsAndProbabilitiesOfEachSurface) {
  EXPECT_EQ(parse(kText, with("\"max_tokens\": 5")).max_tokens, 5);
  EXPECT_EQ(parse(kText, with("\"max_tokens\": 5, \"max_completion_tokens\": 6")).max_tokens, 6);
  EXPECT_EQ(parse(kNative, with("\"n_predict\": -2")).max_tokens, -1);
  EXPECT_TRUE(parse(kText, with("\"logprobs\": 0")).logprobs);
  EXPECT_EQ(parse(kText, with("\"logprobs\": 3")).top, 3);
  EXPECT_FALSE(parse(kText, with("\"logprobs\": null")).logprobs);
  EXPECT_TRUE(parse(kText, with("\"stream_options\": {\"include_usage\": true}")).include_usage);
}

TEST(Request, Chats) {
  const auto chat = [](const std::string& messages, const std::string& more = "") {
    return "{\"messages\": " + messages + more + "}";
  };
  const Request r =
      parse(kChat, chat(R"([{"role": "system", "content": [{"type": "text", "text": "a"},
                                                     {"type": "text", "text": "b"}]},
                      {"role": "user", "content": "c"}])",
                        R"(, "logprobs": true, "top_logprobs": 2, "max_completion_tokens": 3,
                     "chat_template_kwargs": {"enable_thinking": false}, "tools": [],
                     "logit_bias": {"5": -100}, "user": "somebody")"));
  EXPECT_EQ(r.messages[0]["content"], "ab");
  EXPECT_EQ(r.messages[1]["role"], "user");
  EXPECT_EQ(r.template_variables["enable_thinking"], false);
  EXPECT_TRUE(r.logprobs);
  EXPECT_EQ(r.top, 2);
  EXPECT_EQ(r.max_tokens, 3);
  EXPECT_EQ(r.sampling.logit_bias.at(0).first, 5);

  EXPECT_EQ(refused(kChat, "{}"), "messages");
  EXPECT_EQ(refused(kChat, chat("[]")), "messages");
  EXPECT_EQ(refused(kChat, chat("{}")), "messages");
  EXPECT_EQ(refused(kChat, chat("[5]")), "messages[0]");
  EXPECT_EQ(refused(kChat, chat(R"([{"content": "x"}])")), "messages[0].role");
  EXPECT_EQ(refused(kChat, chat(R"([{"role": "user"}])")), "messages[0].content");
  EXPECT_EQ(refused(kChat, chat(R"([{"role": "user", "content": 5}])")), "messages[0].content");
  EXPECT_EQ(refused(kChat, chat(R"([{"role": "user", "content": [{"type": "image_url"}]}])")),
            "messages[0].content[0].type");
  const std::string hi = R"([{"role": "user", "content": "hi"}])";
  EXPECT_EQ(refused(kChat, chat(hi, R"(, "tools": 5)")), "tools");
  EXPECT_EQ(refused(kChat, chat(hi, R"(, "tools": [5])")), "tools[0]");
  EXPECT_EQ(refused(kChat, chat(hi, R"(, "tools": [{"type": "web_search"}])")), "tools[0].type");
  EXPECT_EQ(refused(kChat, chat(hi, R"(, "tools": [{"type": "function"}])")), "tools[0].function");
  EXPECT_EQ(refused(kChat, chat(hi, R"(, "tools": [{"function": {}}])")), "tools[0].function.name");
  EXPECT_EQ(
      refused(kChat, chat(hi, R"(, "tools": [{"function": {"name": "f", "parameters": 5}}])")),
      "tools[0].function.parameters");
  const std::string tool = R"(, "tools": [{"type": "function", "function": {"name": "f"}}])";
  EXPECT_EQ(parse(kChat, chat(hi, tool)).tools.size(), 1u);
  EXPECT_TRUE(parse(kChat, chat(hi, tool)).parallel_tool_calls);
  EXPECT_FALSE(
      parse(kChat, chat(hi, tool + R"(, "parallel_tool_calls": false)")).parallel_tool_calls);
  EXPECT_TRUE(parse(kChat, chat(hi, tool + R"(, "tool_choice": "none")")).tools.empty());
  EXPECT_EQ(refused(kChat, chat(hi, tool + R"(, "tool_choice": {"type": "function"})")),
            "tool_choice");
  EXPECT_EQ(parse(kChat, chat(hi)).reasoning, ReasoningFormat::apart);
  EXPECT_EQ(parse(kChat, chat(hi, R"(, "reasoning_format": "none")")).reasoning,
            ReasoningFormat::none);
  EXPECT_EQ(refused(kChat, chat(hi, R"(, "reasoning_format": "deepseek-legacy")")),
            "reasoning_format");
  EXPECT_EQ(refused(kChat, chat(hi, R"(, "tool_choice": "required")")), "tool_choice");
  EXPECT_EQ(refused(kChat, chat(hi, R"(, "tool_choice": "auto")")), "accepted");
  EXPECT_EQ(refused(kChat, chat(hi, R"(, "top_logprobs": 2)")), "top_logprobs");
  EXPECT_EQ(refused(kChat, chat(hi, R"(, "reasoning_effort": "high")")), "reasoning_effort");
}

TEST(Request, CallsInMessages) {
  const auto chat = [](const std::string& calls, const std::string& more = "") {
    return R"({"messages": [{"role": "assistant", "tool_calls": )" + calls + more + "}]}";
  };
  const auto call = [&](const std::string& function) {
    return chat(R"([{"id": "x", "type": "function", "function": )" + function + "}]");
  };
  const auto arguments = [&](const std::string& function) {
    return parse(kChat, call(function)).messages[0]["tool_calls"][0]["function"]["arguments"];
  };
  // The text that clients send back is the object that templates want; what is none stays text.
  EXPECT_EQ(arguments(R"({"name": "f", "arguments": "{\"b\": 1, \"a\": \"é\"}"})").dump(),
            R"({"b":1,"a":"é"})");
  EXPECT_EQ(arguments(R"({"name": "f", "arguments": {"a": 1}})").dump(), R"({"a":1})");
  EXPECT_EQ(arguments(R"({"name": "f", "arguments": "{\"a\": "})"), "{\"a\": ");
  const std::string deep(1000, '[');
  EXPECT_EQ(arguments(R"({"name": "f", "arguments": "{\"a\": )" + deep + R"("})"),
            "{\"a\": " + deep);
  EXPECT_EQ(parse(kChat, call(R"({"name": "f"})")).messages[0]["content"], "");
  EXPECT_EQ(refused(kChat, chat("5")), "messages[0].tool_calls");
  EXPECT_EQ(refused(kChat, chat("[5]")), "messages[0].tool_calls[0]");
  EXPECT_EQ(refused(kChat, chat("[{}]")), "messages[0].tool_calls[0].function");
  EXPECT_EQ(refused(kChat, call("{}")), "messages[0].tool_calls[0].function.name");
  EXPECT_EQ(refused(kChat, call(R"({"name": "f", "arguments": 5})")),
            "messages[0].tool_calls[0].function.arguments");
  EXPECT_EQ(refused(kChat, chat("[]")), "messages[0].content");
}

TEST(Request, BodiesThatAreNoJsonObjects) {
  for (const std::string& body :
       {std::string(), std::string("{"), std::string("[]"), std::string("\"x\""),
        std::string("null"), std::string("{\"prompt\": NaN}"),
        std::string("{\"prompt\": \"\xFF\"}"), std::string("{\"prompt\": \"a\"} x"),
        std::string("\0", 1),
        "{\"prompt\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}",
        std::string(100'000, '['), std::string(100'000, '{')}) {
    EXPECT_EQ(refused(kNative, body), "") << body.substr(0, 30);
  }
  // Brackets in a string are no nesting.
  EXPECT_EQ(refused(kNative, "{\"prompt\": \"" + std::string(1000, '[') + "\\\"[\"}"), "accepted");
  const int kept = kMaxDepth - 2;  // the body, and the list
  const auto nested = [](int depth) {
    return with("\"x\": [" + std::string(static_cast<size_t>(depth), '[') +
                std::string(static_cast<size_t>(depth), ']') + "]");
  };
  EXPECT_EQ(refused(kNative, nested(kept)), "accepted");
  EXPECT_EQ(refused(kNative, nested(kept + 1)), "");
}

TEST(Request, TooManySequences) {
  EXPECT_EQ(refused(kText, R"({"prompt": ["a", "b"], "n": 33})"), "n");
  EXPECT_EQ(refused(kText, R"({"prompt": ["a", "b"], "n": 32})"), "accepted");
}

}  // namespace
}  // namespace lockstep::serve
