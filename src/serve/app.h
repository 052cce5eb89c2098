// The routes: what each request means, and who answers it. docs/server.md lists them.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serve/http.h"
#include "serve/http_access.h"
#include "serve/log_line.h"
#include "serve/reply.h"
#include "serve/scheduler.h"
#include "text/chat_template.h"

namespace lockstep::serve {

struct Route {
  std::string_view method;
  std::string_view path;
  bool open = false;  // without the API key
  // Null: known to llama-server's or OpenAI's clients and not served here, 501.
  void (*handle)(class App& app, std::shared_ptr<Exchange> exchange) = nullptr;
};
std::span<const Route> routes();

struct AppOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;
  std::vector<std::string> api_keys;  // none: no key is asked for
  HttpLimits limits;
  HttpAccess access;
  bool page = true;                              // the chat page at /
  std::string fingerprint;                       // name and version
  double grace_seconds = 10;                     // for running answers after SIGTERM
  std::function<void(const LogLine& line)> log;  // any thread; null: none
};

// What there is once the model is loaded.
struct Engine {
  std::shared_ptr<const model::Model> model;
  text::Tokenizer tokenizer;
  std::optional<text::ChatTemplate> chat;
  std::unique_ptr<Scheduler> scheduler;
  RequestDefaults defaults;
  std::string alias;  // what the server calls its model
  std::string path;   // where it came from
};

class App {
 public:
  // Binds the port: throws as HttpServer does.
  explicit App(AppOptions options);
  ~App();

  uint16_t port() const;
  // Answers until a signal or stop() and the last answer's end: blocks. Until start() has been
  // called every request but /health's kin is told that the model is loading, and a signal ends the
  // process at once. Returns the signal, or 0.
  int run();
  void start(std::unique_ptr<Engine> engine);  // any thread, once
  void stop();                                 // any thread

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  std::unique_ptr<Impl> impl_;
};

// Whether `given` is one of the keys, in a time that does not depend on how much of it is right.
bool key_matches(std::span<const std::string> keys, std::string_view given);

// The text that Prometheus reads.
std::string metrics_text(const Status& status, const HttpServer::Status& http);

}  // namespace lockstep::serve
