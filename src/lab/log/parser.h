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

// Slots of one server that are kept apart; lines of more count as one.
inline constexpr size_t kMaxSlots = 4096;
// Places of a draft that are read, and implementations of one server.
inline constexpr size_t kMaxPositions = 64;

// Once, however often a log says it.
void add_witness(Request& request, Witness witness);

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
    bool released = false;  // before its timing was printed
    std::optional<int64_t> launched_us;
    std::optional<int64_t> timed_us;  // when its decode timing was printed
    // Statistics lines since it began, over the implementations.
    int64_t stat_drafted = 0, stat_accepted = 0, stat_steps = 0;
    double stat_draft_ms = 0;
    bool stat_seen = false, stat_complete = true;
    int64_t cut = 0;  // tokens of its drafts that the statistics count and its draft line doesn't
  };
  struct Slot {
    std::optional<Open> open;
    // The request before it, released, whose timing is still to come: ik_llama.cpp prints its
    // timings through another thread, and a request that waited for the slot begins in the
    // meantime.
    std::optional<Open> late;
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
    bool stopping = false;     // it says that it ends
    bool faulted = false;      // a device or a pass failed, in this life or an earlier one
    bool keyed_lines = false;  // INFO [ function] words | key=value
    bool oldest = false;       // and with the timings of llama-server before September 2024
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
  void ended_abruptly(Source& source);
  void clock(Line& line, bool start);
  int64_t slot_number(const Line& line) const;
  int64_t task_number(const Line& line) const;
  Open& open_for(Line& line);
  Open* open_if(Line& line);
  void close(Source& source, Slot& slot);
  void finish(Source& source, std::optional<Open>& done);
  void close_all(Source& source);
  Life& life(Source& source) { return collector_.life(source.life); }

  // One function a kind of line; false where it can't be read. server_lines.cc:
  bool timing_head(Line& line);
  bool eval_time(Line& line);
  bool total_time(Line& line);
  bool graphs_reused(Line& line);
  bool selected(Line& line);
  bool processing(Line& line);
  bool new_prompt(Line& line);
  bool cached(Line& line);
  bool stop_processing(Line& line);
  bool slot_released(Line& line);
  // draft_lines.cc:
  bool draft_line(Line& line);
  bool position_line(Line& line);
  bool statistics(Line& line);
  bool spec_add(Line& line);
  bool spec_limits(Line& line);
  bool spec_size_m(Line& line);
  bool spec_clamp(Line& line);
  bool draft_cut(Line& line);
  // vllm_lines.cc:
  bool vllm_spec(Line& line);
  bool vllm_engine(Line& line);
  bool vllm_limit(Line& line);

  Collector& collector_;
  WordFinder finder_;
  std::map<std::string, Source, std::less<>> sources_;
  Source* last_source_ = nullptr;
  std::string last_source_name_;
  std::string scratch_;
  int64_t line_number_ = 0;  // in the file
  int64_t used_ = 0, garbled_ = 0;
  std::vector<int64_t> garbled_lines_;
};

}  // namespace lockstep::lab::log
