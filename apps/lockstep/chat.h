// The conversation of `run`: turns, history, and what Ctrl-C does.
#pragma once

#include <optional>
#include <string>

#include "decode/session.h"
#include "generation.h"
#include "model/model.h"
#include "text/tokenizer.h"

namespace lockstep::app {

struct ChatOptions {
  std::optional<std::string> system, first, chat_template;
  bool single_turn = false;
  bool json = false;  // the caller prints the answer
};

// Reads turns until the end of input, /exit, or Ctrl-C at the prompt; Ctrl-C during an answer ends
// that answer alone. Returns the last answer, if there was one.
std::optional<Answer> chat_loop(decode::Session& session, const model::Model& model,
                                const text::Tokenizer& tokenizer, const ChatOptions& options,
                                AnswerOptions answer_options);

}  // namespace lockstep::app
