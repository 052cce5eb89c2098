#include "chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "output.h"
#include "text/chat_template.h"
#include "text/utf8_stream.h"

namespace lockstep::app {
namespace {

using Json = text::ChatTemplate::Json;

std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);  // a signal handler sets it

void on_interrupt(int) {
  interrupted = true;
}

// While it lives, Ctrl-C sets `interrupted` and wakes a read.
class InterruptHandler {
 public:
  InterruptHandler() {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    ::sigemptyset(&action.sa_mask);  // no SA_RESTART: the read of a line has to return
    ::sigaction(SIGINT, &action, &old_);
  }
  ~InterruptHandler() { ::sigaction(SIGINT, &old_, nullptr); }

 private:
  struct sigaction old_ {};
};

// Lines of standard input, read by hand because a stream would hide the interruption.
class Lines {
 public:
  // nullopt at the end of input, and when Ctrl-C came instead of a line.
  std::optional<std::string> next() {
    while (true) {
      const size_t newline = buffer_.find('\n');
      if (newline != std::string::npos) {
        std::string line = buffer_.substr(0, newline);
        buffer_.erase(0, newline + 1);
        return line;
      }
      char bytes[4096];
      const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
      if (n < 0 && errno == EINTR && !interrupted) continue;
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
  std::string buffer_;
};

}  // namespace

std::optional<Answer> chat_loop(decode::Session& session, const model::Model& model,
                                const text::Tokenizer& tokenizer, const ChatOptions& options,
                                AnswerOptions answer_options) {
  const auto chat = text::ChatTemplate::for_model(model.file(), tokenizer, options.chat_template);
  const InterruptHandler handler;
  answer_options.interrupted = &interrupted;
  const bool prompting = stdin_is_terminal() && !options.json;
  if (prompting && !options.single_turn) {
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
  std::optional<Answer> last;
  while (true) {
    if (!next) {
      interrupted = false;
      if (prompting) print("> ");
      next = lines.turn();
      if (!next) break;
    }
    const std::string turn = *std::exchange(next, std::nullopt);
    if (turn == "/exit") break;
    if (turn == "/clear") {
      start_anew();
      continue;
    }
    if (turn.empty()) continue;
    messages.push_back({{"role", "user"}, {"content", text::well_formed_utf8(turn)}});
    interrupted = false;
    try {
      const std::vector<int32_t> ids = text::encode_chat(tokenizer, chat.render(messages, true));
      last = answer(session, tokenizer, ids, answer_options);
    } catch (const Error& error) {
      // A turn that does not fit ends the turn, where someone can type another.
      if (!prompting || error.code() != ExitCode::bad_use) throw;
      note(error.what());
      messages.erase(messages.size() - 1);
      continue;
    }
    if (!options.json) print("\n");
    print_closing_line(session);
    messages.push_back({{"role", "assistant"}, {"content", last->text}});
    if (options.single_turn) break;
    if (last->finish == decode::Finish::context_full) {
      note("the context is full; /clear starts anew, or start again with a larger -c");
    }
  }
  if (prompting && !options.single_turn) print("\n");
  return last;
}

}  // namespace lockstep::app
