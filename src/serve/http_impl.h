// What the server (http.cc) and its connections (http_connection.cc) share.
#pragma once

#include <atomic>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <chrono>
#include <mutex>
#include <unordered_set>
#include <utility>

#include "serve/http.h"
#include "serve/http_access.h"

namespace lockstep::serve {

namespace asio = boost::asio;
namespace ssl = asio::ssl;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

inline Clock::duration duration(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// One client. It lives as long as something is waited for on its behalf.
class Connection;

struct HttpServer::Impl {
  Impl(HttpLimits given, const HttpAccess& access, HttpServer::Handler given_handler,
       HttpServer::Log given_log)
      : limits(given),
        origins(access.origins),
        tls(make_tls(access)),
        handler(std::move(given_handler)),
        log(std::move(given_log)) {}

  void accept();
  void close_idle();
  void check_done();

  void count_error(const std::string& type) {
    const std::lock_guard lock(errors_mutex);
    ++errors[type];
  }

  HttpLimits limits;
  std::vector<std::string> origins;
  std::unique_ptr<ssl::context> tls;  // null: plain
  HttpServer::Handler handler;
  HttpServer::Log log;
  std::unordered_set<Connection*> connections;
  uint64_t body_bytes = 0;  // reserved
  uint64_t requests = 0;
  uint16_t port = 0;
  bool stopping = false;
  std::atomic<int64_t> accepted{0}, open{0}, answers{0}, timed_out{0};
  mutable std::mutex errors_mutex;
  std::map<std::string, int64_t> errors;
  // Its end is that of the connections whose handlers wait: after it only what these use.
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::signal_set signals{io};
  asio::steady_timer retry{io};      // of accept, when files are short
  asio::steady_timer last_call{io};  // of stop()
};

// Begins to read requests from the client.
void start_connection(HttpServer::Impl& server, tcp::socket socket);
// Ends one that is not being answered.
void close_if_idle(Connection& connection);

}  // namespace lockstep::serve
