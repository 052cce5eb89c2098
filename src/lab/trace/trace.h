// A trace of what ran, in the Chrome trace event format (`lockstep bench --trace`, PyTorch's
// profiler, PTI, Perfetto): exclusive times, so that an op that encloses others is not counted
// beside them, and passes told apart by their rows.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lab::trace {

// Events of one category and name. Times in milliseconds.
struct Group {
  std::string category, name;
  int64_t calls = 0;
  double ms = 0;          // from begin to end
  double own_ms = 0;      // of these, in no event inside it
  int64_t enclosing = 0;  // calls that hold other events
};

// Outermost events that say their rows (`args.rows`) and hold others.
struct PassKind {
  int64_t rows = 0;
  int64_t passes = 0;
  double ms = 0;
};

struct Trace {
  int64_t events = 0;    // complete ones that are counted below
  int64_t left_out = 0;  // in passes of other rows than those that were asked for
  int64_t other = 0;     // events of other kinds: names of threads, counters, flows, begin and end
  int64_t damaged = 0;   // complete events without a name, or with a time that can't be
  int64_t crossing = 0;  // events that begin inside another of their track and end after it
  bool cut_off = false;  // the file ends in the middle
  size_t tracks = 0;     // process and thread
  double busy_ms = 0;    // under any event, summed over the tracks
  double sum_ms = 0;     // of all durations: more than busy_ms where events enclose others
  std::vector<Group> groups;              // by own_ms, the largest first
  std::vector<PassKind> passes;           // by rows; of the whole file, whatever was asked for
  bool has(std::string_view name) const;  // by name, or by category
};

// `rows`: only passes of so many rows and what is inside them. Error(bad_file) where the file holds
// no complete event, or more than kMaxEvents.
inline constexpr size_t kMaxEvents = 20'000'000;
Trace read_trace(const std::filesystem::path& file, std::optional<int64_t> rows);
Trace read_trace_text(std::string_view name, std::string_view text, std::optional<int64_t> rows);

std::string trace_text(const Trace& trace);

}  // namespace lockstep::lab::trace
