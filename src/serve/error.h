// What a request is answered with when it cannot be served: an HTTP status and the error object
// that OpenAI's and llama-server's clients read.
#pragma once

#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

namespace lockstep::serve {

// Keeps the order of keys.
using Json = nlohmann::ordered_json;

struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param = {};  // the field, "messages[2].content"; "" where none is to blame
  Json extra = {};         // further members of the error object
};

class RequestError : public std::exception {
 public:
  explicit RequestError(ApiError error) : error_(std::move(error)) {}
  const ApiError& error() const { return error_; }
  const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  ApiError error_;
};

// 400 that names a field.
[[noreturn]] void refuse_field(const std::string& param, const std::string& message);

ApiError unavailable(const std::string& message);     // 503
ApiError not_supported(const std::string& message);   // 501
ApiError internal_error(const std::string& message);  // 500

// {"error": {"code", "message", "type", "param"}}: code is the HTTP status, as in llama-server;
// param is null where no field is to blame, as in OpenAI's.
Json error_json(const ApiError& error);

}  // namespace lockstep::serve
