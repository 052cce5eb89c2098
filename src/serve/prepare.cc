#include "serve/prepare.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <limits>

#include "base/error.h"

namespace lockstep::serve {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

}  // namespace

uint64_t draw_seed() {
  uint32_t seed = 0;  // 32 bits, so that llama.cpp's clients take it too
  if (::getrandom(&seed, sizeof seed, 0) != sizeof seed) {
    throw RequestError(internal_error("the system gives no random seed; name one with seed"));
  }
  return seed;
}

std::vector<int32_t> encode_prompt(const Prompt& prompt, const text::Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (const auto* id = std::get_if<int32_t>(&prompt[i])) {
      if (*id >= tokenizer.n_vocab()) {
        refuse_field("prompt", fmt::format("token {} is not in the vocabulary (ids 0 to {})", *id,
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

std::string render_chat(const Request& request, const text::ChatTemplate* chat) {
  if (chat == nullptr) {
    throw RequestError(
        {.message = "this model has no chat template; use /completion, or start the server with "
                    "--chat-template"});
  }
  try {
    return chat->render(request.messages, request.add_generation_prompt,
                        request.template_variables);
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
    prepared.prompts.push_back(text::encode_chat(tokenizer, render_chat(request, chat)));
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
