// lockstep run: completes a prompt, or chats.
#include <fmt/format.h>

#include <memory>

#include "chat.h"
#include "cli.h"
#include "decode/result.h"
#include "device_room.h"
#include "engine.h"
#include "generation.h"
#include "interrupt.h"
#include "output.h"
#include "program.h"
#include "text/utf8_stream.h"

namespace lockstep::app {
namespace {

constexpr std::string_view kEmptyMessage =
    "the message is empty; give some text with -p, -f or on standard input";

struct RunOptions {
  EngineOptions engine;
  SamplingOptions sampling;
  DraftOptions drafts;
  std::optional<std::string> prompt, file, system, system_file;
  std::optional<Given> chat_template, template_file;
  std::optional<int64_t> tokens;
  std::vector<std::string> stops;
  bool conversation = false, no_conversation = false, single_turn = false;
  bool escape = false, no_escape = false, special = false;
  bool display_prompt = false, no_display_prompt = false, json = false;

  bool escapes() const { return !no_escape; }
};

// What the flags, and where standard input comes from, ask for.
struct Mode {
  bool chat = false;
  bool has_prompt = false;  // the prompt, or the first message
  std::string prompt;
};

void check_contradictions(const RunOptions& o) {
  const auto exclude = [](bool a, bool b, std::string_view names) {
    if (a && b) bad_use(fmt::format("{} contradict each other; give one", names));
  };
  exclude(o.conversation, o.no_conversation, "-cnv and -no-cnv");
  exclude(o.prompt.has_value(), o.file.has_value(), "-p and -f");
  exclude(o.system.has_value(), o.system_file.has_value(), "-sys and -sysf");
  if (o.chat_template && o.template_file) {
    bad_use(fmt::format("{} and {} contradict each other; give one", o.chat_template->name,
                        o.template_file->name));
  }
  exclude(o.escape, o.no_escape, "-e and --no-escape");
  exclude(o.display_prompt, o.no_display_prompt, "--display-prompt and --no-display-prompt");
  if (o.tokens && *o.tokens < -2) {
    bad_use(fmt::format("-n {}: give a number of tokens, or -1 for as many as the context holds",
                        *o.tokens));
  }
}

// The last newline is an editor's or a pipe's, not the prompt's.
std::string without_last_newline(std::string text) {
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::string file_prompt(const std::string& path) {
  return without_last_newline(read_text_file(path));
}

Mode choose_mode(const RunOptions& o) {
  check_contradictions(o);
  Mode mode;
  mode.has_prompt = o.prompt || o.file;
  if (mode.has_prompt) {
    mode.prompt = o.prompt ? *o.prompt : file_prompt(*o.file);
    if (o.escapes()) mode.prompt = process_escapes(mode.prompt);
  }
  mode.chat = o.conversation || (!mode.has_prompt && !o.no_conversation && stdin_is_terminal());
  if (!mode.chat) {
    for (const auto& [given, name] : {std::pair{o.single_turn, "-st"},
                                      {o.system.has_value(), "-sys"},
                                      {o.system_file.has_value(), "-sysf"}}) {
      if (given)
        bad_use(fmt::format("{} is for a chat, and this completes a prompt; add -cnv", name));
    }
  }
  // Standard input that is no terminal is the prompt, or the one turn of a chat, as it is: text
  // that comes through a pipe has no escapes to process.
  if (!mode.has_prompt && !stdin_is_terminal() && (!mode.chat || o.single_turn)) {
    mode.prompt = without_last_newline(read_stdin());
    mode.has_prompt = true;
  }
  if (mode.chat && o.single_turn && mode.has_prompt && mode.prompt.empty()) bad_use(kEmptyMessage);
  if (!mode.chat && !mode.has_prompt)
    bad_use("no prompt; give one with -p or -f, or leave out -no-cnv to chat");
  if (o.json && mode.chat && !o.single_turn) {
    bad_use("--json gives one object for one answer; with -cnv add -st and the message with -p");
  }
  return mode;
}

Json run_json(const Mode& mode, const Answer& answer, const decode::Session& session,
              const kernels::LoadReport& load) {
  return {{"schema", "lockstep.run/1"},
          {"prompt", text::well_formed_utf8(mode.prompt)},
          {"text", answer.text},
          {"ids", answer.ids},
          {"finish", answer.finish_name()},
          {"stop_string", answer.stop.empty() ? Json() : Json(answer.stop)},
          {"seed", session.options().sampling.seed},
          {"load", load_json(load)},
          {"result", decode::to_json(decode::make_result(session, this_program()))}};
}

ExitCode run(const RunOptions& o) {
  const Mode mode = choose_mode(o);
  const auto k_type = parse_kv_type(o.engine.k_type);
  const auto v_type = parse_kv_type(o.engine.v_type);
  const auto model = open_model(o.engine);
  const auto tokenizer = text::Tokenizer::load(model->file());
  for (const auto* notes : {&model->notes(), &tokenizer.notes()}) {
    for (const std::string& line : *notes) note("note: " + line);
  }
  const auto backend = open_backend(o.engine);
  const kernels::LoadReport load = load_weights(*backend, *model);

  decode::SessionOptions session_options;
  session_options.context = choose_context(o.engine, *model, k_type, v_type);
  check_room_for_context(*backend, *model, session_options.context, k_type, v_type);
  session_options.k_type = k_type;
  session_options.v_type = v_type;
  session_options.chunk = o.engine.chunk.value_or(64);
  session_options.sampling = o.sampling.make(tokenizer);
  session_options.sampling.validate(model->graph().n_vocab);
  session_options.source = o.drafts.open(*model, tokenizer, backend);
  const decode::DepthPolicy depth = o.drafts.depth();
  if (session_options.source) session_options.depth = depth;
  session_options.max_tokens = std::max<int64_t>(-1, o.tokens.value_or(-1));
  session_options.is_end = [&tokenizer](int32_t id) { return tokenizer.is_eog(id); };
  decode::Session session(model, backend, session_options);

  AnswerOptions answer_options;
  for (const std::string& stop : o.stops) {
    answer_options.stops.push_back(o.escapes() ? process_escapes(stop) : stop);
  }
  answer_options.special = o.special;
  const bool terminal = stdout_is_terminal();
  answer_options.print = [&](std::string_view text) {
    if (!o.json) print(terminal ? for_terminal(text) : std::string(text));
  };

  if (mode.chat) {
    ChatOptions chat;
    chat.single_turn = o.single_turn;
    chat.json = o.json;
    if (o.system) chat.system = o.escapes() ? process_escapes(*o.system) : *o.system;
    if (o.system_file) chat.system = file_prompt(*o.system_file);
    if (o.template_file) {
      chat.chat_template = naming_environment(*o.template_file, [](const std::string& path) {
        return read_text_file(path, kMaxTemplateBytes);
      });
      chat.template_file = o.template_file->value;
    }
    if (o.chat_template) {
      chat.chat_template = o.chat_template->value;
      chat.template_name = o.chat_template->name;
    }
    if (mode.has_prompt) chat.first = mode.prompt;
    const ChatResult result = chat_loop(session, *model, tokenizer, chat, answer_options);
    if (o.json && result.last) print_json(run_json(mode, *result.last, session, load));
    if (o.json && !result.last && result.code == ExitCode::ok) bad_use(kEmptyMessage);
    return result.code;
  }

  const std::vector<int32_t> ids = tokenizer.encode(mode.prompt, true, true);
  if (ids.empty()) bad_use("the prompt is empty, and the model asks for no BOS; give some text");
  if (!o.no_display_prompt) answer_options.heading = mode.prompt;
  // From here on a signal ends the generation and not the process: what there is gets printed.
  const Interrupts interrupts;
  answer_options.interrupted = &Interrupts::flag();
  const Answer result = answer(session, tokenizer, ids, answer_options);
  model->file().refuse_if_changed();
  if (o.json) {
    print_json(run_json(mode, result, session, load));
  } else {
    print("\n");
  }
  print_closing_line(session);
  if (result.finish == decode::Finish::fault) return ExitCode::check_failed;
  const bool cut = result.finish == decode::Finish::stopped && result.stop.empty();
  return cut ? Interrupts::exit_code() : ExitCode::ok;
}

}  // namespace

Runner set_up_run(Flags& flags) {
  const auto o = std::make_shared<RunOptions>();
  o->engine.bind_model(flags);
  flags.text("--prompt", o->prompt);
  flags.text("--file", o->file);
  flags.integer("--predict", o->tokens, INT32_MIN, INT64_MAX);
  flags.toggle("--conversation", o->conversation);
  flags.toggle("--no-conversation", o->no_conversation);
  flags.toggle("--single-turn", o->single_turn);
  flags.text("--system-prompt", o->system);
  flags.text("--system-prompt-file", o->system_file);
  flags.text("--chat-template", o->chat_template);
  flags.text("--chat-template-file", o->template_file);
  flags.texts("--reverse-prompt", o->stops);
  flags.toggle("--escape", o->escape);
  flags.toggle("--no-escape", o->no_escape);
  flags.toggle("--display-prompt", o->display_prompt);
  flags.toggle("--no-display-prompt", o->no_display_prompt);
  flags.toggle("--special", o->special);
  o->sampling.bind(flags);
  o->drafts.bind(flags);
  o->engine.bind_context(flags);
  o->engine.bind_backend(flags);
  o->engine.bind_kv_types(flags);
  flags.toggle("--json", o->json);
  flags.describe(
      "Completes a prompt (-p, -f, or standard input that is no terminal) and exits; without a "
      "prompt "
      "on a terminal, or with -cnv, chats with the model's template. The text goes to standard "
      "output "
      "as it comes, the figures to standard error.",
      "lockstep run -m model.gguf -p \"The sea is\" -n 32 --temp 0 --spec-type suffix");
  return [o] { return run(*o); };
}

}  // namespace lockstep::app
