// Fuzzes the log reader: any bytes, in pieces of any size. Input: a byte for the size of the pieces, then
// the log.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "lab/log/analysis.h"
#include "lab/log/collector.h"
#include "lab/log/line_reader.h"
#include "lab/log/parser.h"
#include "lab/log/text_report.h"
#include "lab/log/whatif.h"

using namespace lockstep;
using namespace lockstep::lab::log;

namespace {

uint64_t inputs = 0, with_request = 0;

void report() {
  std::fprintf(stderr, "fuzz_lab_log: %llu inputs, %llu with a request or an interval\n",
               static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(with_request));
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_lab_log: %s\n", what);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  std::atexit(report);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ++inputs;
  if (size < 1) return 0;
  const size_t piece = 1 + data[0];
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  Collector collector;
  Parser parser(collector);
  LineCutter cutter;
  parser.begin_file();
  const auto each = [&parser](std::string_view line) { parser.line(line); };
  for (size_t i = 0; i < text.size(); i += piece) cutter.feed(text.substr(i, piece), each);
  cutter.finish(each);
  parser.end_file();
  check(cutter.counts().bytes == static_cast<int64_t>(text.size()), "bytes were lost");
  check(parser.used() + parser.garbled() >= 0, "counts");
  const Analysis in_pieces = collector.finish();
  const Analysis whole = read_log_text(text);
  check(in_pieces.request_count == whole.request_count && in_pieces.contradiction_count == whole.contradiction_count,
        "the result depends on the pieces");
  with_request += whole.request_count + whole.interval_count > 0;
  const std::string shown = text_report(whole);
  for (const char c : shown) check(c == '\n' || static_cast<unsigned char>(c) >= 0x20, "a control character in the report");
  check(html_report(whole).find("<script") == std::string::npos, "a script in the page");
  try {
    const int64_t depths[] = {1, 2, 8};
    const Whatif w = predict(whole, depths, {10, 1, {}});
    for (const Prediction& p : w.predictions) check(p.tok_s_low <= p.tok_s && p.tok_s <= p.tok_s_high, "an interval without its figure");
  } catch (const Error& error) {
    check(error.code() == ExitCode::check_failed, "whatif failed in another way");
  }
  return 0;
}
