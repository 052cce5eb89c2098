#include "serve/http.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "base/error.h"
#include "serve/http_impl.h"

namespace lockstep::serve {
namespace {

constexpr rlim_t kMostFiles = 65536;
constexpr size_t kOtherFiles = 64;  // the model, its helpers, the terminal

// As many files as the system lets this process open.
size_t raise_file_limit() {
  struct rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const rlim_t wanted = std::min(limit.rlim_max, kMostFiles);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) ::getrlimit(RLIMIT_NOFILE, &limit);
  }
  return static_cast<size_t>(limit.rlim_cur);
}

}  // namespace

void HttpServer::Impl::accept() {
  if (stopping) return;
  acceptor.async_accept([this](error_code error, tcp::socket socket) {
    if (stopping) return;
    if (error == asio::error::operation_aborted) return;
    if (error) {
      // Files are short, or the client has gone: the next may be luckier, but not at once.
      retry.expires_after(std::chrono::milliseconds(50));
      retry.async_wait([this](error_code cancelled) {
        if (!cancelled) accept();
      });
      return;
    }
    if (connections.size() < limits.connections) {
      start_connection(*this, std::move(socket));
    }
    accept();
  });
}

void HttpServer::Impl::close_idle() {
  const std::vector<Connection*> all(connections.begin(), connections.end());
  for (Connection* connection : all) {
    if (connections.contains(connection)) close_if_idle(*connection);
  }
}

void HttpServer::Impl::check_done() {
  if (!stopping) return;
  // After what called this has let go of its connection.
  asio::post(io, [this] {
    if (connections.empty()) io.stop();
  });
}

HttpServer::HttpServer(const std::string& host, uint16_t port, HttpLimits limits,
                       const HttpAccess& access, Handler handler, Log log)
    : impl_(std::make_unique<Impl>(limits, access, std::move(handler), std::move(log))) {
  const size_t files = raise_file_limit();
  impl_->limits.connections = std::min(impl_->limits.connections,
                                       files > 2 * kOtherFiles ? files - kOtherFiles : files / 2);
  error_code error;
  const auto address = asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, error);
  if (error) {
    throw Error(ExitCode::bad_use,
                fmt::format("--host {}: not an address; give one like 127.0.0.1 or 0.0.0.0",
                            shorten(host)));
  }
  const tcp::endpoint endpoint(address, port);
  const auto check = [&](const char* what) {
    if (!error) return;
    throw Error(ExitCode::resource,
                fmt::format("{}:{}: cannot {}: {}; choose another with {}", host, port, what,
                            error.message(), error.value() == EADDRNOTAVAIL ? "--host" : "--port"));
  };
  impl_->acceptor.open(endpoint.protocol(), error);
  check("open");
  impl_->acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  impl_->acceptor.bind(endpoint, error);
  check("listen");
  impl_->acceptor.listen(asio::socket_base::max_listen_connections, error);
  check("listen");
  impl_->port = impl_->acceptor.local_endpoint().port();
}

HttpServer::~HttpServer() {
  // Handlers hold connections, and connections the server.
  impl_->io.stop();
}

uint16_t HttpServer::port() const {
  return impl_->port;
}

void HttpServer::run(const std::function<void(int)>& on_signal) {
  for (const int number : {SIGINT, SIGTERM}) {
    struct sigaction action = {};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) impl_->signals.add(number);  // nohup's stays ignored
  }
  impl_->signals.async_wait([this, &on_signal](error_code error, int number) {
    if (error) return;
    // Whoever sends a second one does not want to wait.
    impl_->signals.clear();
    std::signal(number, SIG_DFL);
    on_signal(number);
  });
  impl_->accept();
  impl_->io.run();
}

void HttpServer::stop(double seconds) {
  asio::post(impl_->io, [this, seconds] {
    impl_->stopping = true;
    error_code ignored;
    impl_->acceptor.close(ignored);
    impl_->retry.cancel();
    impl_->close_idle();
    impl_->last_call.expires_after(duration(seconds));
    impl_->last_call.async_wait([this](error_code cancelled) {
      if (!cancelled) impl_->io.stop();
    });
    impl_->check_done();
  });
}

HttpServer::Status HttpServer::status() const {
  const std::lock_guard lock(impl_->errors_mutex);
  return {.connections = impl_->accepted,
          .open = impl_->open,
          .answers = impl_->answers,
          .timed_out = impl_->timed_out,
          .errors = impl_->errors};
}

}  // namespace lockstep::serve
