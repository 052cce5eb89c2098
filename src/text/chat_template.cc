#include "text/chat_template.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "text/chat_template_helper.inc"
#include "text/helper_process.h"

namespace lockstep::text {
namespace {

using Json = ChatTemplate::Json;

constexpr const char* kPython = "/usr/bin/python3";
constexpr const char* kInstall = "apt-get install python3-jinja2";

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

double seconds(std::chrono::milliseconds time) {
  return static_cast<double>(time.count()) / 1000;
}

}  // namespace

struct ChatTemplate::State {
  std::string source, bos, eos;
  Limits limits;
  ChatTemplateOrigin origin;
  const std::atomic<int>* cancel = nullptr;
  std::mutex mutex;
  HelperProcess helper;

  void start();
  Json ask(const Json& request, std::chrono::milliseconds time);
  Json ask_again_if_died(const Json& request);
  [[noreturn]] void fail(const Json& reply) const;
};

void ChatTemplate::State::fail(const Json& reply) const {
  const std::string kind = reply.value("kind", ""), what = reply.value("error", "");
  if (kind == "missing") {
    throw Error(ExitCode::resource,
                fmt::format("chat templates need Jinja2 for {}, which says: {} ({})", kPython, what,
                            kInstall));
  }
  if (kind == "memory") {
    throw Error(ExitCode::resource, fmt::format("{}: needed more than {} MiB of memory",
                                                origin.name, limits.memory_bytes >> 20));
  }
  // A template may say anything, at any length.
  const std::string message = fmt::format("{}: {}", origin.name, escape(what, 500));
  throw Error(kind == "raised" ? ExitCode::bad_use : origin.broken, message);
}

Json ChatTemplate::State::ask(const Json& request, std::chrono::milliseconds time) {
  const auto reply =
      helper.ask(dump(request), HelperProcess::Clock::now() + time, limits.reply_bytes, cancel);
  if (!reply) {
    switch (helper.failure()) {
      case HelperProcess::Failure::timed_out:
        throw Error(ExitCode::resource, fmt::format("{}: ran longer than {} s and was stopped",
                                                    origin.name, seconds(time)));
      case HelperProcess::Failure::too_long:
        throw Error(ExitCode::resource, fmt::format("{}: wrote more than {} MiB", origin.name,
                                                    limits.reply_bytes >> 20));
      case HelperProcess::Failure::cancelled:
        throw Error(*cancel == SIGTERM ? ExitCode::terminated : ExitCode::interrupted,
                    fmt::format("{}: rendering was interrupted", origin.name));
      default:
        return nullptr;
    }
  }
  return Json::parse(*reply, nullptr, false);
}

void ChatTemplate::State::start() {
  const std::vector<std::string> argv = {kPython,
                                         "-I",
                                         "-c",
                                         kChatTemplateHelper,
                                         std::to_string(getpid()),
                                         std::to_string(limits.memory_bytes)};
  if (!helper.start(argv)) {
    const int error = helper.start_error();
    if (error != ENOENT && error != EACCES) {
      throw Error(ExitCode::resource,
                  fmt::format("the chat template helper ({}) cannot be started: "
                              "{}; look at the limits (ulimit -a)",
                              kPython, std::strerror(error)));
    }
    throw Error(ExitCode::resource,
                fmt::format("chat templates need {} with Jinja2: {}", kPython, kInstall));
  }
  const Json reply = ask({{"template", source},
                          {"bos_token", bos},
                          {"eos_token", eos},
                          {"seconds", seconds(limits.start)}},
                         limits.start);
  if (!reply.is_object()) {
    helper.stop();
    throw Error(
        ExitCode::resource,
        fmt::format("the chat template helper ({}) ended without a word; look at the limits "
                    "(ulimit -a)",
                    kPython));
  }
  if (reply.contains("error")) fail(reply);
}

// The helper may be gone: killed from outside, or with the thread that started it, because Linux
// sends the parent-death signal at the end of a thread. One new start is worth it; a template that
// brings its helper down twice is an error.
Json ChatTemplate::State::ask_again_if_died(const Json& request) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!helper.running()) start();
    Json reply = ask(request, limits.render);
    if (reply.is_object()) return reply;
    helper.stop();
  }
  throw Error(ExitCode::resource, fmt::format("{}: the helper died while rendering", origin.name));
}

