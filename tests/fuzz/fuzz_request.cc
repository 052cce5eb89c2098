// Fuzzes the layer from a body of JSON to a request. Input: a byte that chooses the surface, then
// the body. Whatever it is, the answer is a request within its limits or a RequestError of status
// 400 that can be written as JSON.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "serve/request.h"

using namespace lockstep::serve;

namespace {

uint64_t inputs = 0, accepted = 0;

void report() {
  std::fprintf(stderr, "fuzz_request: %llu inputs, %llu accepted\n",
               static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(accepted));
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_request: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const bool registered = std::atexit(report) == 0;
  check(registered, "atexit");
  if (size == 0) return 0;
  ++inputs;
  const auto surface = static_cast<Surface>(data[0] % 3);
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    const Request request = parse_request(surface, body, {});
    ++accepted;
    check(request.n >= 1 && request.n <= kMaxSequences, "n");
    check(static_cast<int64_t>(request.prompts.size()) * request.n <= kMaxSequences, "sequences");
    check(request.top >= 0 && request.top <= kMaxTop, "top");
    check(request.max_tokens >= -1, "max_tokens");
    check(request.id_slot >= -1, "id_slot");
    check(request.stops.size() <= kMaxStops, "stops");
    for (const std::string& stop : request.stops) check(!stop.empty(), "an empty stop string");
    check((surface == Surface::oai_chat) == request.prompts.empty(), "prompts");
    check(surface != Surface::oai_chat || !request.messages.empty(), "messages");
    for (const auto& [id, bias] : request.sampling.logit_bias) {
      check(bias == bias, "a bias that is no number");
    }
  } catch (const RequestError& error) {
    check(error.error().status == 400, "status");
    check(!error.error().message.empty() && error.error().message.size() < 4000, "message");
    const std::string written =
        error_json(error.error()).dump(-1, ' ', false, Json::error_handler_t::replace);
    check(!written.empty(), "written");
  }
  return 0;
}
