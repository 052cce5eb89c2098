#include "serve/prepare.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace lockstep::serve {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

// What encloses thoughts and calls. Where such a text is a control token, which answers otherwise
// leave out, it is needed.
constexpr const char* kMarks[] = {"<think>",        "</think>",     "<tool_call>", "</tool_call>",
                                  "<|python_tag|>", "[TOOL_CALLS]", "[ARGS]",      "[CALL_ID]"};

bool ends_in_thought(std::string_view prompt) {
  while (!prompt.empty() && (prompt.back() == '\n' || prompt.back() == ' '))
    prompt.remove_suffix(1);
  return prompt.ends_with("<think>");
}

ChatSyntax chat_syntax(const Request& request, const text::ChatTemplate& chat,
                       std::string_view prompt) {
  ChatSyntax syntax;
  if (!request.tools.empty()) syntax.calls = call_syntax(chat.source());
  syntax.parallel = request.parallel_tool_calls;
  for (const Json& tool : request.tools) {
    syntax.tools.insert(tool["function"]["name"].get<std::string>());
  }
  syntax.thoughts = request.reasoning == ReasoningFormat::apart;
  syntax.begins_in_thought = request.add_generation_prompt && ends_in_thought(prompt);
  return syntax;
}

}  // namespace

uint64_t draw_seed() {
  uint32_t seed = 0;  // 32 bits, so that llama.cpp's clients take it too
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed) {
    throw RequestError(internal_error("the system gives no random seed; name one with seed"));
  }
  return seed;
}

std::vector<int32_t> encode_prompt(const Prompt& prompt, const text::Tokenizer& tokenizer,
                                   std::string_view field) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (const auto* id = std::get_if<int32_t>(&prompt[i])) {
      if (*id >= tokenizer.n_vocab()) {
        refuse_field(std::string(field),
                     fmt::format("token {} is not in the vocabulary (ids 0 to {})", *id,
                                 tokenizer.n_vocab() - 1));
      }
      ids.push_back(*id);
    } else {
      const auto more = tokenizer.encode(std::get<std::string>(prompt[i]), i == 0, true);
      ids.insert(ids.end(), more.begin(), more.end());
    }
  }
  return ids;
}

CallSyntax call_syntax(std::string_view source) {
  const auto has = [&](std::string_view text) {
    return source.find(text) != std::string_view::npos;
  };
  if (!has("tools")) return CallSyntax::none;
  // Some enclose tags of their own in the same marks.
  for (const char* other : {"<function=", "<arg_key>", "<invoke name", "<tool_calls>"}) {
    if (has(other)) return CallSyntax::none;
  }
  if (has("[TOOL_CALLS]")) return CallSyntax::mistral;
  if (has("<tool_call>")) return CallSyntax::hermes;
  if (has("<|python_tag|>") || (has("<|start_header_id|>") && has("\"parameters\""))) {
    return CallSyntax::llama3;
  }
  return CallSyntax::none;
}

std::string render_chat(const Request& request, const text::ChatTemplate* chat) {
  if (chat == nullptr) {
    throw RequestError(
        {.message = "this model has no chat template; use /completion, or start the server with "
                    "--chat-template"});
  }
  Json variables = request.template_variables;
  if (!request.tools.empty()) {
    if (call_syntax(chat->source()) == CallSyntax::none) {
      refuse_field("tools",
                   "this model's chat template has no tools, or has calls written in a way that is "
                   "not read here; leave them out, or start the server with --chat-template-file");
    }
    variables["tools"] = request.tools;
  }
  try {
    return chat->render(request.messages, request.add_generation_prompt, variables);
  } catch (const Error& error) {
    if (error.code() == ExitCode::bad_use) refuse_field("messages", error.what());
    throw RequestError(internal_error(error.what()));
  }
}

Prepared prepare(const Request& request, const text::Tokenizer& tokenizer,
                 const text::ChatTemplate* chat) {
  Prepared prepared;
  const bool is_chat = request.surface == Surface::oai_chat;
  const std::string field = is_chat ? "messages" : "prompt";
  if (is_chat) {
    const std::string prompt = render_chat(request, chat);
    prepared.prompts.push_back(text::encode_chat(tokenizer, prompt));
    prepared.output = chat_syntax(request, *chat, prompt);
    for (const char* mark : kMarks) {
      if (const auto id = tokenizer.find(mark)) prepared.marks.push_back(*id);
    }
  } else {
    for (const Prompt& prompt : request.prompts) {
      prepared.prompts.push_back(encode_prompt(prompt, tokenizer));
    }
  }
  for (const std::vector<int32_t>& ids : prepared.prompts) {
    if (ids.empty()) refuse_field(field, "it has no tokens; give at least one");
  }

  sample::Parameters& p = prepared.sampling = request.sampling;
  for (const auto& [text, bias] : request.text_bias) {
    for (const int32_t id : tokenizer.encode(text, false, false))
      p.logit_bias.emplace_back(id, bias);
  }
  if (request.ignore_eos) {
    for (const int32_t id : tokenizer.eog_tokens()) p.logit_bias.emplace_back(id, kRemoved);
  }
  if (!request.seed_given) p.seed = draw_seed();
  try {
    p.validate(tokenizer.n_vocab());
  } catch (const Error& error) {
    // The message begins with the parameter's name.
    const std::string what = error.what();
    const size_t end = what.find_first_of(" :");
    throw RequestError({.message = what, .param = what.substr(0, end)});
  }
  return prepared;
}

}  // namespace lockstep::serve
