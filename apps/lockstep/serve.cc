// lockstep serve: answers HTTP requests as llama-server and OpenAI do (docs/server.md).
#include "serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <mutex>
#include <thread>

#include "device_room.h"
#include "engine.h"
#include "generation.h"
#include "output.h"
#include "program.h"
#include "serve/app.h"
#include "text/chat_template.h"

namespace lockstep::app {
namespace {

constexpr int64_t kDefaultParallel = 4, kMostParallel = 64;
constexpr int64_t kDefaultQueue = 64;
constexpr int64_t kDefaultPort = 8080;

struct ServeOptions {
  EngineOptions engine;
  SamplingOptions sampling;
  DraftOptions drafts;
  std::optional<Given> chat_template, template_file;
  std::optional<std::string> host, api_key, alias, cors_origins, key_file, certificate_file,
      reasoning;
  std::optional<int64_t> port, parallel, tokens, queue;
  bool no_page = false, json_log = false;
};

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string> split_keys(const std::string& text) {
  std::vector<std::string> keys = split_list(text);
  if (keys.empty()) bad_use("--api-key: the key is empty; leave it out to ask for none");
  return keys;
}

// Browsers compare origins byte by byte: one that no page can have would be an error without a
// sign.
std::vector<std::string> split_origins(const std::string& text) {
  std::vector<std::string> origins = split_list(text);
  for (const std::string& origin : origins) {
    if (origin == "*" || origin == "localhost") continue;
    const size_t scheme = origin.find("://");
    if (scheme == std::string::npos ||
        origin.find_first_of("/ ", scheme + 3) != std::string::npos ||
        scheme + 3 == origin.size()) {
      bad_use(
          fmt::format("--cors-origins {}: not an origin; give one like https://chat.example:8443, "
                      "localhost or *",
                      shorten(origin)));
    }
  }
  return origins;
}

serve::ReasoningFormat parse_reasoning(const std::string& name) {
  if (name == "none") return serve::ReasoningFormat::none;
  if (name != "auto" && name != "deepseek") {
    bad_use(fmt::format("--reasoning-format {}: give none, deepseek or auto", shorten(name)));
  }
  return serve::ReasoningFormat::apart;
}

// Bytes that programs may still use, as the system estimates; 0: it does not say.
int64_t free_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  int64_t kilobytes = 0;
  while (file >> name >> kilobytes) {
    if (name == "MemAvailable:") return kilobytes * 1024;
    std::getline(file, unit);
  }
  return 0;
}

struct Pool {
  int64_t positions = 0;  // whole pages
  int64_t context = 0;    // of one answer
};

// Weights must be in memory already: what is left is what the pages may take. draft_bytes: of a
// position of the draft model.
Pool choose_pool(const ServeOptions& o, const model::Model& model, const kernels::Backend& backend,
                 kernels::KvType k_type, kernels::KvType v_type, int64_t parallel,
                 int64_t draft_bytes) {
  constexpr int64_t kPage = kernels::kPagePositions;
  const int64_t trained = model.hyperparameters().n_ctx_train;
  const int64_t per_position =
      std::max<int64_t>(1, state::bytes_per_position(model.kv_spec(k_type, v_type, trained))) +
      draft_bytes;
  const auto up = [](int64_t n) { return (n + kPage - 1) / kPage * kPage; };
  Pool pool;
  const int64_t given = o.engine.context.value_or(0);
  if (given > 0) {
    pool.positions = up(given);
    check_room_for_context(backend, model, pool.positions, k_type, v_type);
    pool.context = std::min(given, trained);
  } else {
    const int64_t whole = up(trained) * parallel;
    const int64_t fits = std::max(
        kPage, backend.free_memory().value_or(free_memory()) / 2 / per_position / kPage * kPage);
    pool.positions = o.engine.context ? whole : std::min(whole, fits);
    pool.context = std::min(pool.positions, trained);
  }
  const std::string of_draft =
      draft_bytes > 0 ? fmt::format(", of which the draft model's {}",
                                    human_bytes(static_cast<double>(pool.positions * draft_bytes)))
                      : "";
  const bool less = !o.engine.context && pool.positions < up(trained) * parallel;
  note(fmt::format(
      "{} slots share {} positions of KV ({}{}); one answer may use {}{}", parallel, pool.positions,
      human_bytes(static_cast<double>(pool.positions * per_position)), of_draft, pool.context,
      less ? fmt::format("; memory has no room for {} times the model's {}", parallel, trained)
           : ""));
  return pool;
}

std::optional<text::ChatTemplate> open_template(const ServeOptions& o, const model::Model& model,
                                                const text::Tokenizer& tokenizer) {
  if (o.chat_template && o.template_file) {
    bad_use(fmt::format("{} and {} contradict each other; give one", o.chat_template->name,
                        o.template_file->name));
  }
  if (o.template_file) {
    const std::string source = naming_environment(*o.template_file, [](const std::string& path) {
      return read_text_file(path, kMaxTemplateBytes);
    });
    return text::ChatTemplate::for_model(model.file(), tokenizer, source, {},
                                         o.template_file->value);
  }
  if (o.chat_template) {
    return text::ChatTemplate::for_model(model.file(), tokenizer, o.chat_template->value, {}, "",
                                         o.chat_template->name);
  }
  if (!model.file().string("tokenizer.chat_template")) {
    note("this model has no chat template: chats are refused; give one with --chat-template");
    return std::nullopt;
  }
  return text::ChatTemplate::for_model(model.file(), tokenizer, std::nullopt);
}

std::string file_name(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

std::unique_ptr<serve::Engine> load(const ServeOptions& o) {
  const auto k_type = parse_kv_type(o.engine.k_type);
  const auto v_type = parse_kv_type(o.engine.v_type);
  const int64_t parallel = o.parallel.value_or(kDefaultParallel);
  const auto model = open_model(o.engine);
  auto tokenizer = text::Tokenizer::load(model->file());
  for (const auto* notes : {&model->notes(), &tokenizer.notes()}) {
    for (const std::string& line : *notes) note("note: " + line);
  }
  auto chat = open_template(o, *model, tokenizer);
  const auto backend = open_backend(o.engine);
  load_weights(*backend, *model);
  // Results name the file by its hash: computed here, so that no answer waits for it.
  model->file_sha256();

  serve::SchedulerOptions options;
  options.chunk = o.engine.chunk.value_or(64);
  options.make_source = o.drafts.open_each(*model, tokenizer, backend, options.chunk);
  const auto source = options.make_source(nullptr);
  if (source) source->file_sha256();
  const Pool pool = choose_pool(o, *model, *backend, k_type, v_type, parallel,
                                source ? source->kv_bytes_per_position() : 0);
  options.parallel = static_cast<int>(parallel);
  options.pool_positions = pool.positions;
  options.context = pool.context;
  options.queue = o.queue.value_or(kDefaultQueue);
  options.k_type = k_type;
  options.v_type = v_type;
  options.depth = o.drafts.depth();
  options.engine = this_program();

  serve::RequestDefaults defaults;
  defaults.sampling = o.sampling.make(tokenizer);
  defaults.sampling.validate(model->graph().n_vocab);
  defaults.seed_given = o.sampling.seed.value_or(-1) >= 0;
  defaults.max_tokens = std::max<int64_t>(-1, o.tokens.value_or(-1));

  if (o.reasoning) defaults.reasoning = parse_reasoning(*o.reasoning);

  auto scheduler = std::make_unique<serve::Scheduler>(model, backend, tokenizer, options);
  return std::make_unique<serve::Engine>(
      serve::Engine{.model = model,
                    .tokenizer = tokenizer,
                    .chat = std::move(chat),
                    .scheduler = std::move(scheduler),
                    .defaults = defaults,
                    .alias = o.alias.value_or(file_name(o.engine.model->value)),
                    .path = o.engine.model->value});
}

ExitCode serve_until_signal(const ServeOptions& o) {
  if (!o.engine.model) bad_use("no model; name a GGUF file with -m FILE");
  serve::AppOptions options;
  options.host = o.host.value_or(options.host);
  options.port = static_cast<uint16_t>(o.port.value_or(kDefaultPort));
  if (o.api_key) options.api_keys = split_keys(*o.api_key);
  if (o.cors_origins) options.access.origins = split_origins(*o.cors_origins);
  for (const auto& [flag, file] : {std::pair{"--ssl-key-file", &o.key_file},
                                   std::pair{"--ssl-cert-file", &o.certificate_file}}) {
    if (*file && (*file)->empty()) bad_use(fmt::format("{}: the name is empty; name a file", flag));
  }
  options.access.key_file = o.key_file.value_or("");
  options.access.certificate_file = o.certificate_file.value_or("");
  options.page = !o.no_page;
  if (o.reasoning) parse_reasoning(*o.reasoning);  // before the model is loaded
  options.fingerprint = engine_name();
  if (o.json_log) write_notes_as_json();
  options.log = [json = o.json_log](const serve::LogLine& line) {
    if (!json) return note(serve::text_line(line));
    print_error(serve::json_line(line, std::chrono::system_clock::now()) + "\n");
  };
  // The port first: who finds it taken should not have waited for a model.
  serve::App app(options);
  std::exception_ptr failed;
  std::thread loader([&] {
    try {
      app.start(load(o));
      note(fmt::format("listening on {}://{}:{}",
                       options.access.key_file.empty() ? "http" : "https",
                       options.host.find(':') == std::string::npos
                           ? options.host
                           : fmt::format("[{}]", options.host),  // IPv6 (RFC 3986, 3.2.2)
                       app.port()));
    } catch (...) {
      failed = std::current_exception();
      app.stop();
    }
  });
  app.run();
  loader.join();
  if (failed) std::rethrow_exception(failed);
  note("stopped");
  return ExitCode::ok;
}

}  // namespace

Runner set_up_serve(Flags& flags) {
  const auto o = std::make_shared<ServeOptions>();
  o->engine.bind_model(flags);
  flags.text("--alias", o->alias);
  flags.text("--host", o->host);
  flags.integer("--port", o->port, 0, 65535);
  flags.text("--api-key", o->api_key);
  flags.text("--cors-origins", o->cors_origins);
  flags.text("--ssl-key-file", o->key_file);
  flags.text("--ssl-cert-file", o->certificate_file);
  flags.text("--reasoning-format", o->reasoning);
  flags.toggle("--no-webui", o->no_page);
  flags.toggle("--log-jsonl", o->json_log);
  flags.integer("--parallel", o->parallel, 1, kMostParallel);
  flags.integer("--queue", o->queue, 0, 100'000);
  o->engine.bind_context(flags);
  o->engine.bind_backend(flags);
  o->engine.bind_kv_types(flags);
  flags.integer("--predict", o->tokens, INT32_MIN, INT64_MAX);
  flags.text("--chat-template", o->chat_template);
  flags.text("--chat-template-file", o->template_file);
  o->sampling.bind(flags);
  o->drafts.bind(flags);
  flags.describe(
      "Answers HTTP requests as llama-server and OpenAI do, several at a time, each with the bits "
      "that it would have alone. Sampling flags hold where a request says nothing. SIGTERM and "
      "SIGINT let running answers end; a second one does not wait. Exit code 0 after that.",
      "lockstep serve -m model.gguf --port 8080 --spec-type suffix");
  return [o] { return serve_until_signal(*o); };
}

}  // namespace lockstep::app
