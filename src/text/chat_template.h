// Chat templates: from messages to the text that a model was trained to continue.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "gguf/file.h"
#include "text/tokenizer.h"

namespace lockstep::text {

struct ChatTemplateLimits {
  std::chrono::milliseconds render{10'000};  // one render
  std::chrono::milliseconds start{60'000};   // start of Python and compilation of the template
  size_t memory_bytes = size_t{512} << 20;   // address space of the helper
  size_t reply_bytes = size_t{256} << 20;
};

// Where a template comes from, for messages and for the code of one that is broken.
struct ChatTemplateOrigin {
  std::string name = "chat template";
  ExitCode broken = ExitCode::bad_file;
};

// A template in the language that model makers write them in, Jinja, run by Jinja2 itself in a
// helper process (/usr/bin/python3 -I): sandboxed, with limits on time and memory, in the
// environment of Hugging Face's apply_chat_template (trim_blocks, lstrip_blocks, loop controls,
// tojson, raise_exception, strftime_now). The helper ends with this object, and with this process.
class ChatTemplate {
 public:
  // Keeps the order of keys, which templates print (tools above all).
  using Json = nlohmann::ordered_json;

  using Limits = ChatTemplateLimits;

  // Compiles source. bos, eos: the texts of those tokens, empty where there are none. Throws
  // Error(bad_file) for a template that is not Jinja, Error(resource) when the helper cannot be
  // started, saying what to install.
  ChatTemplate(std::string source, std::string bos, std::string eos, Limits limits = {},
               ChatTemplateOrigin origin = {});
  // The template of a model: choice if given (a name of named_chat_templates(), or Jinja source),
  // else the file's own. choice_file: what choice was read from, "" for a value, which messages
  // call choice_name and where a broken template is bad_use. Throws Error(bad_use) when there is
  // neither, saying what to do.
  static ChatTemplate for_model(const gguf::File& file, const Tokenizer& tokenizer,
                                const std::optional<std::string>& choice, Limits limits = {},
                                std::string_view choice_file = "",
                                std::string_view choice_name = "--chat-template");
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;

  // messages: an array of {"role", "content", …}. extra: an object of further variables ("tools",
  // "enable_thinking", …). now: seconds since 1970, taken as UTC by strftime_now, for output that
  // can be repeated; without it the clock and the local time zone. Strings that are not UTF-8 have
  // the bad bytes replaced. May be called from any thread; calls wait for each other. Throws
  // Error(bad_use) with the template's own words when it refuses the messages, Error(bad_file) when
  // it breaks on them, Error(resource) when it takes too long or too much.
  std::string render(const Json& messages, bool add_generation_prompt,
                     const Json& extra = Json::object(),
                     std::optional<int64_t> now = std::nullopt) const;

  const std::string& source() const;
  const ChatTemplateOrigin& origin() const;
  // A flag that a signal handler sets, for render() to look at: what it throws then is
  // Error(interrupted), or Error(terminated) where the flag is SIGTERM. Null: none.
  void set_cancel(const std::atomic<int>* cancel);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Jinja source of a built-in template by llama.cpp's name for it ("chatml", "gemma", …), giving the
// same text as llama.cpp's; nullopt for a name not offered here.
std::optional<std::string_view> named_chat_template(std::string_view name);
std::vector<std::string_view> named_chat_templates();

// The ids of a rendered chat. A BOS (EOS) text that the template wrote at the start (end) is taken
// off where the tokenizer adds that token itself, so that none comes twice; as in llama.cpp.
std::vector<int32_t> encode_chat(const Tokenizer& tokenizer, std::string_view rendered);

}  // namespace lockstep::text
