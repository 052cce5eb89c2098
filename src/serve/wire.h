// The bytes of a client, plain or through TLS; Beast reads from it.
#pragma once

#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <optional>
#include <utility>

namespace lockstep::serve {

class Wire {
 public:
  using executor_type = boost::asio::ip::tcp::socket::executor_type;
  using Tls = boost::asio::ssl::stream<boost::asio::ip::tcp::socket&>;

  Wire(boost::asio::ip::tcp::socket& socket, boost::asio::ssl::context* tls) : socket_(socket) {
    if (tls != nullptr) tls_.emplace(socket, *tls);
  }
  executor_type get_executor() { return socket_.get_executor(); }
  Tls* tls() { return tls_ ? &*tls_ : nullptr; }
  template <typename Buffers, typename Token>
  void async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) {
      tls_->async_read_some(buffers, std::forward<Token>(token));
    } else {
      socket_.async_read_some(buffers, std::forward<Token>(token));
    }
  }
  template <typename Buffers, typename Token>
  void async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) {
      tls_->async_write_some(buffers, std::forward<Token>(token));
    } else {
      socket_.async_write_some(buffers, std::forward<Token>(token));
    }
  }

 private:
  boost::asio::ip::tcp::socket& socket_;
  std::optional<Tls> tls_;
};

}  // namespace lockstep::serve
