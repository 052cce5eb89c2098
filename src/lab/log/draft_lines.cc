// What llama-server and ik_llama.cpp print about drafts, by generation (docs/lab-log.md).
#include <fmt/format.h>

#include "base/error.h"
#include "lab/log/parser.h"

namespace lockstep::lab::log {
namespace {

// "(0.716, 0.540)": the share of the verify steps that accepted each place of a draft.
bool read_positions(std::string_view text, std::vector<double>& out) {
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

// Generations 1 and 2: "[ rate] = R ( A accepted / G generated)".
bool read_counts(Scan& scan, Drafting& draft) {
  draft.line = scan.maybe("rate") ? DraftLine::gen1 : DraftLine::gen2;
  double ratio = 0;
  scan.word("=").number(ratio).word("(").integer(draft.accepted).word("accepted").word("/");
  scan.integer(draft.drafted).word("generated").word(")");
  if (scan.ok()) draft.printed_ratio = ratio;
  return scan.ok();
}

bool read_mean(Scan& scan, Drafting& draft) {
  double mean = 0;
  if (!scan.number(mean).ok()) return false;
  draft.printed_mean = mean;
  return true;
}

// Generation 2b: the mean, and the positions on the same line.
bool read_gen2b(Scan& scan, Drafting& draft) {
  draft.line = DraftLine::gen2b;
  if (!read_mean(scan, draft)) return false;
  return !scan.maybe(", acceptance rate per position =") ||
         read_positions(scan.rest(), draft.per_position);
}

// Generation 3: the mean; the positions have a line of their own.
bool read_gen3(Scan& scan, Drafting& draft) {
  draft.line = DraftLine::gen3;
  return read_mean(scan, draft);
}

}  // namespace

bool Parser::draft_line(Line& line) {
  Scan scan(line.rest);
  Drafting draft;
  if (!read_counts(scan, draft)) return false;
  if (scan.maybe(", mean acceptance length =")) {
    if (!read_gen2b(scan, draft)) return false;
  } else if (scan.maybe(", mean len =")) {
    if (!read_gen3(scan, draft)) return false;
  }
  // A fork's further fields stay unread. Without a timing before it the line has no request.
  Open* open = open_if(line);
  if (open && open->request.decode_ms) open->request.draft = std::move(draft);
  return true;
}

bool Parser::position_line(Line& line) {
  std::vector<double> shares;
  if (!read_positions(line.rest, shares)) return false;
  Open* open = open_if(line);
  if (open && open->request.draft) open->request.draft->per_position = std::move(shares);
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
  // ik_llama.cpp counts for each slot, llama-server for all of them.
  const std::string key =
      source.keyed_lines ? fmt::format("{} {}", name, slot_number(line)) : std::string(name);
  const auto known = source.statistics.find(key);
  const bool first = known == source.statistics.end();
  if (first && source.statistics.size() >= kMaxPositions) return true;
  const Statistics before = first ? Statistics{} : known->second;
  source.statistics.insert_or_assign(key, now);
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

bool Parser::spec_add(Line& line) {
  Life& owner = life(*line.source);
  const std::string_view type = line.rest.substr(0, line.rest.find('\''));
  if (type.empty() || type.size() > 40) return false;
  if (owner.speculation.size() < kMaxPositions) {
    owner.speculation.push_back({std::string(type), {}, {}, {}, {}});
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

bool Parser::spec_size_m(Line& line) {
  int64_t n = 0;
  if (!Scan(line.rest).integer(n).ok()) return false;
  Life& owner = life(*line.source);
  if (!owner.speculation.empty()) owner.speculation.back().n_max = n;
  return true;
}

bool Parser::spec_clamp(Line& line) {
  int64_t block = 0, to = 0;
  Scan scan(line.rest);
  scan.past("trained block size").integer(block).past("clamping to").integer(to);
  if (!scan.ok()) return false;
  Life& owner = life(*line.source);
  if (!owner.speculation.empty()) owner.speculation.back().clamped_to = to;
  collector_.notice(
      "draft_clamped", line_number_,
      fmt::format("the drafter was trained for {} tokens: drafts are cut to {}", block, to));
  return true;
}

// ik_llama.cpp: "draft size 6 exceeds max 2, truncating", where less than a draft is left to
// generate. Its statistics count the whole draft.
bool Parser::draft_cut(Line& line) {
  const size_t size_at = line.left.rfind("draft size ");
  if (size_at == std::string_view::npos) return true;  // another size of something else
  int64_t size = 0, limit = 0;
  if (!Scan(line.left.substr(size_at + 11)).integer(size).ok()) return false;
  if (!Scan(line.rest).integer(limit).ok() || limit < 0 || limit > size) return false;
  if (Open* open = open_if(line)) open->cut += size - limit;
  return true;
}

}  // namespace lockstep::lab::log
