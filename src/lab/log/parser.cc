#include "lab/log/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep::lab::log {
namespace {

// Servers in one file that are kept apart; lines of more count for the first.
constexpr size_t kMaxSources = 256;
constexpr int64_t kSecond = 1'000'000;  // microseconds

std::vector<std::string_view> texts_of(std::span<const Word> all) {
  std::vector<std::string_view> out;
  for (const Word& word : all) out.push_back(word.text);
  return out;
}

// Whether a line of a start has only a log's prefix before its words: "build: " may be in any text.
bool only_prefix(std::string_view left) {
  const size_t last = left.find_last_not_of(" \t");
  if (last == std::string_view::npos) return true;
  const char c = left[last];
  return (c >= '0' && c <= '9') || std::string_view(":|])IZ").find(c) != std::string_view::npos;
}

// "b11434-5d6afb3" and its like, or the keys build= and commit= of a keyed line.
std::string build_of(std::string_view rest) {
  const auto value = [rest](std::string_view key) -> std::string_view {
    const size_t at = rest.find(key);
    return at == std::string_view::npos ? "" : first_word(rest.substr(at + key.size()));
  };
  const std::string_view number = value(" build=").substr(0, 40), commit = value(" commit=");
  if (number.empty()) return std::string(first_word(rest).substr(0, 80));
  return fmt::format("{} ({})", number, commit.substr(0, 40));
}

}  // namespace

Parser::Parser(Collector& collector) : collector_(collector), finder_(texts_of(words())) {}

void Parser::begin_file() {
  sources_.clear();
  last_source_ = nullptr;
  line_number_ = used_ = garbled_ = 0;
  garbled_lines_.clear();
}

void Parser::end_file() {
  for (auto& [name, source] : sources_) close_all(source);
}

void Parser::line(std::string_view line) {
  ++line_number_;
  if (line.starts_with('{')) {
    if (const auto json = read_json_line(line)) {
      std::string_view text = json->text;
      while (true) {
        const size_t end = text.find('\n');
        read(text.substr(0, end), &*json);
        if (end == std::string_view::npos) return;
        text.remove_prefix(end + 1);
      }
    }
  }
  read(line, nullptr);
}

void Parser::read(std::string_view whole, const JsonLine* wrapper) {
  auto match = finder_.find(whole);
  if (!match) return;
  const std::string_view text = without_colours(whole, scratch_);
  if (text.data() != whole.data()) {
    match = finder_.find(text);
    if (!match) return;
  }
  const auto all = words();
  // The head of a timing block says whose it is; what it times may stand on the same line.
  if (all[match->word].kind == Kind::timing_head) {
    if (const auto behind = finder_.find(text, match->end)) {
      match = behind;
    }
  }
  const Word& word = all[match->word];
  Line line{text, text.substr(0, match->begin), text.substr(match->end), {}, nullptr};
  const bool head_alone =
      word.kind == Kind::timing_head && text.find("| task ") != std::string_view::npos;
  line.prefix = read_prefix(head_alone ? text : line.left, text);
  if (wrapper) {
    if (wrapper->time_us) line.prefix.time_us = wrapper->time_us;
    if (wrapper->slot) line.prefix.slot = wrapper->slot;
    if (wrapper->task) line.prefix.task = wrapper->task;
  }
  const bool vllm = word.kind == Kind::vllm_spec || word.kind == Kind::vllm_engine ||
                    word.kind == Kind::vllm_limit || word.text.starts_with("vLLM");
  line.source = &source_of(line.prefix.source, vllm);
  if (line.prefix.keyed || (wrapper && wrapper->keyed)) line.source->keyed_lines = true;
  const bool start_line =
      word.kind == Kind::start_mark || word.kind == Kind::build || word.kind == Kind::slots_init;
  if (start_line && word.kind != Kind::slots_init && !only_prefix(line.left)) return;
  clock(line, start_line);
  if (understand(word, line)) {
    ++used_;
  } else {
    ++garbled_;
    if (garbled_lines_.size() < 10) garbled_lines_.push_back(line_number_);
  }
}

Parser::Source& Parser::source_of(std::string_view name, bool vllm) {
  // Mostly the source of the line before.
  if (last_source_ && !vllm && last_source_name_ == name) return *last_source_;
  std::string key(name);
  if (vllm) key += " vllm";
  auto found = sources_.find(key);
  if (found == sources_.end()) {
    if (sources_.size() >= kMaxSources) return sources_.begin()->second;
    found = sources_.emplace(std::move(key), Source{}).first;
    Life made;
    made.source = std::string(name);
    made.engine = vllm ? "vllm" : "llama-server";
    made.first_line = line_number_;
    found->second.life = collector_.add_life(std::move(made));
  }
  if (!vllm) {
    last_source_ = &found->second;  // a map's elements stay where they are
    last_source_name_ = name;
  }
  return found->second;
}

