// One client's connection: its requests read with limits and time-outs, its answers written without
// waiting for it.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <deque>
#include <optional>

#include "serve/http_impl.h"
#include "serve/reply.h"
#include "serve/wire.h"

namespace lockstep::serve {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;

constexpr const char* kJson = "application/json; charset=utf-8";
constexpr size_t kReadPiece = 16 << 10;   // what a TLS record may hold
constexpr size_t kReadAhead = 64 << 10;   // what Beast reads at once
constexpr size_t kWritePiece = 64 << 10;  // bytes that one time-out is for
constexpr double kLingerSeconds = 10;     // for a client that is still sending what nobody reads
constexpr double kStoppingSeconds = 1;    // the same, when the server stops
constexpr double kPeekSeconds = 0.25;     // between looks at a client that has sent more already

}  // namespace

const char* http_reason(int status) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(status));
  return reason.data();  // of a table of literals
}

// Everything happens on the server's thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(HttpServer::Impl& server, tcp::socket socket)
      : server_(server),
        socket_(std::move(socket)),
        wire_(socket_, server.tls.get()),
        timer_(server.io),
        peek_timer_(server.io),
        buffer_(server.limits.header_bytes + kReadAhead) {
    server_.connections.insert(this);
    ++server_.open;
    ++server_.accepted;
  }
  ~Connection() {
    release_body();
    server_.connections.erase(this);
    --server_.open;
  }

  void start() {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    // A client that connects and says nothing counts as one that sends its headers slowly.
    if (wire_.tls() == nullptr) return await_request(server_.limits.header_seconds);
    arm(server_.limits.header_seconds, &Connection::write_time_out);
    wire_.tls()->async_handshake(ssl::stream_base::server,
                                 [self = shared_from_this()](error_code error) {
                                   self->disarm();
                                   if (self->state_ == State::closed) return;
                                   if (error) return self->close();
                                   self->await_request(self->server_.limits.header_seconds);
                                 });
  }
  // Nothing has been asked yet, or not all of it, or all has been answered.
  bool idle() const { return state_ != State::answering && state_ != State::closed; }
  void close() {
    error_code ignored;
    timer_.cancel();
    peek_timer_.cancel();
    socket_.shutdown(tcp::socket::shutdown_both, ignored);
    socket_.close(ignored);
    state_ = State::closed;
    disconnected();
  }

 private:
  friend class ExchangeOf;
  enum class State : uint8_t { idle, reading, answering, lingering, closed };
  using Parser = http::request_parser<http::string_body>;
  using Self = std::shared_ptr<Connection>;

  // act runs unless disarm() or another arm() comes first.
  void arm(double seconds, void (Connection::*act)()) {
    const uint64_t turn = ++timer_turn_;
    timer_.expires_after(duration(seconds));
    timer_.async_wait([self = shared_from_this(), turn, act](error_code error) {
      if (!error && turn == self->timer_turn_) ((*self).*act)();
    });
  }
  void disarm() {
    ++timer_turn_;
    timer_.cancel();
  }
  void time_out() {
    ++server_.timed_out;
    expired_ = true;
    error_code ignored;
    socket_.cancel(ignored);  // the read that waits ends, and says so
  }
  void write_time_out() {
    ++server_.timed_out;
    close();
  }

  void await_request(double seconds) {
    state_ = State::idle;
    if (server_.stopping) return close();
    if (buffer_.size() > 0) return read_header();  // pipelined
    expired_ = false;
    arm(seconds, &Connection::close);
    if (wire_.tls() != nullptr) return read_ahead();
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
      self->disarm();
      if (error || self->state_ == State::closed) return self->close();
      self->read_header();
    });
  }

  // Of TLS: readable bytes of the socket need not be the client's words, and its words may be here
  // though the socket has nothing; so they are read before anyone asks. One read is on its way at a
  // time, and goes on from an answer into the wait for the next request.
  void read_ahead() {
    if (reading_ahead_ || buffer_.size() > 0) return;
    reading_ahead_ = true;
    wire_.async_read_some(buffer_.prepare(kReadPiece),
                          [self = shared_from_this()](error_code error, size_t n) {
                            self->reading_ahead_ = false;
                            if (self->state_ == State::lingering && error) return self->close();
                            if (self->state_ != State::idle && self->state_ != State::answering)
                              return;
                            if (error) return self->close();
                            self->buffer_.commit(n);
                            // The next request is there already; it can wait.
                            if (self->state_ == State::answering) return self->watch();
                            self->disarm();
                            self->read_header();
                          });
  }

  void read_header() {
    state_ = State::reading;
    expired_ = false;
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(server_.limits.header_bytes));
    parser_->body_limit(server_.limits.body_bytes);
    arm(server_.limits.header_seconds, &Connection::time_out);
    http::async_read_header(wire_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, size_t) {
                              self->disarm();
                              self->on_header(error);
                            });
  }

  void on_header(error_code error) {
    if (state_ == State::closed) return;
    if (error) return read_failed(error);
    const auto length = parser_->content_length();
    const uint64_t bytes = length ? *length : parser_->chunked() ? server_.limits.body_bytes : 0;
    if (bytes > server_.limits.body_bytes) return read_failed(http::error::body_limit);
    if (server_.body_bytes + bytes > server_.limits.all_body_bytes) {
      return refuse({.status = 503,
                     .type = "unavailable_error",
                     .message = "too many large requests are being read; try again"});
    }
    const auto& head = parser_->get();
    if (head.count(http::field::transfer_encoding) > 0 &&
        !beast::iequals(head[http::field::transfer_encoding], "chunked")) {
      return refuse({.status = 501,
                     .type = "not_supported_error",
                     .message = "Transfer-Encoding: only chunked is known"});
    }
    const auto coding = head[http::field::content_encoding];
    if (!coding.empty() && !beast::iequals(coding, "identity")) {
      return refuse({.status = 415, .message = "Content-Encoding: send the body as it is"});
    }
    server_.body_bytes += bytes;
    body_reserved_ = bytes;
    const auto expect = parser_->get()[http::field::expect];
    if (beast::iequals(expect, "100-continue")) {
      static const std::string kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      asio::async_write(wire_, asio::buffer(kContinue),
                        [self = shared_from_this()](error_code failed, size_t) {
                          if (failed) return self->close();
                          self->read_body();
                        });
      return;
    }
    read_body();
  }

  void read_body() {
    arm(server_.limits.body_seconds, &Connection::time_out);
    http::async_read(wire_, buffer_, *parser_,
                     [self = shared_from_this()](error_code error, size_t) {
                       self->disarm();
                       if (self->state_ == State::closed) return;
                       if (error) return self->read_failed(error);
                       self->dispatch();
                     });
  }

  void read_failed(error_code error) {
    if (expired_) {
      return refuse(
          {.status = 408, .type = "timeout_error", .message = "the request took too long"});
    }
    if (error == http::error::end_of_stream || error == http::error::partial_message ||
        error.category() != error_code(http::error::end_of_stream).category()) {
      return close();  // the client has gone
    }
    if (error == http::error::body_limit) {
      return refuse(
          {.status = 413,
           .message = fmt::format("the body is larger than {} bytes", server_.limits.body_bytes)});
    }
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return refuse({.status = 431,
                     .message = fmt::format("the headers are larger than {} bytes",
                                            server_.limits.header_bytes)});
    }
    refuse({.message = "not HTTP: " + error.message()});
  }

  // An answer to what could not be read as a request: the connection ends with it.
  void refuse(const ApiError& error) {
    request_ = {};
    request_.method = "-";
    request_.path = "-";
    allow_origin_.clear();
    begin_answer(false, false);
    fail(error, {});
  }

  void dispatch();
  void begin_answer(bool keep_alive, bool chunks) {
    state_ = State::answering;
    ++serial_;
    keep_alive_ = keep_alive && !server_.stopping;
    chunks_ = chunks;
    begun_ = ended_ = false;
    status_ = 0;
    received_ = Clock::now();
    gone_ = nullptr;
  }

  // Answers, called through an Exchange.
  void fail(const ApiError& error, std::vector<Header> headers) {
    if (state_ != State::answering || begun_) return;
    if (error.status == 503) headers.push_back({"Retry-After", "1"});
    if (error.status == 401) headers.push_back({"WWW-Authenticate", "Bearer"});
    server_.count_error(error.type);
    respond(error.status, kJson, dump(error_json(error)), headers);
  }
  void count_error(const std::string& type) { server_.count_error(type); }
  void respond(int status, const std::string& type, std::string body,
               const std::vector<Header>& headers) {
    if (state_ != State::answering || begun_) return;
    begun_ = true;
    status_ = status;
    const size_t size = body.size();
    const bool head = request_.method == "HEAD";
    put(head_of(status, type, headers) + fmt::format("Content-Length: {}\r\n\r\n", size), nullptr);
    if (!head && size > 0) put(std::move(body), nullptr);
    ended_ = true;
    pump();
  }
  void begin(int status, const std::string& type, const std::vector<Header>& headers) {
    if (state_ != State::answering || begun_) return;
    begun_ = true;
    status_ = status;
    if (!chunks_) keep_alive_ = false;  // HTTP/1.0: the end of the connection is the answer's
    put(head_of(status, type, headers) + (chunks_ ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n"),
        nullptr);
    pump();
  }
  void write(std::string bytes, std::function<void()> sent) {
    if (state_ != State::answering || !begun_ || ended_ || bytes.empty()) {
      if (sent) sent();
      return;
    }
    if (chunks_) bytes = fmt::format("{:x}\r\n", bytes.size()) + bytes + "\r\n";
    put(std::move(bytes), std::move(sent));
    pump();
  }
  void end() {
    if (state_ != State::answering || !begun_ || ended_) return;
    if (chunks_) put("0\r\n\r\n", nullptr);
    ended_ = true;
    pump();
  }
  void on_disconnect(std::function<void()> gone) {
    if (state_ == State::answering && !ended_) {
      gone_ = std::move(gone);
    } else if (state_ == State::closed) {
      gone();
    }
  }
  void dropped() {
    if (state_ != State::answering) return;
    if (!begun_) {
      return fail(internal_error("the request was lost"), {});
    }
    if (!ended_) close();
  }

  std::string head_of(int status, const std::string& type, const std::vector<Header>& headers) {
    keep_alive_ = keep_alive_ && !server_.stopping;
    std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: lockstep\r\nContent-Type: {}\r\n",
                                   status, http_reason(status), type);
    if (!server_.origins.empty()) head += "Vary: Origin\r\n";
    if (!allow_origin_.empty()) {
      head += fmt::format("Access-Control-Allow-Origin: {}\r\n", allow_origin_);
    }
    for (const Header& header : headers) {
      head += fmt::format("{}: {}\r\n", header.name, header.value);
    }
    return head + (keep_alive_ ? "Connection: keep-alive\r\n" : "Connection: close\r\n");
  }

  struct Piece {
    std::string bytes;
    size_t written = 0;
    std::function<void()> sent;
  };
  void put(std::string bytes, std::function<void()> sent) {
    outbox_.push_back({std::move(bytes), 0, std::move(sent)});
  }
  void pump() {
    if (writing_ || state_ != State::answering) return;
    if (outbox_.empty()) {
      if (ended_) answered();
      return;
    }
    writing_ = true;
    const Piece& piece = outbox_.front();
    const size_t n = std::min(kWritePiece, piece.bytes.size() - piece.written);
    arm(server_.limits.write_seconds, &Connection::write_time_out);
    wire_.async_write_some(asio::buffer(piece.bytes.data() + piece.written, n),
                           [self = shared_from_this()](error_code error, size_t written) {
                             self->disarm();
                             self->writing_ = false;
                             if (error || self->state_ == State::closed) return self->close();
                             self->wrote(written);
                           });
  }
  void wrote(size_t n) {
    Piece& piece = outbox_.front();
    piece.written += n;
    if (piece.written == piece.bytes.size()) {
      const auto sent = std::move(piece.sent);
      outbox_.pop_front();
      if (sent) sent();
    }
    pump();
  }

  void answered() {
    ++server_.answers;
    gone_ = nullptr;
    peek_timer_.cancel();
    ++watch_turn_;
    error_code ignored;
    if (wire_.tls() == nullptr) socket_.cancel(ignored);  // the watch for a client that goes away
    release_body();
    if (server_.log) {
      server_.log(request_, status_,
                  std::chrono::duration<double, std::milli>(Clock::now() - received_).count());
    }
    request_ = {};
    parser_.reset();
    if (keep_alive_ && !server_.stopping) {
      // Not from within the write's own completion: cancel() has ended the watch by then.
      asio::post(server_.io, [self = shared_from_this()] {
        if (self->state_ == State::answering) {
          self->await_request(self->server_.limits.idle_seconds);
        }
      });
      return;
    }
    linger();
  }

  // Says that no more comes, and reads what the client still sends, for a while: closing at once
  // would make the system throw the answer away before a client that is still sending has read it.
  void linger() {
    state_ = State::lingering;
    const double seconds = server_.stopping ? kStoppingSeconds : kLingerSeconds;
    if (wire_.tls() != nullptr) {
      arm(seconds, &Connection::close);
      wire_.tls()->async_shutdown([self = shared_from_this()](error_code) { self->close(); });
      return;
    }
    error_code ignored;
    socket_.shutdown(tcp::socket::shutdown_send, ignored);
    buffer_.clear();
    arm(seconds, &Connection::close);
    drain();
  }
  void drain() {
    scrap_.resize(kWritePiece);
    socket_.async_read_some(asio::buffer(scrap_),
                            [self = shared_from_this()](error_code error, size_t) {
                              if (error || self->state_ != State::lingering) return self->close();
                              self->drain();
                            });
  }

  // Whether the client has closed its side, whatever it had sent before.
  bool closed_by_client() {
    pollfd socket{socket_.native_handle(), POLLRDHUP, 0};
    return ::poll(&socket, 1, 0) > 0 && (socket.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
  }

  // Sees a client go away while its answer is being made.
  void watch() {
    const uint64_t turn = ++watch_turn_;
    if (wire_.tls() != nullptr) return buffer_.size() == 0 ? read_ahead() : watch_on(turn);
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this(), turn](error_code error) {
      if (turn != self->watch_turn_ || self->state_ != State::answering) return;
      if (error) return;
      if (self->closed_by_client()) return self->close();
      char byte = 0;
      error_code peeked;
      self->socket_.non_blocking(true, peeked);
      const size_t n =
          self->socket_.receive(asio::buffer(&byte, 1), tcp::socket::message_peek, peeked);
      if (peeked == asio::error::would_block || peeked == asio::error::try_again) {
        return self->watch();
      }
      if (peeked || n == 0) return self->close();
      self->watch_on(turn);
    });
  }
  // The next request is there already, so that there always is something to read.
  void watch_on(uint64_t turn) {
    peek_timer_.expires_after(duration(kPeekSeconds));
    peek_timer_.async_wait([self = shared_from_this(), turn](error_code cancelled) {
      if (cancelled || turn != self->watch_turn_ || self->state_ != State::answering) return;
      if (self->closed_by_client()) return self->close();
      self->watch();
    });
  }

  void disconnected() {
    if (gone_) std::exchange(gone_, nullptr)();
    for (Piece& piece : outbox_) {
      if (piece.sent) piece.sent();
    }
    outbox_.clear();
    release_body();
    server_.check_done();
  }
  void release_body() { server_.body_bytes -= std::exchange(body_reserved_, 0); }

  HttpServer::Impl& server_;
  tcp::socket socket_;
  Wire wire_;
  bool reading_ahead_ = false;
  asio::steady_timer timer_, peek_timer_;
  uint64_t timer_turn_ = 0, watch_turn_ = 0;
  uint64_t serial_ = 0;  // of the request: what is said of an earlier one is too late
  // What has been read and not yet understood. Beast counts neither extensions of chunks nor
  // trailers as header or body: here they end.
  beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  State state_ = State::idle;
  bool expired_ = false;
  uint64_t body_reserved_ = 0;

  HttpRequest request_;
  std::string allow_origin_;
  bool keep_alive_ = false, chunks_ = false, begun_ = false, ended_ = false, writing_ = false;
  int status_ = 0;
  Clock::time_point received_;
  std::deque<Piece> outbox_;
  std::function<void()> gone_;
  std::vector<char> scrap_;

 public:
  asio::io_context& io() { return server_.io; }
};

