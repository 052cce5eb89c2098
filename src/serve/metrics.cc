#include <fmt/format.h>
#include <unistd.h>

#include <fstream>

#include "serve/app.h"

namespace lockstep::serve {
namespace {

class Text {
 public:
  template <typename Number>
  void add(std::string_view name, std::string_view type, std::string_view help, Number value) {
    head(name, type, help);
    out_ += fmt::format("{} {}\n", name, value);
  }
  void head(std::string_view name, std::string_view type, std::string_view help) {
    out_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  }
  template <typename Of>
  void labelled(std::string_view name, std::string_view label, const Of& of, int64_t value) {
    out_ += fmt::format("{}{{{}=\"{}\"}} {}\n", name, label, of, value);
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& h) {
    head(name, "histogram", help);
    int64_t below = 0;
    for (size_t i = 0; i < Histogram::kBounds.size(); ++i) {
      below += h.counts[i];
      out_ += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, Histogram::kBounds[i], below);
    }
    below += h.counts.back();
    out_ += fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, below,
                        h.sum);
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

double ratio(double a, double b) {
  return b > 0 ? a / b : 0.0;
}

// Of this process; 0: the system does not say.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

std::string metrics_text(const Status& status, const HttpServer::Status& http) {
  const Counters& c = status.counters;
  int64_t processing = 0, paused = 0;
  for (const SlotStatus& slot : status.slots) {
    processing += slot.processing ? 1 : 0;
    paused += slot.paused ? 1 : 0;
  }
  Text text;
  text.add("llamacpp:prompt_tokens_total", "counter", "Prompt tokens computed.", c.prompt_tokens);
  text.add("llamacpp:prompt_seconds_total", "counter", "Time to the first token, of all answers.",
           c.prompt_seconds);
  text.add("llamacpp:tokens_predicted_total", "counter", "Tokens generated.", c.generated_tokens);
  text.add("llamacpp:tokens_predicted_seconds_total", "counter",
           "Time from the first tokens to the last, of all answers.", c.generated_seconds);
  text.add("llamacpp:n_decode_total", "counter", "Passes of the model.", c.passes);
  text.add("llamacpp:n_tokens_max", "counter", "Most tokens that a slot remembered.", c.longest);
  text.add("llamacpp:n_busy_slots_per_decode", "counter", "Slots in a pass, on average.",
           ratio(static_cast<double>(c.busy_slot_passes), static_cast<double>(c.passes)));
  text.add("llamacpp:prompt_tokens_seconds", "gauge", "Prompt tokens a second, on average.",
           ratio(static_cast<double>(c.prompt_tokens), c.prompt_seconds));
  text.add("llamacpp:predicted_tokens_seconds", "gauge",
           "Tokens a second after the first of an answer, on average.",
           ratio(static_cast<double>(c.generated_after_first), c.generated_seconds));
  text.add("llamacpp:requests_processing", "gauge", "Sequences that have a slot.", processing);
  text.add("llamacpp:requests_deferred", "gauge", "Sequences that wait for one.", status.waiting);
  text.add("llamacpp:spec_decode_num_draft_tokens_total", "counter", "Tokens drafted.", c.drafted);
  text.add("llamacpp:spec_decode_num_accepted_tokens_total", "counter", "Drafted tokens accepted.",
           c.accepted);
  text.add("llamacpp:spec_decode_num_drafts_total", "counter", "Steps with a draft.", c.drafts);
  if (!c.accepted_at.empty()) {
    constexpr std::string_view kName = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total";
    text.head(kName, "counter", "Drafted tokens accepted, by their place in the draft.");
    for (size_t i = 0; i < c.accepted_at.size(); ++i) {
      text.labelled(kName, "position", i, c.accepted_at[i]);
    }
  }
  text.add("llamacpp:prompt_tokens_cached_total", "counter",
           "Prompt tokens taken over from an earlier request.", c.cached_tokens);
  if (!c.sources.empty()) {
    constexpr std::string_view kDrafted = "lockstep:draft_tokens_total",
                               kAccepted = "lockstep:draft_tokens_accepted_total";
    text.head(kDrafted, "counter", "Tokens drafted, by source.");
    for (const auto& [name, source] : c.sources) {
      text.labelled(kDrafted, "source", name, source.drafted);
    }
    text.head(kAccepted, "counter", "Drafted tokens accepted, by source.");
    for (const auto& [name, source] : c.sources) {
      text.labelled(kAccepted, "source", name, source.accepted);
    }
  }
  text.histogram("lockstep:time_to_first_token_seconds",
                 "From a request's arrival to a sequence's first tokens.", c.first_token);
  text.histogram("lockstep:inter_token_seconds", "From token to token of a sequence.",
                 c.between_tokens);
  text.add("lockstep:answers_finished_total", "counter", "Sequences that came to their end.",
           c.finished);
  text.add("lockstep:answers_cancelled_total", "counter", "Sequences whose client went away.",
           c.cancelled);
  text.add("lockstep:answers_failed_total", "counter", "Sequences that ended in an error.",
           c.failed);
  text.add("lockstep:slots_paused", "gauge", "Sequences whose client reads too slowly.", paused);
  text.add("lockstep:kv_bytes", "gauge", "Bytes of KV pages in use.", status.kv_bytes);
  text.add("lockstep:kv_positions", "gauge", "Positions of the KV pool.", status.pool_positions);
  text.add("lockstep:kv_positions_reserved", "gauge", "Positions reserved by running sequences.",
           status.reserved_positions);
  text.add("lockstep:kv_positions_kept", "gauge", "Positions that idle slots remember.",
           status.kept_positions);
  text.add("lockstep:http_connections", "gauge", "Open connections.", http.open);
  text.add("lockstep:http_answers_total", "counter", "Answers to requests.", http.answers);
  text.add("lockstep:http_timeouts_total", "counter", "Connections that were too slow.",
           http.timed_out);
  if (!http.errors.empty()) {
    constexpr std::string_view kErrors = "lockstep:errors_total";
    text.head(kErrors, "counter", "Errors that clients were told, by type.");
    for (const auto& [type, count] : http.errors) text.labelled(kErrors, "type", type, count);
  }
  text.add("lockstep:resident_bytes", "gauge", "Memory of this process.", resident_bytes());
  return text.take();
}

}  // namespace lockstep::serve
