// Fuzzes the reader of traces: any bytes, and lists of events whose fields the bytes choose (input:
// 0, then four bytes an event).
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "lab/trace/trace.h"

using namespace lockstep;

namespace {

uint64_t inputs = 0, read = 0;

void report() {
  std::fprintf(stderr, "fuzz_lab_trace: %llu inputs, %llu with an event\n",
               static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(read));
  // A run that reached nothing must not look like one that found nothing.
  if (inputs >= 100'000 && read < 1000) std::_Exit(1);
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_lab_trace: %s\n", what);
  std::abort();
}

std::string events_of(const uint8_t* data, size_t size) {
  std::string out = "[";
  for (size_t i = 0; i + 4 <= size; i += 4) {
    if (i) out += ',';
    out += R"({"ph":"X","name":"n)" + std::to_string(data[i] % 7) + R"(","ts":)" +
           std::to_string(data[i + 1]) + R"(,"dur":)" +
           (data[i + 2] == 255 ? "-1" : std::to_string(data[i + 2] % 64)) + R"(,"tid":)" +
           std::to_string(data[i + 3] % 2) + R"(,"args":{"rows":)" +
           std::to_string(data[i + 3] / 2 % 3) + "}}";
  }
  return out + "]";
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit(report);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ++inputs;
  if (size < 1) return 0;
  const std::string text = data[0] == 0 ? events_of(data + 1, size - 1)
                                        : std::string(reinterpret_cast<const char*>(data), size);
  std::optional<int64_t> rows;
  if (size % 4 == 3) rows = 1;
  try {
    const lab::trace::Trace trace = lab::trace::read_trace_text("trace", text, rows);
    ++read;
    double own = 0;
    int64_t calls = 0;
    for (const auto& group : trace.groups) {
      check(group.own_ms >= 0 && group.own_ms <= group.ms * (1 + 1e-9) + 1e-9, "own above all");
      own += group.own_ms;
      calls += group.calls;
    }
    check(calls == trace.events, "events were lost");
    check(trace.busy_ms <= trace.sum_ms * (1 + 1e-9) + 1e-9, "busier than its events");
    if (trace.crossing == 0) {
      check(
          std::abs(own - trace.busy_ms) <= 1e-6 * trace.sum_ms + 1e-5 * static_cast<double>(calls),
          "own times don't add up");
    }
    for (const char c : lab::trace::trace_text(trace)) {
      check(c == '\n' || static_cast<unsigned char>(c) >= 0x20, "a control character in the text");
    }
  } catch (const Error& error) {
    check(error.code() == ExitCode::bad_file || error.code() == ExitCode::bad_use, "another code");
  }
  return 0;
}