ChatTemplate::ChatTemplate(std::string source, std::string bos, std::string eos, Limits limits,
                           ChatTemplateOrigin origin)
    : state_(std::make_unique<State>()) {
  state_->source = std::move(source);
  state_->bos = std::move(bos);
  state_->eos = std::move(eos);
  state_->limits = limits;
  state_->origin = std::move(origin);
  state_->start();
}

ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

ChatTemplate ChatTemplate::for_model(const gguf::File& file, const Tokenizer& tokenizer,
                                     const std::optional<std::string>& choice, Limits limits,
                                     std::string_view choice_file, std::string_view choice_name) {
  const auto names = [] { return fmt::format("{}", fmt::join(named_chat_templates(), ", ")); };
  std::string source;
  ChatTemplateOrigin origin;
  if (choice) {
    origin =
        choice_file.empty()
            ? ChatTemplateOrigin{fmt::format("chat template of {}", choice_name), ExitCode::bad_use}
            : ChatTemplateOrigin{fmt::format("chat template {}", choice_file), ExitCode::bad_file};
    if (const auto named = named_chat_template(*choice)) {
      source = *named;
    } else if (choice->find('{') != std::string::npos) {
      source = *choice;
    } else if (choice_file.empty()) {
      throw Error(ExitCode::bad_use, fmt::format("{} \"{}\" is no name ({}) and no Jinja",
                                                 choice_name, shorten(*choice), names()));
    } else {
      throw Error(ExitCode::bad_file, fmt::format("{}: no Jinja in it (no brace)", origin.name));
    }
  } else if (const auto own = file.string("tokenizer.chat_template")) {
    source = *own;
    origin.name = fmt::format("chat template of {}", file.name());
  } else {
    throw Error(
        ExitCode::bad_use,
        fmt::format("{}: the file has no chat template (a base model has none); give a plain "
                    "prompt, or name one with --chat-template ({})",
                    file.name(), names()));
  }
  const auto text_of = [&](int32_t id) {
    return id == kNoToken ? std::string() : std::string(tokenizer.token_text(id));
  };
  return ChatTemplate(std::move(source), text_of(tokenizer.bos()), text_of(tokenizer.eos()), limits,
                      std::move(origin));
}

std::string ChatTemplate::render(const Json& messages, bool add_generation_prompt,
                                 const Json& extra, std::optional<int64_t> now) const {
  if (!messages.is_array()) throw Error(ExitCode::bad_use, "chat messages must be a JSON array");
  if (!extra.is_object())
    throw Error(ExitCode::bad_use, "chat template variables must be an object");
  Json request = {{"messages", messages},
                  {"add_generation_prompt", add_generation_prompt},
                  {"extra", extra},
                  {"now", nullptr},
                  // The parent's clock decides; this one is for when the parent is gone.
                  {"seconds", seconds(state_->limits.render) + 5}};
  if (now) request["now"] = *now;
  const std::lock_guard lock(state_->mutex);
  const Json reply = state_->ask_again_if_died(request);
  if (!reply.contains("text") || !reply["text"].is_string()) state_->fail(reply);
  return reply["text"].get<std::string>();
}

const std::string& ChatTemplate::source() const {
  return state_->source;
}

const ChatTemplateOrigin& ChatTemplate::origin() const {
  return state_->origin;
}

void ChatTemplate::set_cancel(const std::atomic<int>* cancel) {
  state_->cancel = cancel;
}

std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::string_view rendered) {
  if (tokenizer.add_bos() && rendered.starts_with(tokenizer.token_text(tokenizer.bos()))) {
    rendered.remove_prefix(tokenizer.token_text(tokenizer.bos()).size());
  }
  if (tokenizer.add_eos() && rendered.ends_with(tokenizer.token_text(tokenizer.eos()))) {
    rendered.remove_suffix(tokenizer.token_text(tokenizer.eos()).size());
  }
  return tokenizer.encode(rendered, true, true);
}

}  // namespace lockstep::text
