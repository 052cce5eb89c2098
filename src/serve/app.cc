#include "serve/app.h"

#include <fmt/format.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cctype>
#include <chrono>
#include <csignal>
#include <ctime>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/sha256.h"
#include "serve/fields.h"
#include "serve/page.h"
#include "text/utf8_stream.h"

namespace lockstep::serve {
namespace {

constexpr const char* kJson = "application/json; charset=utf-8";
constexpr int64_t kMostSmallWork = 64;  // requests without generation that may wait
constexpr double kLastSeconds = 5;      // for clients to take what is written when the server stops
constexpr std::string_view kModelsPrefix = "/v1/models/";
constexpr std::string_view kOneModel = "/v1/models/{model}";

}  // namespace

bool key_matches(std::span<const std::string> keys, std::string_view given) {
  // Of the hashes, so that lengths tell nothing either.
  const Digest digest = sha256(std::as_bytes(std::span(given)));
  bool matches = false;
  for (const std::string& key : keys) {
    const Digest expected = sha256(std::as_bytes(std::span(key)));
    matches |= CRYPTO_memcmp(digest.data(), expected.data(), digest.size()) == 0;
  }
  return matches;
}

struct App::Impl {
  explicit Impl(AppOptions given)
      : options(std::move(given)),
        server(
            options.host, options.port, options.limits, options.access,
            [this](std::shared_ptr<Exchange> exchange) { handle(std::move(exchange)); },
            [this](const HttpRequest& request, int status, double ms) {
              const std::string method = shorten(request.method), path = shorten(request.path);
              log({.request = request.id,
                   .event = "answer",
                   .text = fmt::format("{} {} {}, {:.1f} ms", method, path, status, ms),
                   .fields = {{"method", method}, {"path", path}, {"status", status}, {"ms", ms}}});
            }) {}

  void log(const LogLine& line) const {
    if (options.log) options.log(line);
  }
  void handle(std::shared_ptr<Exchange> exchange);
  bool authorised(const HttpRequest& request) const;
  // Runs work(exchange) on the thread for what takes time; what it throws is the answer.
  template <typename Work>
  void do_work(std::shared_ptr<Exchange> exchange, Work work);
  void generate(Surface surface, const std::shared_ptr<Exchange>& exchange);

  App* app = nullptr;
  AppOptions options;
  const std::time_t started = std::time(nullptr);
  std::atomic<Engine*> ready{nullptr};
  std::unique_ptr<Engine> engine;
  std::atomic<int64_t> small_work{0};
  std::atomic<int> signal{0};
  // run() can return, by what the thread does, before stop() has stored the thread.
  std::mutex stopper_mutex;
  std::thread stopper;
  bool stopping = false;
  HttpServer server;
  // Parsing, templates and tokenizing: apart from the thread that reads and writes, which must not
  // wait, and from the one that decodes. Its threads end before the server does.
  boost::asio::thread_pool worker{1};
};

namespace {

void respond_json(Exchange& exchange, const Json& object, int status = 200) {
  exchange.respond(status, kJson, dump(object));
}

// From a job's events to its client. Lives on the server's thread, but for sink().
class Answer : public std::enable_shared_from_this<Answer> {
 public:
  Answer(std::shared_ptr<Exchange> exchange, std::shared_ptr<Job> job, Scheduler& scheduler,
         std::shared_ptr<void> place, std::unique_ptr<Reply> reply,
         std::function<void(const LogLine&)> log)
      : exchange_(std::move(exchange)),
        job_(std::move(job)),
        scheduler_(scheduler),
        place_(std::move(place)),
        reply_(std::move(reply)),
        log_(std::move(log)) {}

  // The scheduler's thread: hands over and goes on.
  void sink(Event event) {
    exchange_->post([self = shared_from_this(), event = std::move(event)] { self->take(event); });
  }

  void client_gone() {
    if (over_) return;
    log_({.request = job_->id, .event = "gone", .text = "the client has gone"});
    scheduler_.cancel(*job_);
    finish();
  }

 private:
  void take(const Event& event) {
    if (over_) return;
    if (event.kind == Event::Kind::end) log_end(event);
    if (event.kind == Event::Kind::failed) {
      log_({.request = job_->id,
            .event = "failed",
            .text = event.error.message,
            .fields = {{"type", event.error.type}, {"status", event.error.status}}});
    }
    if (job_->request.stream) {
      stream(event);
    } else {
      collect(event);
    }
  }

