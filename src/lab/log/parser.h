// From a log's lines to requests: a line is known by its fixed words (words.h), its slot and task
// are read to the left of them, and what a slot has said since its request began is put together.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "lab/log/collector.h"
#include "lab/log/line_prefix.h"
#include "lab/log/scan.h"
#include "lab/log/word_finder.h"
#include "lab/log/words.h"

namespace lockstep::lab::log {

class Parser {
 public:
  explicit Parser(Collector& collector);

  void begin_file();
  void line(std::string_view line);
  // Requests that are still open are taken as they are.
  void end_file();

  // Of the file begun last.
  int64_t used() const { return used_; }
  int64_t garbled() const { return garbled_; }
  const std::vector<int64_t>& garbled_lines() const { return garbled_lines_; }

 private:
  // A request that a slot is working on.
  struct Open {
    Request request;
    bool launched = false;
    std::optional<int64_t> launched_us;
    std::optional<int64_t> timed_us;  // when its decode timing was printed
    // Statistics lines since it began, over the implementations.
    int64_t stat_drafted = 0, stat_accepted = 0, stat_steps = 0;
    double stat_draft_ms = 0;
    bool stat_seen = false, stat_complete = true;
  };
  struct Slot {
    std::optional<Open> open;
    std::optional<double> similarity;  // of the selection before a launch
    bool lru = false;
  };
  struct Statistics {
    int64_t steps = 0, drafted = 0, accepted = 0;
    double draft_ms = 0;
  };
  // One server among those that write into the file.
  struct Source {
    int64_t life = -1;
    bool ready = false;
    bool keyed_lines = false;  // INFO [ function] words | key=value
    std::optional<int64_t> last_us;
    int64_t head_slot = -1, head_task = -1;  // of the last "print_timing: id"
    std::map<int64_t, Slot> slots;
    std::map<std::string, Statistics, std::less<>> statistics;
  };
  struct Line {
    std::string_view text, left, rest;  // rest: after the words
    Prefix prefix;
    Source* source = nullptr;
  };

  void read(std::string_view line, const JsonLine* wrapper);
  bool understand(const Word& word, Line& line);
  Source& source_of(std::string_view name, bool vllm);
  void start(Source& source, const Prefix& prefix);
  void clock(Line& line, bool start);
  int64_t slot_number(const Line& line) const;
  Open& open_for(Line& line);
  Open* open_if(Line& line);
  void close(Source& source, Slot& slot);
  void close_all(Source& source);
  Life& life(Source& source) { return collector_.life(source.life); }

  bool eval_time(Line& line, bool prompt);
  bool draft_line(Line& line);
  bool positions(std::string_view text, std::vector<double>& out);
  bool statistics(Line& line);
  bool selected(Line& line);
  bool spec_limits(Line& line);
  bool vllm_spec(Line& line);
  bool vllm_engine(Line& line);

  Collector& collector_;
  WordFinder finder_;
  std::map<std::string, Source, std::less<>> sources_;
  std::string scratch_;
  int64_t line_number_ = 0;  // in the file
  int64_t used_ = 0, garbled_ = 0;
  std::vector<int64_t> garbled_lines_;
};

}  // namespace lockstep::lab::log
