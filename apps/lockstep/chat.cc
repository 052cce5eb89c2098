#include "chat.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "interrupt.h"
#include "output.h"
#include "text/chat_template.h"
#include "text/utf8_stream.h"

namespace lockstep::app {
namespace {

using Json = text::ChatTemplate::Json;

// Lines of standard input, read by hand because a stream would hide the interruption.
class Lines {
 public:
  // nullopt at the end of input, and when a signal came instead of a line.
  std::optional<std::string> next() {
    while (true) {
      const size_t newline = buffer_.find('\n');
      if (newline != std::string::npos) {
        std::string line = buffer_.substr(0, newline);
        buffer_.erase(0, newline + 1);
        return line;
      }
      // A signal that comes just before a read, or to another thread, would not end it: so the read
      // waits until there is something, and the flag is looked at in between.
      struct pollfd input {
        STDIN_FILENO, POLLIN, 0
      };
      while (::poll(&input, 1, kLookMs) <= 0) {
        if (Interrupts::flag() != 0) return std::nullopt;
      }
      char bytes[4096];
      const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
      if (n < 0 && errno == EINTR && Interrupts::flag() == 0) continue;
      if (n <= 0) {
        if (n < 0 || buffer_.empty()) return std::nullopt;
        return std::exchange(buffer_, "");
      }
      buffer_.append(bytes, static_cast<size_t>(n));
    }
  }
  // A turn: lines that end with a backslash go on in the next.
  std::optional<std::string> turn() {
    std::string text;
    while (const std::optional<std::string> line = next()) {
      if (!line->ends_with('\\')) return text + *line;
      text += line->substr(0, line->size() - 1) + "\n";
    }
    if (text.empty()) return std::nullopt;
    return text;
  }

 private:
  static constexpr int kLookMs = 50;
  std::string buffer_;
};

}  // namespace

ChatResult chat_loop(decode::Session& session, const model::Model& model,
                     const text::Tokenizer& tokenizer, const ChatOptions& options,
                     AnswerOptions answer_options) {
  auto chat = text::ChatTemplate::for_model(model.file(), tokenizer, options.chat_template, {},
                                            options.template_file, options.template_name);
  const Interrupts interrupts;
  chat.set_cancel(&Interrupts::flag());
  answer_options.interrupted = &Interrupts::flag();
  const bool prompting = stdin_is_terminal() && !options.json;
  // Somebody can go on after an answer that Ctrl-C cut.
  const bool goes_on = prompting && !options.single_turn;
  const auto ended_by_signal = [&] {
    return Interrupts::terminated() || (Interrupts::interrupted() && !goes_on);
  };
  if (goes_on) {
    note("a chat; /clear starts anew, /exit or Ctrl-D leaves, Ctrl-C stops an answer");
  }

  Json messages = Json::array();
  const auto start_anew = [&] {
    messages = Json::array();
    if (options.system) messages.push_back({{"role", "system"}, {"content", *options.system}});
  };
  start_anew();
  Lines lines;
  std::optional<std::string> next = options.first;
  ChatResult result;
  bool faulted = false;
  // The one message of a script is text, whatever it says.
  bool commands = !(options.single_turn && options.first);
  while (!ended_by_signal()) {
    if (!next) {
      Interrupts::clear();
      if (prompting) print("> ");
      next = lines.turn();
      if (!next) break;
      commands = true;
    }
    const std::string turn = *std::exchange(next, std::nullopt);
    if (commands && turn == "/exit") break;
    if (commands && turn == "/clear") {
      start_anew();
      continue;
    }
    if (turn.empty()) continue;
    messages.push_back({{"role", "user"}, {"content", text::well_formed_utf8(turn)}});
    if (goes_on) Interrupts::clear();
    try {
      const std::string rendered = chat.render(messages, true);
      if (rendered.empty()) {
        throw Error(chat.origin().broken,
                    fmt::format("{}: rendered to nothing", chat.origin().name));
      }
      result.last =
          answer(session, tokenizer, text::encode_chat(tokenizer, rendered), answer_options);
    } catch (const Error& error) {
      // A turn that does not fit, or whose rendering Ctrl-C ended, ends the turn, where someone can
      // type another.
      const bool turn_only = prompting && error.code() == ExitCode::bad_use;
      const bool cut = goes_on && error.code() == ExitCode::interrupted;
      if (!turn_only && !cut) throw;
      note(error.what());
      messages.erase(messages.size() - 1);
      continue;
    }
    if (!options.json) print("\n");
    print_closing_line(session);
    messages.push_back({{"role", "assistant"}, {"content", result.last->text}});
    if (result.last->finish == decode::Finish::fault) faulted = true;
    if (options.single_turn) break;
    if (result.last->finish == decode::Finish::context_full) {
      note("the context is full; /clear starts anew, or start again with a larger -c");
    }
  }
  if (goes_on) print("\n");
  if (ended_by_signal()) {
    result.code = Interrupts::exit_code();
  } else if (faulted) {
    result.code = ExitCode::check_failed;
  }
  return result;
}

}  // namespace lockstep::app
