#include "lab/log_json.h"

#include <cmath>

#include "base/error.h"
#include "json_stream.h"
#include "lab/log/accounting.h"
#include "lab/log/names.h"

namespace lockstep::app {
namespace {

using namespace lab::log;

template <typename T>
void optional(JsonStream& out, std::string_view key, const std::optional<T>& value) {
  out.key(key);
  if (value) {
    out.value(*value);
  } else {
    out.value(nullptr);
  }
}
void text(JsonStream& out, std::string_view key, std::string_view value) {
  out.key(key).value(std::string_view(escape(value, 4000)));
}

void drafting(JsonStream& out, const Drafting& d) {
  if (d.steps.known()) {
    out.key("steps").value(d.steps.low);
  } else {
    out.key("steps").value(nullptr);
  }
  out.key("steps_low").value(d.steps.low);
  out.key("steps_high").value(d.steps.high);
  out.key("drafted").value(d.drafted);
  out.key("accepted").value(d.accepted);
  out.key("per_position");
  if (d.per_position.empty()) {
    out.value(nullptr);
  } else {
    out.values(d.per_position);
  }
  std::optional<double> mean, length;
  if (d.steps.known()) {
    mean = 1 + static_cast<double>(d.accepted) / static_cast<double>(d.steps.low);
    length = static_cast<double>(d.drafted) / static_cast<double>(d.steps.low);
  }
  optional(out, "mean_accepted_len", mean);
  optional(out, "mean_drafted_len", length);
  optional(out, "printed_ratio", d.printed_ratio);
  optional(out, "printed_mean", d.printed_mean);
  text(out, "line", name_of(d.line));
}

void request(JsonStream& out, const Request& r) {
  out.begin('{');
  out.key("line").value(r.line);
  out.key("server").value(r.life);
  out.key("ordinal").value(r.ordinal);
  out.key("slot").value(r.slot);
  out.key("task").value(r.task);
  optional(out, "prompt_tokens", r.prompt_tokens);
  optional(out, "cached_tokens", r.cached_tokens);
  out.key("cached_from");
  if (r.cached_from == CachedFrom::nowhere) {
    out.value(nullptr);
  } else {
    out.value(name_of(r.cached_from));
  }
  optional(out, "evaluated_tokens", r.evaluated_tokens);
  optional(out, "generated_tokens", r.generated_tokens);
  optional(out, "prompt_ms", r.prompt_ms);
  std::optional<double> prompt_rate, rate, all, per_step, ms;
  if (r.prompt_ms && r.evaluated_tokens && *r.prompt_ms > 0) {
    prompt_rate = static_cast<double>(*r.evaluated_tokens) * 1000 / *r.prompt_ms;
  }
  optional(out, "prompt_tok_s", prompt_rate);
  optional(out, "decode_ms", r.decode_ms);
  if (r.generated_tokens && r.decode_ms) {
    rate = decode_rate(*r.generated_tokens, *r.decode_ms);
    if (*r.decode_ms > 0) all = static_cast<double>(*r.generated_tokens) * 1000 / *r.decode_ms;
  }
  optional(out, "decode_tok_s", rate);
  optional(out, "decode_tok_s_all", all);
  optional(out, "decode_tok_s_printed", r.decode_rate_printed);
  text(out, "denominator", name_of(r.denominator));
  const std::optional<int64_t> steps = decode_steps(r);
  optional(out, "steps", steps);
  if (steps && *steps > 0 && *r.decode_ms > 0) {
    per_step = static_cast<double>(*r.generated_tokens - 1) / static_cast<double>(*steps);
    ms = *r.decode_ms / static_cast<double>(*steps);
  }
  optional(out, "tokens_per_step", per_step);
  optional(out, "ms_per_step", ms);
  out.key("draft");
  if (r.draft) {
    out.begin('{');
    drafting(out, *r.draft);
    optional(out, "draft_ms", r.draft_ms);
    out.end('}');
  } else {
    out.value(nullptr);
  }
  optional(out, "total_ms", r.total_ms);
  optional(out, "end_tokens", r.end_tokens);
  optional(out, "truncated", r.truncated);
  optional(out, "graphs_reused", r.graphs_reused);
  optional(out, "warm", is_warm(r));
  optional(out, "similarity", r.similarity);
  out.key("witnesses").begin('[');
  for (const Witness witness : r.witnesses) out.value(name_of(witness));
  out.end(']');
  optional(out, "beside_other_slot", r.other_slot);
  out.key("after_fault").value(r.after_fault);
  out.end('}');
}

void totals(JsonStream& out, const Totals& t) {
  out.begin('{');
  out.key("requests").value(t.requests);
  out.key("cold").value(t.cold);
  out.key("warm").value(t.warm);
  out.key("unknown_warmth").value(t.unknown_warmth);
  out.key("beside_other_slots").value(t.beside_other_slots);
  out.key("after_fault").value(t.after_fault);
  out.key("evaluated_tokens").value(t.prompt_tokens_evaluated);
  out.key("cached_tokens").value(t.cached_tokens);
  out.key("prompt_ms").value(t.prompt_ms);
  optional(out, "prompt_tok_s", t.prompt_tok_s());
  out.key("generated_tokens").value(t.generated_tokens);
  out.key("decode_ms").value(t.decode_ms);
  optional(out, "decode_tok_s", t.decode_tok_s());
  optional(out, "decode_tok_s_all", t.decode_tok_s_all());
  out.key("step_requests").value(t.step_requests);
  out.key("steps").value(t.steps);
  optional(out, "tokens_per_step", t.tokens_per_step());
  optional(out, "ms_per_step", t.ms_per_step());
  out.key("draft");
  if (t.draft_requests == 0) {
    out.value(nullptr);
  } else {
    out.begin('{');
    out.key("requests").value(t.draft_requests);
    out.key("steps_low").value(t.verify_low);
    out.key("steps_high").value(t.verify_high);
    out.key("drafted").value(t.drafted);
    out.key("accepted").value(t.accepted);
    optional(out, "acceptance", t.acceptance());
    optional(out, "mean_accepted_len", t.mean_accepted_len());
    out.key("per_position");
    if (t.position_requests > 0) {
      out.values(t.per_position());
    } else {
      out.value(nullptr);
    }
    out.key("position_requests").value(t.position_requests);
    std::optional<double> cost;
    if (t.draft_ms_drafted > 0) cost = t.draft_ms / static_cast<double>(t.draft_ms_drafted);
    optional(out, "draft_ms_per_token", cost);
    out.end('}');
  }
  out.end('}');
}

void fit(JsonStream& out, std::string_view key, const Fit& f) {
  out.key(key).begin('{');
  out.key("n").value(f.n());
  optional(out, "correlation", f.correlation());
  optional(out, "slope", f.slope());
  optional(out, "slope_error", f.slope_error());
  out.end('}');
}

void life(JsonStream& out, const Life& l) {
  out.begin('{');
  text(out, "engine", l.engine);
  text(out, "build", l.build);
  text(out, "source", l.source);
  out.key("first_line").value(l.first_line);
  out.key("started_here").value(l.started_here);
  out.key("requests").value(l.requests);
  optional(out, "n_slots", l.n_slots);
  out.key("speculation").begin('[');
  for (const Speculation& s : l.speculation) {
    out.begin('{');
    text(out, "type", s.type);
    optional(out, "n_max", s.n_max);
    optional(out, "n_min", s.n_min);
    optional(out, "p_min", s.p_min);
    optional(out, "clamped_to", s.clamped_to);
    out.end('}');
  }
  out.end(']');
  out.key("draft_length").begin('{');
  optional(out, "effective", l.draft_length);
  out.key("proved").value(l.draft_length_proved);
  text(out, "how", l.draft_length_how);
  out.end('}');
  optional(out, "generation_tok_s_mean", l.generation_tok_s_mean);
  out.end('}');
}

}  // namespace

void print_log_json(const Analysis& a) {
  JsonStream out;
  text(out, "schema", "lockstep.lab.log/1");
  out.key("generation").begin('{');
  text(out, "text", generation_text(a));
  int64_t lines[5] = {}, denominators[5] = {};
  for (const Life& l : a.lives) {
    for (size_t i = 0; i < 5; ++i)
      lines[i] += l.draft_lines[i], denominators[i] += l.denominators[i];
  }
  out.key("draft_lines").begin('{');
  for (size_t i = 1; i < 5; ++i) out.key(name_of(static_cast<DraftLine>(i))).value(lines[i]);
  out.end('}');
  out.key("denominators").begin('{');
  for (size_t i = 0; i < 5; ++i)
    out.key(name_of(static_cast<Denominator>(i))).value(denominators[i]);
  out.end('}');
  out.end('}');
  out.key("files").begin('[');
  for (const FileFacts& file : a.files) {
    out.begin('{');
    text(out, "path", file.path);
    out.key("bytes").value(file.lines.bytes);
    out.key("lines").value(file.lines.lines);
    out.key("used").value(file.used);
    out.key("garbled").value(file.garbled);
    out.key("garbled_lines").values(file.garbled_lines);
    out.key("cut").value(file.lines.cut);
    out.key("with_nul").value(file.lines.with_nul);
    out.key("crlf").value(file.lines.crlf);
    out.key("byte_order_mark").value(file.lines.byte_order_mark);
    out.key("unfinished").value(file.lines.unfinished);
    out.end('}');
  }
  out.end(']');
  out.key("servers").begin('[');
  for (const Life& l : a.lives) life(out, l);
  out.end(']');
  out.key("requests_total").value(a.request_count);
  out.key("without_timing").value(a.without_timing);
  out.key("requests").begin('[');
  for (const Request& r : a.requests) request(out, r);
  out.end(']');
  out.key("intervals_total").value(a.interval_count);
  out.key("intervals").begin('[');
  for (const Interval& i : a.intervals) {
    out.begin('{');
    out.key("line").value(i.line);
    out.key("server").value(i.life);
    out.key("accepted_per_s").value(i.accepted_per_s);
    out.key("drafted_per_s").value(i.drafted_per_s);
    out.key("draft").begin('{');
    drafting(out, i.draft);
    out.end('}');
    out.end('}');
  }
  out.end(']');
  out.key("totals");
  totals(out, a.totals);
  out.key("depths").begin('{');
  out.key("buckets").begin('[');
  for (const Bucket& b : a.depths.buckets()) {
    out.begin('{');
    out.key("from").value(b.from);
    out.key("to").value(b.to);  // null: no end
    out.key("totals");
    totals(out, b.totals);
    out.end('}');
  }
  out.end(']');
  fit(out, "tok_s_over_context", a.depths.rate());
  fit(out, "ms_per_step_over_context", a.depths.step_ms());
  fit(out, "acceptance_over_context", a.depths.acceptance());
  fit(out, "tok_s_over_acceptance", a.depths.rate_by_acceptance());
  out.end('}');
  out.key("contradictions_total").value(a.contradiction_count);
  out.key("contradictions").begin('[');
  for (const Contradiction& c : a.contradictions) {
    out.begin('{');
    text(out, "id", c.id);
    out.key("line").value(c.line);
    if (c.request < 0) {
      out.key("request").value(nullptr);
    } else {
      out.key("request").value(c.request);
    }
    text(out, "text", c.text);
    out.end('}');
  }
  out.end(']');
  out.key("notices").begin('[');
  for (const Notice& n : a.notices) {
    out.begin('{');
    text(out, "id", n.id);
    out.key("line").value(n.line);
    text(out, "text", n.text);
    out.end('}');
  }
  out.end(']');
  out.finish();
}

}  // namespace lockstep::app
