// From a request to token ids and sampling parameters: what needs the tokenizer and the template.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "serve/chat_output.h"
#include "serve/request.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lockstep::serve {

struct Prepared {
  std::vector<std::vector<int32_t>> prompts;
  ChatSyntax output;            // of a chat: how its answer is read
  std::vector<int32_t> marks;   // of a chat: control tokens that are part of the answer's text
  sample::Parameters sampling;  // with its seed; choice_index is for each choice to set
};

// chat: null where the model has no template. Throws RequestError: a prompt without tokens, ids
// outside the vocabulary, messages that the template refuses, biases that the sampler refuses.
Prepared prepare(const Request& request, const text::Tokenizer& tokenizer,
                 const text::ChatTemplate* chat);

// The ids of one prompt. A text that comes first gets BOS where the model asks for it; texts of
// control tokens are those tokens, as in llama-server.
std::vector<int32_t> encode_prompt(const Prompt& prompt, const text::Tokenizer& tokenizer,
                                   std::string_view field = "prompt");

// How a template has calls written; none where it knows no tools, or writes them in a way that is
// not read here.
CallSyntax call_syntax(std::string_view template_source);

// The text that the template makes of a chat's messages.
std::string render_chat(const Request& request, const text::ChatTemplate* chat);

uint64_t draw_seed();  // 32 bits

}  // namespace lockstep::serve
