// Fuzzes the log reader: any bytes, in pieces of any size. Input: a byte for the size of the
// pieces, then pieces of the log: a byte below 128 is a length of raw bytes that follow, one above
// it one of the lines that servers print, whose # are taken from the next bytes (and @ is #).
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>
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
               static_cast<unsigned long long>(inputs),
               static_cast<unsigned long long>(with_request));
  // A run that reached nothing must not look like one that found nothing.
  if (inputs >= 100'000 && with_request < 1000) {
    std::fprintf(stderr, "fuzz_lab_log: fewer than 1000 is no run\n");
    std::_Exit(1);
  }
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz_lab_log: %s\n", what);
  std::abort();
}

constexpr std::string_view kLines[] = {
    "0.0#.100.000 I srv    load_model: loading model 'x'\n",
    "0.1#.100.000 I srv  llama_server: model loaded\n",
    "initializing, n_slots = #, n_ctx_slot = 2048, kv_unified = 'false'\n",
    "0.1#.000.000 I slot launch_slot_: id  0 | task # | processing task, is_child = 0\n",
    "slot launch_slot_: id  # | task 1 | processing task\n",
    "slot get_availabl: id  # | task -1 | selected slot by LCP similarity, f_sim_best = 0.9# (> "
    "0.100 thold), f_keep = 0.5\n",
    "slot get_availabl: id  0 | task -1 | selected slot by LRU, t_last = -1\n",
    "slot operator(): id  0 | task # | new prompt, n_ctx_slot = 2048, n_keep = 0, task.n_tokens = "
    "#\n",
    "slot operator(): id  0 | task # | cached n_tokens = #, memory_seq_rm [#, end)\n",
    "slot print_timing: id  0 | task # | \n",
    "prompt eval time =     400.00 ms /    4# tokens (   10.00 ms per token,   100.00 tokens per "
    "second)\n",
    "       eval time =    2000.00 ms /   1# tokens (   20.00 ms per token,    50.00 tokens per "
    "second)\n",
    "0.#.500.000 I slot print_timing: id  0 | task # |        eval time =    2000.00 ms /   10# "
    "tokens (   20.00 ms per token,    50.00 tokens per second)\n",
    "slot print_timing: id  # | task # | prompt eval time =     #.00 ms /    # tokens (   10.00 ms "
    "per token,   100.00 tokens per second)\n",
    "      total time =    2400.00 ms /   14# tokens\n",
    "draft acceptance rate = 0.5#143 (   # accepted /   10# generated)\n",
    "draft acceptance = 0.50000 (   6# accepted /   12# generated), mean acceptance length =  "
    "2.5#, acceptance rate per position = (0.7#, 0.450, 0.300)\n",
    "slot print_timing: id  0 | task # | draft acceptance = 0.50000 (   6# accepted /   12# "
    "generated), mean len =  2.5#\n",
    "slot print_timing: id  0 | task # |      acc per pos = (0.7#, 0.450, 0.3#)\n",
    "spec x: statistics        draft-mtp: @calls(b,g,a) =    1     4#     4#, @gen drafts =     "
    "40, @acc drafts =    30, @gen tokens =    12#, @acc tokens =    6#, dur(b,g,a) = 0.004, "
    "84.000, 0.030 ms\n",
    "adding speculative implementation 'draft-mtp'\n- n_max=#, n_min=0, p_min=0.00\n",
    "slot release: id  0 | task # | stop processing: n_tokens = 1#, truncated = 0\n",
    "INFO [ release_slots] slot released | tid=\"1\" id_slot=0 id_task=# n_ctx=4\n",
    "SpecDecoding metrics: Mean acceptance length: 3.0#, Accepted throughput: 1.05 tokens/s, "
    "Drafted throughput: 1.52 tokens/s, Accepted: 14# tokens, Drafted: 20# tokens, Per-position "
    "acceptance rate: 0.8#, 0.676, 0.500, Avg Draft acceptance rate: 69.#%\n",
    "{\"type\":\"log\",\"time\":#,\"level\":\"info\",\"msg\":\"slot print_timing: id  0 | task # | "
    "graphs reused = #\\n\"}\n",
    "W requested draft size (n_max=16, n_min=0) exceeds the trained block size # -- clamping to "
    "#\n",
};

std::string log_of(std::string_view input) {
  std::string out;
  for (size_t i = 0; i < input.size();) {
    const auto op = static_cast<uint8_t>(input[i++]);
    if (op < 128) {
      out += input.substr(i, op);
      i += op;
      continue;
    }
    std::string_view line = kLines[op % std::size(kLines)];
    for (const char c : line) {
      if (c != '#') {
        out += c == '@' ? '#' : c;
      } else if (i < input.size()) {
        // Mostly a number, now and then something else in its place.
        const auto byte = static_cast<uint8_t>(input[i++]);
        if (byte < 250) {
          out += std::to_string(byte);
        } else {
          out += byte == 250   ? "-7"
                 : byte == 251 ? "99999999999999999999"
                 : byte == 252 ? "1e300"
                 : byte == 253 ? ""
                               : "nan";
        }
      }
    }
  }
  return out;
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
  const std::string made = log_of({reinterpret_cast<const char*>(data) + 1, size - 1});
  const std::string_view text = made;
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
  check(in_pieces.request_count == whole.request_count &&
            in_pieces.contradiction_count == whole.contradiction_count,
        "the result depends on the pieces");
  with_request += whole.request_count + whole.interval_count > 0;
  const std::string shown = text_report(whole);
  for (const char c : shown)
    check(c == '\n' || static_cast<unsigned char>(c) >= 0x20, "a control character in the report");
  check(html_report(whole).find("<script") == std::string::npos, "a script in the page");
  try {
    const int64_t depths[] = {1, 2, 8};
    const Whatif w = predict(whole, depths, {10, 1, {}});
    for (const Prediction& p : w.predictions)
      check(p.tok_s_low <= p.tok_s && p.tok_s <= p.tok_s_high, "an interval without its figure");
  } catch (const Error& error) {
    check(error.code() == ExitCode::check_failed, "whatif failed in another way");
  }
  return 0;
}