// The face of a connection's current request.
class ExchangeOf final : public Exchange {
 public:
  ExchangeOf(std::shared_ptr<Connection> connection, HttpRequest request)
      : connection_(std::move(connection)),
        serial_(connection_->serial_),
        request_(std::move(request)) {}
  ~ExchangeOf() override {
    hand([](Connection& c) { c.dropped(); });
  }
  const HttpRequest& request() const override { return request_; }
  void respond(int status, std::string type, std::string body,
               std::vector<Header> headers) override {
    hand([status, type = std::move(type), body = std::move(body), headers = std::move(headers)](
             Connection& c) mutable { c.respond(status, type, std::move(body), headers); });
  }
  void fail(ApiError error, std::vector<Header> headers) override {
    hand([error = std::move(error), headers = std::move(headers)](Connection& c) mutable {
      c.fail(error, std::move(headers));
    });
  }
  void count_error(std::string type) override {
    hand([type = std::move(type)](Connection& c) { c.count_error(type); });
  }
  void begin(int status, std::string type, std::vector<Header> headers) override {
    hand([status, type = std::move(type), headers = std::move(headers)](Connection& c) {
      c.begin(status, type, headers);
    });
  }
  void write(std::string bytes, std::function<void()> sent) override {
    asio::post(connection_->io(), [connection = connection_, serial = serial_,
                                   bytes = std::move(bytes), sent = std::move(sent)]() mutable {
      if (connection->serial_ == serial) {
        connection->write(std::move(bytes), std::move(sent));
      } else if (sent) {
        sent();
      }
    });
  }
  void end() override {
    hand([](Connection& c) { c.end(); });
  }
  void on_disconnect(std::function<void()> gone) override {
    hand([gone = std::move(gone)](Connection& c) mutable { c.on_disconnect(std::move(gone)); });
  }
  void post(std::function<void()> act) override { asio::post(connection_->io(), std::move(act)); }

