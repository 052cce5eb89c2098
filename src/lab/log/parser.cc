#include "lab/log/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep::lab::log {
namespace {

// Numbers of slots and servers in one file that are kept apart; more are one damaged line each.
constexpr size_t kMaxSlots = 4096, kMaxSources = 256;
constexpr size_t kMaxPositions = 64;
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

std::string_view first_word(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t'\"");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_first_of(" \t,'\"|", begin) - begin);
}

void add_witness(Request& request, Witness witness) {
  if (std::find(request.witnesses.begin(), request.witnesses.end(), witness) ==
      request.witnesses.end()) {
    request.witnesses.push_back(witness);
  }
}

void set_cached(Request& request, int64_t cached) {
  if (request.cached_tokens || cached < 0) return;
  request.cached_tokens = cached;
  request.cached_from = CachedFrom::log;
  add_witness(request, cached > 0 ? Witness::cached_tokens : Witness::cached_zero);
}

}  // namespace

Parser::Parser(Collector& collector) : collector_(collector), finder_(texts_of(words())) {}

void Parser::begin_file() {
  sources_.clear();
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
  const size_t task_at = text.find("| task ");
  line.prefix = read_prefix(
      word.kind == Kind::timing_head && task_at != std::string_view::npos ? text : line.left, text);
  if (wrapper) {
    if (wrapper->time_us) line.prefix.time_us = wrapper->time_us;
    if (wrapper->slot) line.prefix.slot = wrapper->slot;
    if (wrapper->task) line.prefix.task = wrapper->task;
  }
  const bool vllm = word.kind == Kind::vllm_spec || word.kind == Kind::vllm_engine ||
                    word.kind == Kind::vllm_limit || word.text.starts_with("vLLM");
  line.source = &source_of(line.prefix.source, vllm);
  if (text.find("] ") != std::string_view::npos && text.find(" | tid=") != std::string_view::npos) {
    line.source->keyed_lines = true;
  }
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
  return found->second;
}

