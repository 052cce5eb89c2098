#include "lab/trace/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/mapped_file.h"

namespace lockstep::lab::trace {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxNames = 100'000;  // of ops; what comes later is put together
constexpr double kMaxUs = 1e17;        // microseconds: beyond any clock, those since 1970 too

// By how much an event may seem to outlast the one that holds it: stamps are rounded to a
// nanosecond, and large ones by their doubles.
double slack(double us) {
  return 0.002 + 4e-16 * std::abs(us);
}

struct Event {
  double begin = 0, end = 0;  // microseconds
  int64_t rows = -1;          // -1: not said
  uint32_t group = 0, track = 0;
};

const Json* member(const Json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() ? nullptr : &*at;
}

std::string as_text(const Json* value) {
  if (!value) return "";
  return value->is_string() ? value->get<std::string>()
                            : value->dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Takes the events out of the text one by one, so that no tree of the whole file is made.
class Collector {
 public:
  explicit Collector(Trace& trace) : trace_(trace) {}

  // nlohmann's callback: false discards the value.
  bool parsed(int depth, Json::parse_event_t what, const Json& value) {
    using What = Json::parse_event_t;
    if (depth == 0 && what == What::array_start) in_list_ = 1;
    if (depth == 1 && what == What::key) in_list_ = value == "traceEvents" ? 2 : 0;
    if (what != What::object_end || depth != in_list_ || depth == 0) return true;
    add(value);
    return false;
  }

  std::vector<Event> events;

 private:
  void add(const Json& value) {
    const Json* phase = member(value, "ph");
    if (!phase || *phase != "X") {
      ++trace_.other;
      return;
    }
    const Json *name = member(value, "name"), *begin = member(value, "ts"),
               *duration = member(value, "dur");
    if (!name || !name->is_string() || !begin || !begin->is_number() || !duration ||
        !duration->is_number() || std::abs(begin->get<double>()) > kMaxUs ||
        !(duration->get<double>() >= 0) || duration->get<double>() > kMaxUs) {
      ++trace_.damaged;
      return;
    }
    if (events.size() >= kMaxEvents) {
      throw Error(ExitCode::bad_file,
                  fmt::format("more than {} events; trace fewer passes", kMaxEvents));
    }
    Event out;
    out.begin = begin->get<double>();
    out.end = out.begin + duration->get<double>();
    const Json* args = member(value, "args");
    const Json* rows = args && args->is_object() ? member(*args, "rows") : nullptr;
    if (rows && rows->is_number_integer() && rows->get<int64_t>() >= 0) {
      out.rows = rows->get<int64_t>();
    }
    out.group = group_of(as_text(member(value, "cat")), name->get<std::string>());
    const std::string track = as_text(member(value, "pid")) + " " + as_text(member(value, "tid"));
    out.track = tracks_.try_emplace(track, static_cast<uint32_t>(tracks_.size())).first->second;
    trace_.tracks = tracks_.size();
    events.push_back(out);
  }

  uint32_t group_of(std::string category, std::string name) {
    const std::pair<std::string, std::string> key{std::move(category), std::move(name)};
    const auto found = groups_.find(key);
    if (found != groups_.end()) return found->second;
    if (trace_.groups.size() == kMaxNames) {
      trace_.groups.push_back({"", "(other names)", 0, 0, 0, 0});
    }
    if (trace_.groups.size() > kMaxNames) return kMaxNames;
    trace_.groups.push_back({key.first, key.second, 0, 0, 0, 0});
    return groups_.emplace(key, static_cast<uint32_t>(trace_.groups.size() - 1)).first->second;
  }

  Trace& trace_;
  int in_list_ = 0;  // depth of an event's object, or 0 outside the list of events
  std::map<std::pair<std::string, std::string>, uint32_t> groups_;
  std::map<std::string, uint32_t> tracks_;
};

// An event, and what is inside it so far.
struct Open {
  const Event* event;
  double inside = 0;  // microseconds under its children
  bool counted = true;
  bool encloses = false;
};

class Accounts {
 public:
  Accounts(Trace& trace, std::optional<int64_t> rows) : trace_(trace), rows_(rows) {}

  // All events of one track, by begin and, of equal begins, the longer first.
  void track(const Event* first, const Event* last) {
    for (const Event* event = first; event != last; ++event) {
      while (!open_.empty() && open_.back().event->end <= event->begin + slack(event->begin)) {
        close();
      }
      // One that reaches beyond what it began in is no part of it: its own time is what is left.
      while (!open_.empty() && open_.back().event->end + slack(event->end) < event->end) {
        ++trace_.crossing;
        close();
      }
      const bool outermost = open_.empty();
      bool counted = outermost ? !rows_ || event->rows == *rows_ : open_.back().counted;
      if (!outermost) open_.back().encloses = true;
      open_.push_back({event, 0, counted, false});
    }
    while (!open_.empty()) close();
    covered_ = -kMaxUs;
  }

  std::vector<PassKind> passes() const {
    std::vector<PassKind> out;
    for (const auto& [rows, pass] : passes_) out.push_back(pass);
    return out;
  }

 private:
  void close() {
    const Open done = open_.back();
    open_.pop_back();
    const Event& event = *done.event;
    const double length = event.end - event.begin;
    if (!open_.empty()) open_.back().inside += length;
    if (open_.empty() && event.rows >= 0 && done.encloses) {
      PassKind& pass = passes_[event.rows];
      pass.rows = event.rows;
      ++pass.passes;
      pass.ms += length / 1e3;
    }
    if (!done.counted) {
      ++trace_.left_out;
      return;
    }
    ++trace_.events;
    trace_.sum_ms += length / 1e3;
    if (open_.empty()) {
      trace_.busy_ms += std::max(0.0, event.end - std::max(event.begin, covered_)) / 1e3;
      covered_ = std::max(covered_, event.end);
    }
    Group& group = trace_.groups[event.group];
    ++group.calls;
    group.ms += length / 1e3;
    group.own_ms += std::max(0.0, length - done.inside) / 1e3;
    group.enclosing += done.encloses;
  }

  Trace& trace_;
  std::optional<int64_t> rows_;
  std::vector<Open> open_;
  double covered_ = -kMaxUs;  // up to here the track's time is in busy_ms
  std::map<int64_t, PassKind> passes_;
};

}  // namespace

bool Trace::has(std::string_view name) const {
  return std::any_of(groups.begin(), groups.end(), [name](const Group& group) {
    return group.name == name || group.category == name;
  });
}

Trace read_trace_text(std::string_view name, std::string_view text, std::optional<int64_t> rows) {
  const auto refuse = [name](std::string_view why) {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: {}; give a trace in the Chrome format, as lockstep bench --trace "
                            "writes it",
                            escape(name, 200), why));
  };
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) refuse("UTF-16");
  if (text.starts_with("\x1F\x8B")) refuse("compressed by gzip; unpack it first");
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || (text[first] != '{' && text[first] != '[')) {
    refuse("no JSON");
  }
  Trace trace;
  Collector collector(trace);
  try {
    [[maybe_unused]] const Json rest =
        Json::parse(text, [&collector](int depth, Json::parse_event_t what, Json& value) {
          return collector.parsed(depth, what, value);
        });
  } catch (const Json::exception&) {
    // A list may lack its end by the format's own words; what was read stays.
    trace.cut_off = true;
  } catch (const Error& error) {
    refuse(error.what());
  }
  if (collector.events.empty()) {
    refuse(trace.cut_off ? "JSON that ends in the middle or has a fault, before any complete event"
                         : "no complete event (\"ph\": \"X\") is in it");
  }
  std::vector<Event>& events = collector.events;
  std::stable_sort(events.begin(), events.end(), [](const Event& a, const Event& b) {
    if (a.track != b.track) return a.track < b.track;
    if (a.begin != b.begin) return a.begin < b.begin;
    return a.end > b.end;
  });
  Accounts accounts(trace, rows);
  for (size_t begin = 0; begin < events.size();) {
    size_t end = begin;
    while (end < events.size() && events[end].track == events[begin].track) ++end;
    accounts.track(events.data() + begin, events.data() + end);
    begin = end;
  }
  trace.passes = accounts.passes();
  if (trace.events == 0) {
    std::string known;
    for (const PassKind& pass : trace.passes) {
      known += fmt::format("{}{}", known.empty() ? "" : ", ", pass.rows);
    }
    throw Error(
        ExitCode::bad_use,
        fmt::format("{}: no pass of {} rows is in it; {}", escape(name, 200), rows.value_or(0),
                    known.empty() ? "none says its rows" : "there are passes of " + known));
  }
  std::erase_if(trace.groups, [](const Group& group) { return group.calls == 0; });
  std::stable_sort(trace.groups.begin(), trace.groups.end(),
                   [](const Group& a, const Group& b) { return a.own_ms > b.own_ms; });
  return trace;
}

Trace read_trace(const std::filesystem::path& file, std::optional<int64_t> rows) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored) && !std::filesystem::is_regular_file(file, ignored)) {
    throw Error(ExitCode::bad_file, fmt::format("{}: a directory or a device; give a trace file",
                                                shorten(file.string())));
  }
  const MappedFile mapped(file);
  const auto bytes = mapped.bytes();
  return read_trace_text(file.string(), {reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                         rows);
}

}  // namespace lockstep::lab::trace