  void stream(const Event& event) {
    const bool failed = event.kind == Event::Kind::failed;
    if (!begun_) {
      begun_ = true;
      if (failed) {
        exchange_->fail(event.error);
        return give_up();
      }
      exchange_->begin(200, "text/event-stream", {{"Cache-Control", "no-cache"}});
    }
    exchange_->write(reply_->stream(event),
                     [job = job_, scheduler = &scheduler_, weight = event.weight] {
                       // Waking for every piece would cost the decoding thread more than it is
                       // worth.
                       if (job->sent(weight)) scheduler->wake();
                     });
    if (failed || reply_->complete()) {
      if (failed) exchange_->count_error(event.error.type);
      exchange_->end();
      if (failed) return give_up();
      finish();
    }
  }

  void collect(const Event& event) {
    job_->sent(event.weight);
    reply_->collect(event);
    if (reply_->failure()) {
      exchange_->fail(*reply_->failure());
      return give_up();
    }
    if (!reply_->complete()) return;
    exchange_->respond(200, kJson, reply_->body());
    finish();
  }

  // The job's other sequences are of no use any more.
  void give_up() {
    scheduler_.cancel(*job_);
    finish();
  }

  // Lets go of everything: the job's sink holds this object.
  void finish() {
    over_ = true;
    reply_.reset();
    place_.reset();
    job_.reset();
  }

  void log_end(const Event& event) const {
    const Timings& t = event.timings;
    const int64_t n = t.predicted_n - t.first_n;
    std::string line =
        fmt::format("{} prompt tokens ({} cached), {} generated, {:.0f} ms to the first",
                    event.prompt_tokens, t.cache_n, t.predicted_n, t.prompt_ms);
    if (n > 0 && t.predicted_ms > 0) {
      line += fmt::format(", {:.2f} tok/s after it", 1e3 * static_cast<double>(n) / t.predicted_ms);
    }
    if (t.draft_n > 0)
      line += fmt::format(", {}/{} drafted accepted", t.draft_n_accepted, t.draft_n);
    line += fmt::format(", {}, seed {}, token sha256 {}", stop_kind_name(event.stop),
                        job_->prepared.sampling.seed, event.result->token_sha256.substr(0, 16));
    if (job_->sequences() > 1) line += fmt::format(", choice {}", event.sequence);
    Json fields = {{"choice", event.sequence},
                   {"slot", event.slot},
                   {"stop", stop_kind_name(event.stop)},
                   {"seed", job_->prepared.sampling.seed},
                   {"token_sha256", event.result->token_sha256},
                   {"timings", timings_json(t)}};
    log_({.request = job_->id, .event = "end", .text = line, .fields = std::move(fields)});
  }