// A server that is told to stop says so, and finishes or cancels what it works on.
void Parser::ended_abruptly(Source& source) {
  if (source.stopping) return;
  int64_t at_work = 0;
  for (const auto& [number, slot] : source.slots) {
    at_work +=
        slot.open && slot.open->launched && !slot.open->released && !slot.open->request.decode_ms;
  }
  if (at_work == 0) return;
  collector_.notice("ended_abruptly", line_number_,
                    fmt::format("the server before this line ended in the middle of {} request{}, "
                                "and no line says why: killed, or gone with what started it",
                                at_work, at_work == 1 ? "" : "s"));
}

// A new server writes where an older one did.
void Parser::start(Source& source, const Prefix& prefix) {
  ended_abruptly(source);
  close_all(source);
  const bool faulted = source.faulted;
  Life made;
  made.source = std::string(prefix.source);
  made.engine = life(source).engine;
  made.first_line = line_number_;
  made.started_here = true;
  source = Source{};
  source.life = collector_.add_life(std::move(made));
  source.last_us = prefix.time_us;
  source.faulted = faulted;  // a restart of the server need not bring the device back
}

// Notices restarts, and clocks that go back without one.
void Parser::clock(Line& line, bool start_line) {
  Source& source = *line.source;
  const std::optional<int64_t> now = line.prefix.time_us, last = source.last_us;
  const bool back = now && last && *now + kSecond / 10 < *last;
  if (start_line && (back || (source.ready && (!now || !last)))) {
    start(source, line.prefix);
    return;
  }
  if (start_line && !source.ready) life(source).started_here = true;
  if (back && *now + kSecond < *last) {
    collector_.contradiction(
        "clock", line_number_, -1,
        fmt::format(
            "the server's clock goes back from {:.3f} to {:.3f} s without a start: lines are "
            "missing, or two servers write here",
            static_cast<double>(*last) / kSecond, static_cast<double>(*now) / kSecond));
  }
  if (now) source.last_us = now;
}

int64_t Parser::slot_number(const Line& line) const {
  return line.prefix.slot.value_or(line.source->head_slot);
}

int64_t Parser::task_number(const Line& line) const {
  return line.prefix.slot ? line.prefix.task.value_or(-1) : line.source->head_task;
}

Parser::Open& Parser::open_for(Line& line) {
  Source& source = *line.source;
  int64_t number = slot_number(line);
  if (source.slots.size() >= kMaxSlots && source.slots.find(number) == source.slots.end())
    number = -1;
  Slot& slot = source.slots[number];
  const int64_t task = task_number(line);
  if (slot.late && task >= 0 && slot.late->request.task == task) return *slot.late;
  if (slot.open && task >= 0 && slot.open->request.task >= 0 && slot.open->request.task != task) {
    close(source, slot);
  }
  if (!slot.open) {
    slot.open = Open{};
    slot.open->request.life = source.life;
    slot.open->request.slot = number;
    slot.open->request.line = line_number_;
  }
  if (slot.open->request.task < 0) slot.open->request.task = task;
  return *slot.open;
}

Parser::Open* Parser::open_if(Line& line) {
  const auto found = line.source->slots.find(slot_number(line));
  if (found == line.source->slots.end()) return nullptr;
  Slot& slot = found->second;
  const int64_t task = task_number(line);
  if (slot.late && task >= 0 && slot.late->request.task == task) return &*slot.late;
  return slot.open ? &*slot.open : nullptr;
}

void Parser::close_all(Source& source) {
  for (auto& [number, slot] : source.slots) close(source, slot);
}

void Parser::close(Source& source, Slot& slot) {
  finish(source, slot.late);
  finish(source, slot.open);
}

