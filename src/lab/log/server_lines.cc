// The lines of llama-server and ik_llama.cpp about a request and its slot, but for its drafts.
#include <algorithm>

#include "lab/log/parser.h"

namespace lockstep::lab::log {
namespace {

void set_cached(Request& request, int64_t cached) {
  if (request.cached_tokens || cached < 0) return;
  request.cached_tokens = cached;
  request.cached_from = CachedFrom::log;
  add_witness(request, cached > 0 ? Witness::cached_tokens : Witness::cached_zero);
}

}  // namespace

void add_witness(Request& request, Witness witness) {
  if (std::find(request.witnesses.begin(), request.witnesses.end(), witness) ==
      request.witnesses.end()) {
    request.witnesses.push_back(witness);
  }
}

bool Parser::timing_head(Line& line) {
  if (!line.prefix.slot || !line.prefix.task) return false;
  Source& source = *line.source;
  if (source.keyed_lines) {
    // One thread prints the blocks: the one before is whole, and rows stay in their order.
    for (auto& [number, slot] : source.slots) {
      if (slot.late && slot.late->request.decode_ms) finish(source, slot.late);
      if (slot.open && slot.open->released && slot.open->request.decode_ms) close(source, slot);
    }
  }
  source.head_slot = *line.prefix.slot;
  source.head_task = *line.prefix.task;
  return true;
}

bool Parser::eval_time(Line& line) {
  Source& source = *line.source;
  if (line.prefix.slot) {
    source.head_slot = *line.prefix.slot;
    source.head_task = line.prefix.task.value_or(-1);
  }
  const std::string_view left = line.left.substr(0, line.left.find_last_not_of(' ') + 1);
  const bool prompt = left.ends_with("prompt");
  // llama-server before September 2024, whose "runs" are tokens.
  const bool oldest = left.ends_with("generation");
  if (oldest) source.oldest = true;
  Scan scan(line.rest);
  double ms = 0, per_token = 0, rate = 0;
  int64_t n = 0;
  scan.word("=").number(ms).word("ms").word("/").integer(n);
  const bool runs = scan.maybe("runs");
  if (!runs && !scan.maybe("tokens")) return false;
  scan.word("(").number(per_token).word("ms per token").word(",");
  // The oldest prints "inf" or "nan" for a rate without tokens.
  std::optional<double> printed;
  if (scan.number(rate).ok()) {
    scan.word("tokens per second").word(")");
    if (!scan.ok()) return false;
    printed = rate;
  } else if (n > 1) {
    return false;
  }
  source.ready = true;
  Open* open = &open_for(line);
  if (open->request.decode_ms) {  // the next request of a log without release lines
    close(source, source.slots[open->request.slot]);
    open = &open_for(line);
  }
  Request& r = open->request;
  if (prompt) {
    if (r.prompt_ms) return true;  // a second one in a block: keep the first
    r.evaluated_tokens = n;
    r.prompt_ms = ms;
    r.prompt_rate_printed = printed;
    return true;
  }
  r.line = line_number_;
  r.generated_tokens = runs && !oldest ? n + 1 : n;  // llama_perf's "runs" are decode passes
  r.decode_ms = ms;
  r.decode_rate_printed = printed;
  r.decode_per_token_printed = per_token;
  open->timed_us = line.prefix.time_us;
  r.after_fault = source.faulted;
  return true;
}

bool Parser::total_time(Line& line) {
  double ms = 0;
  int64_t n = 0;
  Scan scan(line.rest);
  if (!scan.word("=").number(ms).word("ms").ok()) return false;
  const bool counted = scan.maybe("/");  // the oldest say no tokens
  if (counted && !scan.integer(n).ok()) return false;
  Open* open = open_if(line);
  if (!open || !open->request.decode_ms) return true;
  open->request.total_ms = ms;
  // llama_perf's total counts passes and no tokens.
  if (counted && slot_number(line) >= 0) open->request.total_tokens = n;
  return true;
}

bool Parser::graphs_reused(Line& line) {
  int64_t n = 0;
  if (!Scan(line.rest).integer(n).ok()) return false;
  if (Open* open = open_if(line)) open->request.graphs_reused = n;
  return true;
}

bool Parser::selected(Line& line) {
  const int64_t number = slot_number(line);
  if (line.source->slots.size() >= kMaxSlots) return true;
  Slot& slot = line.source->slots[number];
  if (slot.open && slot.open->request.decode_ms) close(*line.source, slot);
  slot.similarity.reset();
  slot.lru = line.rest.starts_with("LRU") || line.rest.starts_with("lru");
  const bool similar = line.rest.find("similarity") != std::string_view::npos;
  if (similar) {
    const size_t equals = line.rest.find(" = ");
    double value = 0;
    if (equals == std::string_view::npos ||
        !Scan(line.rest.substr(equals + 3)).number(value).ok()) {
      return false;
    }
    slot.similarity = value;
  }
  return true;
}

bool Parser::processing(Line& line) {
  if (!line.prefix.slot) return false;
  Source& source = *line.source;
  source.ready = true;
  if (source.slots.size() >= kMaxSlots && !source.slots.contains(*line.prefix.slot)) return true;
  Slot& slot = source.slots[*line.prefix.slot];
  if (slot.open && slot.open->released && !slot.open->request.decode_ms &&
      slot.open->request.task >= 0 && slot.open->request.task != task_number(line)) {
    finish(source, slot.late);
    slot.late = std::move(slot.open);
    slot.open.reset();
  } else {
    close(source, slot);
  }
  Open& open = open_for(line);
  open.launched = true;
  open.launched_us = line.prefix.time_us;
  open.request.other_slot = false;
  for (auto& [number, other] : source.slots) {
    if (number == *line.prefix.slot || !other.open || !other.open->launched) continue;
    // Done: its release, or its timing, is still to come.
    if (other.open->request.decode_ms || other.open->released) continue;
    other.open->request.other_slot = true;
    open.request.other_slot = true;
  }
  if (slot.similarity) {
    open.request.similarity = slot.similarity;
    add_witness(open.request, Witness::similarity);
  }
  if (slot.lru) add_witness(open.request, Witness::lru);
  slot.similarity.reset();
  slot.lru = false;
  return true;
}

bool Parser::new_prompt(Line& line) {
  Scan scan(line.rest);
  int64_t n = 0;
  if (line.rest.find("task.n_tokens =") != std::string_view::npos) {
    scan.past("task.n_tokens =");
  } else {
    scan.past("n_prompt_tokens =");
  }
  if (!scan.integer(n).ok()) return false;
  open_for(line).request.prompt_tokens = n;
  return true;
}

bool Parser::cached(Line& line) {
  int64_t n = 0;
  if (!Scan(line.rest).integer(n).ok()) {
    const size_t p0 = line.text.find(" p0=");
    if (p0 == std::string_view::npos || !Scan(line.text.substr(p0 + 4)).integer(n).ok())
      return false;
  }
  set_cached(open_for(line).request, n);
  return true;
}

bool Parser::stop_processing(Line& line) {
  Scan scan(line.rest);
  int64_t n = 0, truncated = 0;
  if (!scan.maybe("n_tokens =") && !scan.maybe("n_past =")) return false;
  if (!scan.integer(n).word(", truncated =").integer(truncated).ok()) return false;
  Open* open = open_if(line);
  if (!open) return true;
  open->request.end_tokens = n;
  open->request.truncated = truncated != 0;
  close(*line.source, line.source->slots[open->request.slot]);
  return true;
}

bool Parser::slot_released(Line& line) {
  Open* open = open_if(line);
  if (!open) return true;
  const size_t past = line.rest.find(" n_past="), cut = line.rest.find(" truncated=");
  int64_t n = 0;
  if (past != std::string_view::npos && Scan(line.rest.substr(past + 8)).integer(n).ok() &&
      n >= 0) {
    open->request.end_tokens = n;
  }
  if (cut != std::string_view::npos) {
    open->request.truncated = line.rest.substr(cut + 11).starts_with("true");
  }
  // ik_llama.cpp prints its timings through another thread: they may come after this line.
  if (!open->request.decode_ms) {
    open->released = true;
    return true;
  }
  close(*line.source, line.source->slots[open->request.slot]);
  return true;
}

}  // namespace lockstep::lab::log
