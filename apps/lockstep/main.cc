// lockstep: the one binary. Finds the command, runs it, and turns every failure into one line on
// standard error and a documented exit code.
#include <fmt/format.h>

#include <csignal>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli.h"
#include "failure.h"
#include "kernels/types.h"
#include "lab/lab.h"
#include "output.h"
#include "serve.h"

namespace lockstep::app {
namespace {

constexpr Command kCommands[] = {
    {"run", "complete a prompt, or chat", set_up_run},
    {"serve", "answer HTTP requests as llama-server and OpenAI do", set_up_serve},
    {"prove", "show that drafts, widths, threads and chunks change no bit", set_up_prove},
    {"eval", "log-probabilities and perplexity of a text", set_up_eval},
    {"bench", "time passes of a model against the memory bandwidth", set_up_bench},
    {"inspect", "what is in a model file, and what a token costs", set_up_inspect},
    {"tokenize", "text to token ids", set_up_tokenize},
    {"synth", "write a model with random weights", set_up_synth},
    {"flags", "the table of all flags, as Markdown", set_up_flags},
};

std::string usage() {
  std::string out =
      "Lockstep runs GGUF language models with speculative decoding that cannot change the "
      "answer.\n\n"
      "Usage: lockstep COMMAND [flags]\n\n";
  return out + list_commands(kCommands) +
         "  lab       experiments judged: logs, statistics, a ledger; see lockstep lab --help\n"
         "\n  lockstep COMMAND --help    the command's flags and an example\n"
         "  lockstep --version\n\n"
         "Example:\n  lockstep run -m model.gguf -p \"The sea is\" -n 32\n";
}

ExitCode run_main(const std::vector<std::string>& arguments) {
  if (arguments.empty()) bad_use("no command; see lockstep --help");
  const std::string& name = arguments[0];
  if (name == "help" && arguments.size() == 2) return run_main({arguments[1], "--help"});
  if (name == "--help" || name == "-h" || name == "help") {
    print(usage());
    return ExitCode::ok;
  }
  if (name == "--version") {
    print(fmt::format("lockstep {} (law {})\n", LOCKSTEP_VERSION, kernels::kLaw));
    return ExitCode::ok;
  }
  if (name == "lab") return run_lab({arguments.begin() + 1, arguments.end()});
  for (const Command& command : kCommands) {
    if (name == command.name) return run_command(command, {arguments.begin() + 1, arguments.end()});
  }
  bad_use(fmt::format("{}: no such command; see lockstep --help", shorten(name)));
}

int report(ExitCode code, std::string_view message) {
  note(message);
  return static_cast<int>(code);
}

}  // namespace
}  // namespace lockstep::app

int main(int argc, char** argv) {
  using lockstep::ExitCode;
  // A closed pipe is an error of the write that meets it, with a message and an exit code.
  std::signal(SIGPIPE, SIG_IGN);
  // So is a file that would pass the size limit.
  std::signal(SIGXFSZ, SIG_IGN);
  lockstep::app::install_failure_handlers();
  try {
    return static_cast<int>(lockstep::app::run_main({argv + 1, argv + argc}));
  } catch (const lockstep::Error& error) {
    return lockstep::app::report(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return lockstep::app::report(ExitCode::resource, "out of memory");
  } catch (const std::exception& error) {
    return lockstep::app::report(ExitCode::resource,
                                 fmt::format("unexpected failure: {}", error.what()));
  }
}
