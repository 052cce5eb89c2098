#include "serve/http_access.h"

#include <fmt/format.h>

#include <boost/asio/ssl.hpp>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "base/error.h"

namespace lockstep::serve {
namespace {

namespace ssl = boost::asio::ssl;

// Whether a page comes from this machine.
bool is_localhost(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!origin.starts_with(scheme)) continue;
    for (const std::string_view host : {"localhost", "127.0.0.1", "[::1]"}) {
      std::string_view rest = origin.substr(scheme.size());
      if (!rest.starts_with(host)) continue;
      rest.remove_prefix(host.size());
      if (rest.empty()) return true;
      if (rest.size() > 1 && rest.front() == ':' &&
          rest.find_first_not_of("0123456789", 1) == std::string_view::npos) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace

std::unique_ptr<ssl::context> make_tls(const HttpAccess& access) {
  if (access.key_file.empty() && access.certificate_file.empty()) return nullptr;
  if (access.key_file.empty() || access.certificate_file.empty()) {
    throw Error(ExitCode::bad_use,
                "TLS needs both --ssl-key-file and --ssl-cert-file; give the other one, too");
  }
  for (const std::string& file : {access.certificate_file, access.key_file}) {
    // A pipe would be waited for, and of the rest OpenSSL says little.
    std::error_code why;
    if (std::filesystem::is_regular_file(file, why) && std::ifstream(file)) continue;
    throw Error(ExitCode::bad_file,
                fmt::format("{}: {}; name a file in PEM", shorten(file),
                            why                                  ? why.message()
                            : std::filesystem::exists(file, why) ? "cannot be read as a file"
                                                                 : "no such file"));
  }
  auto tls = std::make_unique<ssl::context>(ssl::context::tls_server);
  tls->set_options(ssl::context::default_workarounds | ssl::context::no_tlsv1 |
                   ssl::context::no_tlsv1_1);
  boost::system::error_code error;
  const auto check = [&](const std::string& file, const char* what) {
    if (!error) return;
    throw Error(ExitCode::bad_file, fmt::format("{}: cannot be used as {} in PEM: {}",
                                                shorten(file), what, error.message()));
  };
  // Never ask at the terminal.
  tls->set_password_callback([](size_t, ssl::context::password_purpose) { return ""; });
  tls->use_certificate_chain_file(access.certificate_file, error);
  check(access.certificate_file, "a certificate");
  tls->use_private_key_file(access.key_file, ssl::context::pem, error);
  check(access.key_file, "the certificate's private key, without a password,");
  if (::SSL_CTX_check_private_key(tls->native_handle()) != 1) {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: is not the private key of {}", shorten(access.key_file),
                            shorten(access.certificate_file)));
  }
  return tls;
}

std::string allowed_origin(const std::vector<std::string>& origins, const std::string& origin) {
  if (origin.empty()) return "";
  for (const std::string& allowed : origins) {
    if (allowed == "*") return "*";
    if (allowed == origin || (allowed == "localhost" && is_localhost(origin))) return origin;
  }
  return "";
}

}  // namespace lockstep::serve