// A new server writes where an older one did.
void Parser::start(Source& source, const Prefix& prefix) {
  close_all(source);
  Life made;
  made.source = std::string(prefix.source);
  made.engine = life(source).engine;
  made.first_line = line_number_;
  made.started_here = true;
  source = Source{};
  source.life = collector_.add_life(std::move(made));
  source.last_us = prefix.time_us;
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

Parser::Open& Parser::open_for(Line& line) {
  Source& source = *line.source;
  int64_t number = slot_number(line);
  if (source.slots.size() >= kMaxSlots && source.slots.find(number) == source.slots.end())
    number = -1;
  Slot& slot = source.slots[number];
  const int64_t task = line.prefix.slot ? line.prefix.task.value_or(-1) : source.head_task;
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
  return found != line.source->slots.end() && found->second.open ? &*found->second.open : nullptr;
}

void Parser::close_all(Source& source) {
  for (auto& [number, slot] : source.slots) close(source, slot);
}

void Parser::close(Source& source, Slot& slot) {
  if (!slot.open) return;
  Open open = std::move(*slot.open);
  slot.open.reset();
  Request& r = open.request;
  if (!r.decode_ms || !r.generated_tokens) {
    if (open.launched) collector_.count_without_timing();
    return;
  }
  if (source.keyed_lines) life(source).engine = "ik_llama.cpp";
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
  // The statistics lines count this request alone where their tokens are its own.
  if (r.draft && open.stat_seen && open.stat_complete && !r.other_slot.value_or(true) &&
      open.stat_drafted == r.draft->drafted && open.stat_accepted == r.draft->accepted) {
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

bool Parser::eval_time(Line& line, bool prompt) {
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
  Source& source = *line.source;
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
  r.generated_tokens = runs ? n + 1 : n;  // llama_perf's "runs" are decode passes
  r.decode_ms = ms;
  r.decode_rate_printed = printed;
  r.decode_per_token_printed = per_token;
  open->timed_us = line.prefix.time_us;
  return true;
}

bool Parser::positions(std::string_view text, std::vector<double>& out) {
  Scan scan(text);
  scan.word("(");
  if (scan.maybe(")")) return scan.ok();
  do {
    double share = 0;
    if (!scan.number(share).ok() || share < 0 || share > 1 || out.size() >= kMaxPositions)
      return false;
    out.push_back(share);
  } while (scan.maybe(","));
  return scan.word(")").ok();
}

bool Parser::draft_line(Line& line) {
  Scan scan(line.rest);
  Drafting draft;
  draft.line = scan.maybe("rate") ? DraftLine::gen1 : DraftLine::gen2;
  double ratio = 0;
  scan.word("=").number(ratio).word("(").integer(draft.accepted).word("accepted").word("/");
  scan.integer(draft.drafted).word("generated").word(")");
  if (!scan.ok()) return false;
  draft.printed_ratio = ratio;
  double mean = 0;
  if (scan.maybe(", mean acceptance length =")) {
    draft.line = DraftLine::gen2b;
    if (!scan.number(mean).ok()) return false;
    draft.printed_mean = mean;
    if (scan.maybe(", acceptance rate per position =") &&
        !positions(scan.rest(), draft.per_position)) {
      return false;
    }
  } else if (scan.maybe(", mean len =")) {
    draft.line = DraftLine::gen3;
    if (!scan.number(mean).ok()) return false;
    draft.printed_mean = mean;
  }
  // A fork's further fields stay unread. Without a timing before it the line has no request.
  Open* open = open_if(line);
  if (open && open->request.decode_ms) open->request.draft = std::move(draft);
  return true;
}

bool Parser::statistics(Line& line) {
  const size_t name_at = line.left.rfind("statistics ");
  if (name_at == std::string_view::npos) return false;
  std::string_view name = first_word(line.left.substr(name_at + 11));
  while (name.ends_with(':')) name.remove_suffix(1);
  Scan scan(line.rest);
  int64_t begins = 0, calls = 0, drafts = 0, accepted_drafts = 0;
  Statistics now;
  scan.integer(begins).integer(calls).integer(now.steps).word(", #gen drafts =").integer(drafts);
  scan.word(", #acc drafts =")
      .integer(accepted_drafts)
      .word(", #gen tokens =")
      .integer(now.drafted);
  scan.word(", #acc tokens =").integer(now.accepted);
  if (!scan.ok()) return false;
  Scan times(scan.rest());
  double begin_ms = 0;
  times.past("dur(b,g,a) =").number(begin_ms).word(",").number(now.draft_ms);
  if (!times.ok()) now.draft_ms = 0;
  Source& source = *line.source;
  const auto known = source.statistics.find(name);
  const bool first = known == source.statistics.end();
  if (first && source.statistics.size() >= kMaxPositions) return true;
  const Statistics before = first ? Statistics{} : known->second;
  source.statistics.insert_or_assign(std::string(name), now);
  if (now.drafted < before.drafted || now.steps < before.steps || now.accepted < before.accepted) {
    collector_.contradiction("statistics", line_number_, -1,
                             fmt::format("the running counts of {} go back: {} drafted after {}",
                                         shorten(name), now.drafted, before.drafted));
    return true;
  }
  Open* open = open_if(line);
  if (!open || !open->request.decode_ms) return true;
  open->stat_seen = true;
  // The first of a life that began before the file counts more than this request.
  if (first && !life(source).started_here) open->stat_complete = false;
  if (now.drafted > before.drafted) open->stat_steps += now.steps - before.steps;
  open->stat_drafted += now.drafted - before.drafted;
  open->stat_accepted += now.accepted - before.accepted;
  open->stat_draft_ms += now.draft_ms - before.draft_ms;
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

bool Parser::spec_limits(Line& line) {
  Life& owner = life(*line.source);
  if (owner.speculation.empty()) return true;
  Speculation& spec = owner.speculation.back();
  // ", n_min=" and ", p_min=" follow it (ngram-mod has n_match= before).
  Scan scan(line.rest);
  int64_t n_max = 0, n_min = 0;
  double p_min = 0;
  if (!scan.integer(n_max).ok()) return false;
  if (scan.maybe(", n_min=") && scan.integer(n_min).ok()) spec.n_min = n_min;
  if (scan.maybe(", p_min=") && scan.number(p_min).ok()) spec.p_min = p_min;
  spec.n_max = n_max;
  return true;
}

bool Parser::vllm_spec(Line& line) {
  Interval interval;
  interval.line = line_number_;
  interval.life = line.source->life;
  Drafting& d = interval.draft;
  double mean = 0, percent = 0;
  Scan scan(line.rest);
  scan.word("Mean acceptance length:").number(mean).word(", Accepted throughput:");
  scan.number(interval.accepted_per_s).word("tokens/s, Drafted throughput:");
  scan.number(interval.drafted_per_s).word("tokens/s, Accepted:").integer(d.accepted);
  scan.word("tokens, Drafted:").integer(d.drafted).word("tokens");
  if (!scan.ok()) return false;
  d.printed_mean = mean;
  if (scan.maybe(", Per-position acceptance rate:")) {
    do {
      // The next field begins with a comma, too.
      Scan ahead = scan;
      double share = 0;
      if (!ahead.number(share).ok()) break;
      if (share < 0 || share > 1) return false;
      scan = ahead;
      if (d.per_position.size() >= kMaxPositions) return false;
      d.per_position.push_back(share);
    } while (scan.maybe(", "));
  } else {
    scan.maybe(",");
  }
  if (scan.maybe("Avg Draft acceptance rate:") && scan.number(percent).ok()) {
    d.printed_ratio = percent / 100;
    d.ratio_half_unit = 0.0005;
  }
  collector_.add(std::move(interval));
  return true;
}

bool Parser::vllm_engine(Line& line) {
  double rate = 0;
  int64_t running = 0;
  Scan scan(line.rest);
  if (!scan.number(rate).word("tokens/s, Running:").integer(running).ok()) return false;
  Life& owner = life(*line.source);
  if (rate > 0) {
    const auto n = static_cast<double>(++owner.generation_lines);
    const double mean = owner.generation_tok_s_mean.value_or(0);
    owner.generation_tok_s_mean = mean + (rate - mean) / n;
  }
  if (running > 1) {
    collector_.notice("several_requests", line_number_,
                      "several requests ran at once: these rates are not those of one stream");
  }
  return true;
}

bool Parser::understand(const Word& word, Line& line) {
  Source& source = *line.source;
  switch (word.kind) {
    case Kind::timing_head:
      if (!line.prefix.slot || !line.prefix.task) return false;
      source.head_slot = *line.prefix.slot;
      source.head_task = *line.prefix.task;
      return true;
    case Kind::eval_time: {
      if (line.prefix.slot) {
        source.head_slot = *line.prefix.slot;
        source.head_task = line.prefix.task.value_or(-1);
      }
      const std::string_view left = line.left.substr(0, line.left.find_last_not_of(' ') + 1);
      return eval_time(line, left.ends_with("prompt"));
    }
    case Kind::total_time: {
      double ms = 0;
      int64_t n = 0;
      if (!Scan(line.rest).word("=").number(ms).word("ms").word("/").integer(n).ok()) return false;
      Open* open = open_if(line);
      if (!open || !open->request.decode_ms) return true;
      open->request.total_ms = ms;
      // llama_perf's total counts passes and no tokens.
      if (slot_number(line) >= 0) open->request.total_tokens = n;
      return true;
    }
    case Kind::graphs_reused: {
      int64_t n = 0;
      if (!Scan(line.rest).integer(n).ok()) return false;
      if (Open* open = open_if(line)) open->request.graphs_reused = n;
      return true;
    }
    case Kind::draft_line:
      return draft_line(line);
    case Kind::positions: {
      std::vector<double> shares;
      if (!positions(line.rest, shares)) return false;
      Open* open = open_if(line);
      if (open && open->request.draft) open->request.draft->per_position = std::move(shares);
      return true;
    }
    case Kind::statistics:
      return statistics(line);
    case Kind::selected_slot:
      return selected(line);
    case Kind::processing: {
      if (!line.prefix.slot) return false;
      source.ready = true;
      if (source.slots.size() >= kMaxSlots && !source.slots.contains(*line.prefix.slot))
        return true;
      Slot& slot = source.slots[*line.prefix.slot];
      close(source, slot);
      Open& open = open_for(line);
      open.launched = true;
      open.launched_us = line.prefix.time_us;
      open.request.other_slot = false;
      for (auto& [number, other] : source.slots) {
        if (number == *line.prefix.slot || !other.open || !other.open->launched) continue;
        if (other.open->request.decode_ms) continue;  // done, its release is still to come
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
    case Kind::new_prompt: {
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
    case Kind::cached: {
      int64_t n = 0;
      if (!Scan(line.rest).integer(n).ok()) {
        const size_t p0 = line.text.find(" p0=");
        if (p0 == std::string_view::npos || !Scan(line.text.substr(p0 + 4)).integer(n).ok())
          return false;
      }
      set_cached(open_for(line).request, n);
      return true;
    }
    case Kind::evaluate_one:
      return true;
    case Kind::checkpoint_restored:
      add_witness(open_for(line).request, Witness::checkpoint);
      return true;
    case Kind::reprocessing:
      add_witness(open_for(line).request, Witness::reprocessed);
      return true;
    case Kind::stop_processing: {
      Scan scan(line.rest);
      int64_t n = 0, truncated = 0;
      if (!scan.maybe("n_tokens =") && !scan.maybe("n_past =")) return false;
      if (!scan.integer(n).word(", truncated =").integer(truncated).ok()) return false;
      Open* open = open_if(line);
      if (!open) return true;
      open->request.end_tokens = n;
      open->request.truncated = truncated != 0;
      close(source, source.slots[open->request.slot]);
      return true;
    }
    case Kind::slot_released:
      if (Open* open = open_if(line)) close(source, source.slots[open->request.slot]);
      return true;
    case Kind::start_mark:
      return true;
    case Kind::ready_mark:
      source.ready = true;
      return true;
    case Kind::build: {
      Life& owner = life(source);
      if (owner.build.empty()) owner.build = std::string(first_word(line.rest).substr(0, 80));
      return true;
    }
    case Kind::slots_init: {
      int64_t n = 0;
      if (!Scan(line.rest).integer(n).ok()) return false;
      life(source).n_slots = n;
      return true;
    }
    case Kind::spec_add: {
      Life& owner = life(source);
      const std::string_view type = line.rest.substr(0, line.rest.find('\''));
      if (type.empty() || type.size() > 40) return false;
      if (owner.speculation.size() < kMaxPositions)
        owner.speculation.push_back({std::string(type), {}, {}, {}, {}});
      return true;
    }
    case Kind::spec_limits:
      return spec_limits(line);
    case Kind::spec_size_m: {
      int64_t n = 0;
      if (!Scan(line.rest).integer(n).ok()) return false;
      Life& owner = life(source);
      if (!owner.speculation.empty()) owner.speculation.back().n_max = n;
      return true;
    }
    case Kind::spec_clamp: {
      int64_t block = 0, to = 0;
      Scan scan(line.rest);
      scan.past("trained block size").integer(block).past("clamping to").integer(to);
      if (!scan.ok()) return false;
      Life& owner = life(source);
      if (!owner.speculation.empty()) owner.speculation.back().clamped_to = to;
      collector_.notice(
          "draft_clamped", line_number_,
          fmt::format("the drafter was trained for {} tokens: drafts are cut to {}", block, to));
      return true;
    }
    case Kind::vllm_spec:
      return vllm_spec(line);
    case Kind::vllm_engine:
      return vllm_engine(line);
    case Kind::vllm_limit: {
      int64_t n = 0;
      if (!Scan(line.rest).integer(n).ok()) return false;
      Life& owner = life(source);
      if (owner.speculation.empty()) owner.speculation.push_back({"", n, {}, {}, {}});
      return true;
    }
    case Kind::engine_ik:
      life(source).engine = "ik_llama.cpp";
      return true;
    case Kind::notice:
      collector_.notice(word.id, line_number_, word.meaning);
      return true;
  }
  return false;
}

namespace {

void add_file(Collector& collector, const Parser& parser, std::string path,
              const LineCounts& lines) {
  FileFacts facts;
  facts.path = std::move(path);
  facts.lines = lines;
  facts.used = parser.used();
  facts.garbled = parser.garbled();
  facts.garbled_lines = parser.garbled_lines();
  collector.add_file(std::move(facts));
}

}  // namespace

Analysis read_logs(std::span<const std::filesystem::path> files, void (*progress)(int64_t bytes)) {
  Collector collector;
  Parser parser(collector);
  for (const std::filesystem::path& path : files) {
    parser.begin_file();
    FilePieces pieces(path);
    LineCutter cutter;
    const auto each = [&parser](std::string_view line) { parser.line(line); };
    for (std::string_view piece = pieces.next(); !piece.empty(); piece = pieces.next()) {
      cutter.feed(piece, each);
      if (progress) progress(cutter.counts().bytes);
    }
    cutter.finish(each);
    parser.end_file();
    add_file(collector, parser, path.string(), cutter.counts());
  }
  return collector.finish();
}

Analysis read_log_text(std::string_view text, std::string name) {
  Collector collector;
  Parser parser(collector);
  parser.begin_file();
  LineCutter cutter;
  const auto each = [&parser](std::string_view line) { parser.line(line); };
  cutter.feed(text, each);
  cutter.finish(each);
  parser.end_file();
  add_file(collector, parser, std::move(name), cutter.counts());
  return collector.finish();
}

}  // namespace lockstep::lab::log
