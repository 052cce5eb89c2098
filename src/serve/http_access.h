// Who may ask the server, and through what: origins of web pages (CORS) and TLS.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace boost::asio::ssl {
class context;
}

namespace lockstep::serve {

struct HttpAccess {
  // Origins of web pages that browsers may let read answers (CORS): "https://chat.example"; "*":
  // any; "localhost": this machine's, on any port. None: no page of another origin may.
  std::vector<std::string> origins;
  // PEM files, of the private key and of the certificate with its chain: then TLS alone is spoken.
  std::string key_file, certificate_file;
};

// Null where no files are named: plain. Throws Error(bad_use) where one of the two is missing,
// Error(bad_file) for a key or certificate that is none.
std::unique_ptr<boost::asio::ssl::context> make_tls(const HttpAccess& access);

// What Access-Control-Allow-Origin says to a page of this origin; "": nothing.
std::string allowed_origin(const std::vector<std::string>& origins, const std::string& origin);

}  // namespace lockstep::serve
