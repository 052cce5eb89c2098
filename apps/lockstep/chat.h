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
  std::string template_file;  // where chat_template was read from, "" for a value
  std::string template_name;  // what messages call that value
  bool single_turn = false;   // `first` is text then, even "/exit"
  bool json = false;          // the caller prints the answer
};

struct ChatResult {
  std::optional<Answer> last;  // the last answer, if there was one
  // check_failed where an answer ended in a fault; interrupted or terminated where a signal ended
  // what nobody at a terminal can go on with.
  ExitCode code = ExitCode::ok;
};

// Reads turns until the end of input, /exit, SIGTERM, or Ctrl-C at the prompt; Ctrl-C during an
// answer ends that answer alone where someone at a terminal can type another message, else all.
ChatResult chat_loop(decode::Session& session, const model::Model& model,
                     const text::Tokenizer& tokenizer, const ChatOptions& options,
                     AnswerOptions answer_options);

}  // namespace lockstep::app
