// Everything read from one or more log files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "lab/log/line_reader.h"
#include "lab/log/record.h"
#include "lab/log/summary.h"

namespace lockstep::lab::log {

// Of a file: its lines, and how many of them were used.
struct FileFacts {
  std::string path;
  LineCounts lines;
  int64_t used = 0;                    // lines that say something known
  int64_t garbled = 0;                 // lines with known words whose fields could not be read
  std::vector<int64_t> garbled_lines;  // the first ten
};

struct Analysis {
  std::vector<FileFacts> files;
  std::vector<Life> lives;
  // The first kKept; figures are over all.
  std::vector<Request> requests;
  std::vector<Interval> intervals;
  int64_t request_count = 0, interval_count = 0;
  int64_t without_timing = 0;                 // requests that ended without a timing (cancelled)
  std::vector<Contradiction> contradictions;  // the first kKeptFailures
  int64_t contradiction_count = 0;
  std::vector<Notice> notices;  // the first kKeptFailures
  int64_t notice_count = 0;
  Totals totals;
  Depths depths;

  static constexpr size_t kKept = 50'000, kKeptFailures = 1'000;
};

// Reads the files in order. Throws Error(bad_file) as read_lines does. progress: called now and
// then with the bytes read so far.
Analysis read_logs(std::span<const std::filesystem::path> files,
                   void (*progress)(int64_t bytes) = nullptr);
// The same from memory, as one file called `name`.
Analysis read_log_text(std::string_view text, std::string name = "log");

}  // namespace lockstep::lab::log
