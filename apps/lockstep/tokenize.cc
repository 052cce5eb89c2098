// lockstep tokenize: text to token ids, as llama-tokenize does.
#include <fmt/format.h>

#include <memory>

#include "cli.h"
#include "engine.h"
#include "json_stream.h"
#include "output.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace lockstep::app {
namespace {

struct TokenizeOptions {
  EngineOptions engine;
  std::optional<std::string> prompt, file;
  bool from_stdin = false, ids = false, no_bos = false, no_parse_special = false,
       show_count = false;
  bool escape = false, no_escape = false, json = false;
};

std::string read_text(const TokenizeOptions& options) {
  const int sources = options.prompt.has_value() + options.file.has_value() + options.from_stdin;
  if (sources != 1) {
    bad_use(sources == 0 ? "no text; give it with -p, -f or --stdin"
                         : "more than one of -p, -f and --stdin; give one");
  }
  if (options.escape && options.no_escape) bad_use("-e and --no-escape contradict each other");
  std::string text = options.prompt ? *options.prompt
                     : options.file ? read_text_file(*options.file)
                                    : read_stdin();
  return options.no_escape ? text : process_escapes(text);
}

ExitCode tokenize(const TokenizeOptions& options) {
  const std::string text = read_text(options);
  const auto tokenizer = text::Tokenizer::load(open_model_source(options.engine));
  const std::vector<int32_t> ids =
      tokenizer.encode(text, !options.no_bos, !options.no_parse_special);
  if (options.json) {
    JsonStream out;
    out.key("schema").value("lockstep.tokenize/1");
    out.key("tokenizer").value(text::well_formed_utf8(tokenizer.description()));
    out.key("count").value(ids.size());
    out.key("ids").values(ids);
    out.key("tokens").begin('[');
    for (const int32_t id : ids) {
      out.begin('{');
      out.key("id").value(id);
      out.key("piece").value(text::well_formed_utf8(tokenizer.piece(id, true)));
      out.end('}');
    }
    out.end(']');
    out.finish();
    return ExitCode::ok;
  }
  std::string out;
  if (options.ids) {
    out = fmt::format("[{}]\n", fmt::join(ids, ", "));
  } else {
    for (const int32_t id : ids)
      out += fmt::format("{:6} -> '{}'\n", id, tokenizer.piece(id, true));
    if (stdout_is_terminal()) out = for_terminal(out);
  }
  if (options.show_count) out += fmt::format("Total number of tokens: {}\n", ids.size());
  print(out);
  return ExitCode::ok;
}

}  // namespace

Runner set_up_tokenize(Flags& flags) {
  const auto options = std::make_shared<TokenizeOptions>();
  options->engine.bind_model(flags);
  flags.text("--prompt", options->prompt);
  flags.text("--file", options->file);
  flags.toggle("--stdin", options->from_stdin);
  flags.toggle("--ids", options->ids);
  flags.toggle("--no-bos", options->no_bos);
  flags.toggle("--no-parse-special", options->no_parse_special);
  flags.toggle("--show-count", options->show_count);
  flags.toggle("--escape", options->escape);
  flags.toggle("--no-escape", options->no_escape);
  flags.toggle("--json", options->json);
  flags.describe(
      "Prints a text's token ids and pieces. The text of -p, -f and --stdin has its escapes "
      "processed, as in llama-tokenize; --no-escape takes it as it is.",
      "lockstep tokenize -m model.gguf -p \"Hello world\" --ids");
  return [options] { return tokenize(*options); };
}

}  // namespace lockstep::app