 private:
  template <typename Act>
  void hand(Act act) {
    asio::post(connection_->io(),
               [connection = connection_, serial = serial_, act = std::move(act)]() mutable {
                 if (connection->serial_ == serial) act(*connection);
               });
  }
  std::shared_ptr<Connection> connection_;
  uint64_t serial_;
  HttpRequest request_;
};

void Connection::dispatch() {
  auto message = parser_->release();
  parser_.reset();
  begin_answer(message.keep_alive(), message.version() >= 11);
  HttpRequest request;
  request.id = ++server_.requests;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  request.path = target.substr(0, target.find('?'));
  request.authorization = std::string(message[http::field::authorization]);
  request.api_key = std::string(message["X-Api-Key"]);
  request.body = std::move(message.body());
  request_.id = request.id;
  request_.method = request.method;
  request_.path = request.path;
  const std::string origin(message[http::field::origin]);
  allow_origin_ = allowed_origin(server_.origins, origin);
  watch();
  // What a browser asks before it lets a page of another origin ask.
  if (message.method() == http::verb::options && !server_.origins.empty() && !origin.empty() &&
      message.count(http::field::access_control_request_method) > 0) {
    std::vector<Header> headers;
    if (!allow_origin_.empty()) {
      headers = {{"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                 {"Access-Control-Allow-Headers",
                  std::string(message[http::field::access_control_request_headers])},
                 {"Access-Control-Max-Age", "600"}};
    }
    return respond(200, "text/plain", "", headers);
  }
  server_.handler(std::make_shared<ExchangeOf>(shared_from_this(), std::move(request)));
}

void start_connection(HttpServer::Impl& server, tcp::socket socket) {
  std::make_shared<Connection>(server, std::move(socket))->start();
}

void close_if_idle(Connection& connection) {
  const auto self = connection.shared_from_this();
  if (self->idle()) self->close();
}

}  // namespace lockstep::serve
