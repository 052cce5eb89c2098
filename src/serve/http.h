// HTTP/1.1 for many connections on one thread: reading with limits and time-outs, writing without
// waiting for anyone. What the requests mean is the handler's.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "serve/error.h"

namespace lockstep::serve {

struct HttpLimits {
  size_t header_bytes = 32 << 10;
  uint64_t body_bytes = 16 << 20;
  // Of all bodies that are being read or wait to be: beyond it requests get 503.
  uint64_t all_body_bytes = 256 << 20;
  double header_seconds = 10;  // from a request's first byte to its last header
  double body_seconds = 60;
  double idle_seconds = 60;   // between the requests of a connection
  double write_seconds = 30;  // without a byte taken by the client
  size_t connections = 8192;  // at most; and no more than the files that may be open
};

struct HttpAccess;  // serve/http_access.h

struct HttpRequest {
  uint64_t id = 0;  // counts the requests of this server; 0: nothing that could be read as one
  std::string method;
  std::string path;                    // without the query
  std::string authorization, api_key;  // the headers Authorization and X-Api-Key
  std::string body;
};

struct Header {
  std::string name, value;
};

// One request and its answer. Its members may be called from any thread; what they do happens on
// the server's thread, in the order of the calls. Whoever drops it without an answer leaves the
// client with a 500.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const HttpRequest& request() const = 0;
  // The whole answer.
  virtual void respond(int status, std::string content_type, std::string body,
                       std::vector<Header> headers = {}) = 0;
  // The same of an error, as JSON, with the headers that belong to its status; it is counted.
  virtual void fail(ApiError error, std::vector<Header> headers = {}) = 0;
  // Counts an error that is told within an answer.
  virtual void count_error(std::string type) = 0;
  // An answer in pieces: begin, write…, end. sent is called once the client's socket has taken the
  // piece (or never will).
  virtual void begin(int status, std::string content_type, std::vector<Header> headers = {}) = 0;
  virtual void write(std::string bytes, std::function<void()> sent) = 0;
  virtual void end() = 0;
  // Called once, on the server's thread, when the client goes away before the answer is complete.
  // At once where it has gone already. To be given once.
  virtual void on_disconnect(std::function<void()> gone) = 0;
  // Runs act on the server's thread, after what was called before.
  virtual void post(std::function<void()> act) = 0;
};

class HttpServer {
 public:
  using Handler = std::function<void(std::shared_ptr<Exchange>)>;
  // Called for every answer, on the server's thread: method, path, status, milliseconds from the
  // request's last byte to the answer's.
  using Log = std::function<void(const HttpRequest& request, int status, double ms)>;

  // Binds and listens. Throws Error(bad_use) for a host that is no address, Error(resource) when
  // the port is taken, naming it, Error(bad_file) for a key or certificate that is none. port 0:
  // any free one.
  HttpServer(const std::string& host, uint16_t port, HttpLimits limits, const HttpAccess& access,
             Handler handler, Log log);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // Serves until stop(): blocks. on_signal: called on this thread, once, when SIGTERM or SIGINT
  // comes; a second one ends the process.
  void run(const std::function<void(int signal)>& on_signal);
  // No new connections, idle ones are closed, and run() returns when every answer is written, or
  // after so many seconds. Any thread; again with other seconds, from then on.
  void stop(double seconds);

  struct Status {
    int64_t connections = 0, open = 0;
    int64_t answers = 0;
    int64_t timed_out = 0;
    std::map<std::string, int64_t> errors;  // by type
  };
  Status status() const;

  struct Impl;

 private:
  std::unique_ptr<Impl> impl_;
};

const char* http_reason(int status);

}  // namespace lockstep::serve
