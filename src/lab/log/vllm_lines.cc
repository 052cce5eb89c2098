// vLLM's metrics lines: intervals over all requests.
#include "lab/log/parser.h"

namespace lockstep::lab::log {
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

bool Parser::vllm_limit(Line& line) {
  int64_t n = 0;
  if (!Scan(line.rest).integer(n).ok()) return false;
  Life& owner = life(*line.source);
  if (owner.speculation.empty()) owner.speculation.push_back({"", n, {}, {}, {}});
  return true;
}

}  // namespace lockstep::lab::log