  const std::shared_ptr<Exchange> exchange_;
  std::shared_ptr<Job> job_;
  Scheduler& scheduler_;
  std::shared_ptr<void> place_;
  std::unique_ptr<Reply> reply_;
  std::function<void(const LogLine&)> log_;
  bool begun_ = false, over_ = false;
};

// Who asked, as the server's thread knows them; the worker makes the answer meanwhile.
struct Client {
  bool gone = false;
  std::weak_ptr<Answer> answer;  // once there is one
};

Engine& engine_of(App& app) {
  return *app.impl().ready.load();
}

template <const PageFile& file>
void page(App& app, std::shared_ptr<Exchange> exchange) {
  if (!app.impl().options.page) {
    return exchange->fail(
        {.status = 404, .type = "not_found_error", .message = "the page is off (--no-webui)"});
  }
  // Everything comes from here, nothing from elsewhere, and no other site may frame it.
  exchange->respond(
      200, file.type, std::string(file.text),
      {{"Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
       {"X-Content-Type-Options", "nosniff"},
       {"Cache-Control", "no-cache"}});
}

void health(App&, std::shared_ptr<Exchange> exchange) {
  respond_json(*exchange, {{"status", "ok"}});
}

Json model_json(const Engine& engine) {
  const model::Hyperparameters& h = engine.model->hyperparameters();
  return {{"id", engine.alias},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "lockstep"},
          {"meta",
           {{"n_vocab", h.n_vocab},
            {"n_ctx_train", h.n_ctx_train},
            {"n_embd", h.n_embd},
            {"n_ctx", engine.scheduler->options().context}}}};
}

void models(App& app, std::shared_ptr<Exchange> exchange) {
  const Engine& engine = engine_of(app);
  respond_json(*exchange, {{"object", "list"}, {"data", Json::array({model_json(engine)})}});
}

void one_model(App& app, std::shared_ptr<Exchange> exchange) {
  const Engine& engine = engine_of(app);
  const std::string_view name =
      std::string_view(exchange->request().path).substr(kModelsPrefix.size());
  if (name == engine.alias) return respond_json(*exchange, model_json(engine));
  exchange->fail(
      {.status = 404,
       .type = "not_found_error",
       .message = fmt::format("{}: no such model; there is {}", shorten(name), engine.alias),
       .param = "model"});
}

void props(App& app, std::shared_ptr<Exchange> exchange) {
  const Engine& engine = engine_of(app);
  const int64_t context = engine.scheduler->options().context;
  Request nothing;
  nothing.max_tokens = engine.defaults.max_tokens;
  const auto token = [&](int32_t id) {
    return id < 0 ? std::string() : text::well_formed_utf8(engine.tokenizer.piece(id, true));
  };
  Json params = settings_json(nothing, engine.defaults.sampling, context);
  if (!engine.defaults.seed_given) params["seed"] = kRandomSeed;  // each request draws its own
  respond_json(*exchange,
               {{"default_generation_settings", {{"n_ctx", context}, {"params", params}}},
                {"total_slots", engine.scheduler->options().parallel},
                {"model_alias", engine.alias},
                {"model_path", text::well_formed_utf8(engine.path)},
                {"modalities", {{"vision", false}, {"audio", false}}},
                {"chat_template", engine.chat ? engine.chat->source() : ""},
                {"bos_token", token(engine.tokenizer.bos())},
                {"eos_token", token(engine.tokenizer.eos())},
                {"build_info", app.impl().options.fingerprint}});
}

void slots(App& app, std::shared_ptr<Exchange> exchange) {
  const Scheduler& scheduler = *engine_of(app).scheduler;
  const bool speculative = scheduler.session_options().source != nullptr;
  Json list = Json::array();
  for (const SlotStatus& slot : scheduler.status().slots) {
    Json json = {{"id", slot.id},
                 {"n_ctx", scheduler.options().context},
                 {"speculative", speculative},
                 {"is_processing", slot.processing},
                 {"n_state_tokens", slot.state_tokens}};
    if (slot.processing) {
      json["id_task"] = slot.job;
      json["n_prompt_tokens"] = slot.prompt_tokens;
      json["is_paused"] = slot.paused;
      json["next_token"] = {
          {"n_decoded", slot.generated}, {"n_remain", slot.remaining}, {"has_next_token", true}};
    }
    list.push_back(std::move(json));
  }
  respond_json(*exchange, list);
}

void metrics(App& app, std::shared_ptr<Exchange> exchange) {
  // llama-server's header, by which a scraper sees that counters have begun anew.
  exchange->respond(200, "text/plain; version=0.0.4",
                    metrics_text(engine_of(app).scheduler->status(), app.impl().server.status()),
                    {{"Process-Start-Time-Unix", fmt::format("{}", app.impl().started)}});
}

void tokenize(App& app, std::shared_ptr<Exchange> exchange) {
  app.impl().do_work(std::move(exchange), [](Engine& engine, Exchange& to) {
    const Json body = parse_body(to.request().body);
    const Fields fields(body);
    const auto content = fields.text("content");
    if (!content) fields.refuse("content", "it is missing; give the text");
    const auto ids =
        engine.tokenizer.encode(*content, fields.boolean("add_special").value_or(false),
                                fields.boolean("parse_special").value_or(true));
    Json tokens = ids;
    if (fields.boolean("with_pieces").value_or(false)) {
      tokens = Json::array();
      for (const int32_t id : ids) {
        const std::string piece = engine.tokenizer.piece(id, true);
        Json shown = piece;
        if (text::well_formed_utf8(piece) != piece) {
          shown = Json::array();
          for (const char c : piece) shown.push_back(static_cast<uint8_t>(c));
        }
        tokens.push_back({{"id", id}, {"piece", shown}});
      }
    }
    respond_json(to, {{"tokens", tokens}});
  });
}

void detokenize(App& app, std::shared_ptr<Exchange> exchange) {
  app.impl().do_work(std::move(exchange), [](Engine& engine, Exchange& to) {
    const Json body = parse_body(to.request().body);
    const Fields fields(body);
    const Json* tokens = fields.find("tokens");
    if (tokens == nullptr) fields.refuse("tokens", "it is missing; give a list of token ids");
    const auto ids = encode_prompt(parse_ids(*tokens, "tokens"), engine.tokenizer, "tokens");
    respond_json(to, {{"content", text::well_formed_utf8(engine.tokenizer.decode(ids, true))}});
  });
}

void apply_template(App& app, std::shared_ptr<Exchange> exchange) {
  app.impl().do_work(std::move(exchange), [](Engine& engine, Exchange& to) {
    const Request request = parse_request(Surface::oai_chat, to.request().body, engine.defaults);
    respond_json(to, {{"prompt", render_chat(request, engine.chat ? &*engine.chat : nullptr)}});
  });
}

template <Surface surface>
void generation(App& app, std::shared_ptr<Exchange> exchange) {
  app.impl().generate(surface, exchange);
}

constexpr Route kRoutes[] = {
    {"GET", "/", true, page<kPage>},
    {"GET", "/page.css", true, page<kPageStyle>},
    {"GET", "/page.js", true, page<kPageScript>},
    {"GET", "/health", true, health},
    {"GET", "/v1/health", true, health},
    {"GET", "/models", true, models},
    {"GET", "/v1/models", true, models},
    {"GET", kOneModel, true, one_model},
    {"GET", "/props", false, props},
    {"GET", "/slots", false, slots},
    {"GET", "/metrics", false, metrics},
    {"POST", "/tokenize", false, tokenize},
    {"POST", "/detokenize", false, detokenize},
    {"POST", "/apply-template", false, apply_template},
    {"POST", "/completion", false, generation<Surface::completion>},
    {"POST", "/completions", false, generation<Surface::completion>},
    {"POST", "/v1/completions", false, generation<Surface::oai_completion>},
    {"POST", "/chat/completions", false, generation<Surface::oai_chat>},
    {"POST", "/v1/chat/completions", false, generation<Surface::oai_chat>},
    {"POST", "/embedding", false, nullptr},
    {"POST", "/embeddings", false, nullptr},
    {"POST", "/v1/embeddings", false, nullptr},
    {"POST", "/rerank", false, nullptr},
    {"POST", "/reranking", false, nullptr},
    {"POST", "/v1/rerank", false, nullptr},
    {"POST", "/v1/reranking", false, nullptr},
    {"POST", "/infill", false, nullptr},
    {"POST", "/v1/responses", false, nullptr},
    {"POST", "/responses", false, nullptr},
    {"POST", "/v1/messages", false, nullptr},
    {"POST", "/v1/messages/count_tokens", false, nullptr},
    {"POST", "/v1/audio/transcriptions", false, nullptr},
    {"POST", "/props", false, nullptr},
    {"GET", "/lora-adapters", false, nullptr},
    {"POST", "/lora-adapters", false, nullptr},
};

}  // namespace

std::span<const Route> routes() {
  return kRoutes;
}

bool App::Impl::authorised(const HttpRequest& request) const {
  if (options.api_keys.empty()) return true;
  // The scheme's name in any case (RFC 9110, 11.1).
  constexpr std::string_view kBearer = "bearer ";
  std::string_view given = request.authorization;
  const auto same = [](char a, char b) { return a == std::tolower(static_cast<unsigned char>(b)); };
  if (given.size() >= kBearer.size() &&
      std::equal(kBearer.begin(), kBearer.end(), given.begin(), same)) {
    given.remove_prefix(kBearer.size());
  } else {
    given = request.api_key;
  }
  return key_matches(options.api_keys, given);
}

void App::Impl::handle(std::shared_ptr<Exchange> exchange) {
  const HttpRequest& request = exchange->request();
  // HEAD is a GET whose body is not sent.
  std::string_view method = request.method;
  if (method == "HEAD") method = "GET";
  const std::string_view path =
      request.path.starts_with(kModelsPrefix) ? kOneModel : std::string_view(request.path);
  const Route* found = nullptr;
  std::string allowed;
  for (const Route& route : kRoutes) {
    if (route.path != path) continue;
    if (route.method == method) found = &route;
    if (allowed.find(route.method) == std::string::npos) {
      allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", route.method);
    }
  }
  if (!(found && found->open) && !authorised(request)) {
    return exchange->fail({.status = 401,
                           .type = "authentication_error",
                           .message = "the API key is missing or wrong; send it as "
                                      "\"Authorization: Bearer KEY\""});
  }
  if (found == nullptr) {
    ApiError error{.status = 404,
                   .type = "not_found_error",
                   .message = fmt::format("{} is not served here", shorten(request.path))};
    if (allowed.empty()) return exchange->fail(error);
    error.status = 405;
    error.type = "invalid_request_error";
    error.message = fmt::format("{} takes {}", shorten(request.path), allowed);
    return exchange->fail(error, {{"Allow", allowed}});
  }
  if (found->handle == nullptr) {
    return exchange->fail(not_supported(fmt::format("{} is not supported", found->path)));
  }
  if (ready.load() == nullptr) return exchange->fail(unavailable("Loading model"));
  found->handle(*app, std::move(exchange));
}

template <typename Work>
void App::Impl::do_work(std::shared_ptr<Exchange> exchange, Work work) {
  if (++small_work > kMostSmallWork) {
    --small_work;
    return exchange->fail(unavailable("too many requests wait; try again"));
  }
  boost::asio::post(worker, [this, exchange = std::move(exchange), work] {
    try {
      work(*ready.load(), *exchange);
    } catch (const RequestError& error) {
      exchange->fail(error.error());
    } catch (const Error& error) {
      exchange->fail({.message = error.what()});
    } catch (const std::exception& error) {
      exchange->fail(internal_error(error.what()));
    }
    --small_work;
  });
}

void App::Impl::generate(Surface surface, const std::shared_ptr<Exchange>& exchange) {
  Engine& e = *ready.load();
  std::shared_ptr<void> place = e.scheduler->enter();
  if (!place) return exchange->fail(unavailable("the queue is full; try again"));
  const auto job = std::make_shared<Job>();
  job->id = exchange->request().id;
  const auto client = std::make_shared<Client>();
  exchange->on_disconnect([job, client] {
    job->cancelled = true;
    client->gone = true;
    if (const auto answer = client->answer.lock()) answer->client_gone();
  });
  boost::asio::post(worker, [this, surface, exchange, place, job, client, &e]() mutable {
    try {
      if (job->cancelled) return;
      job->request = parse_request(surface, exchange->request().body, e.defaults);
      job->prepared = prepare(job->request, e.tokenizer, e.chat ? &*e.chat : nullptr);
      if (job->cancelled) return;
      const ReplyContext context{.model = e.alias,
                                 .fingerprint = options.fingerprint,
                                 .created = static_cast<int64_t>(std::time(nullptr)),
                                 .context = e.scheduler->options().context};
      const auto answer =
          std::make_shared<Answer>(exchange, job, *e.scheduler, std::move(place),
                                   std::make_unique<Reply>(job, e.tokenizer, context),
                                   [this](const LogLine& line) { log(line); });
      // The scheduler drops the job when its sequences have ended, and with it the sink.
      job->sink = [answer](Event event) { answer->sink(std::move(event)); };
      exchange->post([client, answer] {
        client->answer = answer;
        if (client->gone) answer->client_gone();
      });
      try {
        e.scheduler->submit(job);
      } catch (...) {
        job->sink = nullptr;
        throw;
      }
    } catch (const RequestError& error) {
      exchange->fail(error.error());
    } catch (const Error& error) {
      exchange->fail({.message = error.what()});
    } catch (const std::exception& error) {
      exchange->fail(internal_error(error.what()));
    }
  });
}

App::App(AppOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->app = this;
}

App::~App() {
  impl_->worker.join();
  // Its jobs hold exchanges, which hold connections of the server.
  impl_->engine.reset();
}

uint16_t App::port() const {
  return impl_->server.port();
}

void App::start(std::unique_ptr<Engine> engine) {
  impl_->engine = std::move(engine);
  impl_->ready = impl_->engine.get();
}

void App::stop() {
  Impl& s = *impl_;
  const std::lock_guard lock(s.stopper_mutex);
  if (std::exchange(s.stopping, true)) return;
  // The scheduler waits for its answers; whoever stops must not.
  s.stopper = std::thread([&s] {
    s.server.stop(s.options.grace_seconds + kLastSeconds);
    if (Engine* engine = s.ready.load()) engine->scheduler->stop(s.options.grace_seconds);
    s.server.stop(kLastSeconds);
  });
}

int App::run() {
  Impl& s = *impl_;
  s.server.run([this, &s](int signal) {
    if (s.ready.load() == nullptr) std::raise(signal);
    s.signal = signal;
    s.log({.request = 0,
           .event = "stopping",
           .text = "stopping: running answers are finished, no new ones begin"});
    stop();
  });
  std::thread stopper;
  {
    const std::lock_guard lock(s.stopper_mutex);
    stopper = std::move(s.stopper);
  }
  if (stopper.joinable()) stopper.join();
  return s.signal;
}

}  // namespace lockstep::serve