void Parser::finish(Source& source, std::optional<Open>& done) {
  if (!done) return;
  Open open = std::move(*done);
  done.reset();
  Request& r = open.request;
  if (!r.decode_ms || !r.generated_tokens) {
    if (open.launched) collector_.count_without_timing();
    return;
  }
  if (source.keyed_lines && !source.oldest) life(source).engine = "ik_llama.cpp";
  if (!r.cached_tokens && r.prompt_tokens && r.evaluated_tokens) {
    r.cached_tokens = *r.prompt_tokens - *r.evaluated_tokens;
    r.cached_from = CachedFrom::prompt;
    if (*r.cached_tokens < 0) {
      collector_.contradiction("prompt_length", r.line, collector_.next_request(),
                               fmt::format("{} tokens were evaluated of a prompt of {}",
                                           *r.evaluated_tokens, *r.prompt_tokens));
      r.cached_tokens.reset();
      r.cached_from = CachedFrom::nowhere;
    }
  }
  if (!r.prompt_tokens && r.cached_tokens && r.evaluated_tokens) {
    r.prompt_tokens = *r.cached_tokens + *r.evaluated_tokens;
  }
  // The statistics lines count this request alone where their tokens are its own: ik_llama.cpp's
  // are of one slot anyway.
  const bool alone = source.keyed_lines || !r.other_slot.value_or(true);
  if (r.draft && open.stat_seen && open.stat_complete && alone &&
      open.stat_drafted - open.cut == r.draft->drafted && open.stat_accepted == r.draft->accepted) {
    r.draft->counted_steps = open.stat_steps;
    r.draft_ms = open.stat_draft_ms;
  }
  // What the server timed must fit between its own two stamps.
  if (open.launched_us && open.timed_us && r.prompt_ms) {
    const double between = static_cast<double>(*open.timed_us - *open.launched_us) / 1000;
    const double timed = *r.prompt_ms + *r.decode_ms;
    if (timed > between * 1.05 + 100) {
      collector_.contradiction(
          "clock", r.line, collector_.next_request(),
          fmt::format("{:.0f} ms of prompt and decode were timed within {:.0f} ms of the log's own "
                      "clock",
                      timed, between));
    }
  }
  collector_.add(std::move(r));
}

bool Parser::understand(const Word& word, Line& line) {
  switch (word.kind) {
    case Kind::timing_head:
      return timing_head(line);
    case Kind::eval_time:
      return eval_time(line);
    case Kind::total_time:
      return total_time(line);
    case Kind::graphs_reused:
      return graphs_reused(line);
    case Kind::selected_slot:
      return selected(line);
    case Kind::processing:
      return processing(line);
    case Kind::new_prompt:
      return new_prompt(line);
    case Kind::cached:
      return cached(line);
    case Kind::evaluate_one:
      return true;
    case Kind::checkpoint_restored:
      add_witness(open_for(line).request, Witness::checkpoint);
      return true;
    case Kind::reprocessing:
      add_witness(open_for(line).request, Witness::reprocessed);
      return true;
    case Kind::stop_processing:
      return stop_processing(line);
    case Kind::slot_released:
      return slot_released(line);

    case Kind::draft_line:
      return draft_line(line);
    case Kind::positions:
      return position_line(line);
    case Kind::statistics:
      return statistics(line);
    case Kind::spec_add:
      return spec_add(line);
    case Kind::spec_limits:
      return spec_limits(line);
    case Kind::spec_size_m:
      return spec_size_m(line);
    case Kind::spec_clamp:
      return spec_clamp(line);
    case Kind::draft_cut:
      return draft_cut(line);

    case Kind::vllm_spec:
      return vllm_spec(line);
    case Kind::vllm_engine:
      return vllm_engine(line);
    case Kind::vllm_limit:
      return vllm_limit(line);

    case Kind::start_mark:
      return true;
    case Kind::ready_mark:
      line.source->ready = true;
      return true;
    case Kind::build: {
      Life& owner = life(*line.source);
      if (owner.build.empty()) owner.build = build_of(line.rest);
      return true;
    }
    case Kind::slots_init: {
      int64_t n = 0;
      if (!Scan(line.rest).integer(n).ok()) return false;
      life(*line.source).n_slots = n;
      return true;
    }
    case Kind::engine_ik:
      life(*line.source).engine = "ik_llama.cpp";
      return true;
    case Kind::stop_mark:
      line.source->stopping = true;
      return true;
    case Kind::draft_vocabs:
      // llama-server gives the drafter up there, ik_llama.cpp drafts on.
      if (line.rest.find("translated") == std::string_view::npos) {
        collector_.notice(word.id, line_number_, word.meaning);
      } else {
        collector_.notice("draft_translated", line_number_,
                          "the drafter has another vocabulary: its tokens are translated");
      }
      return true;
    case Kind::fault:
      line.source->faulted = true;
      collector_.notice(word.id, line_number_, word.meaning);
      return true;
    case Kind::notice:
      collector_.notice(word.id, line_number_, word.meaning);
      return true;
  }
  return false;
}

}  // namespace lockstep::lab::log
