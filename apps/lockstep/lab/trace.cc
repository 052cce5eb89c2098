// lockstep lab trace: where the time of a trace went.
#include "lab/trace/trace.h"

#include <fmt/format.h>

#include <memory>

#include "cli.h"
#include "lab/lab.h"
#include "output.h"

namespace lockstep::app {
namespace {

struct TraceOptions {
  std::string file;
  std::optional<int64_t> rows;
  std::optional<std::string> has;
  bool json = false;
};

std::vector<std::string> names_of(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const std::string_view name = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), name.size() + 1));
    if (!name.empty()) out.emplace_back(name);
  }
  if (out.empty()) bad_use("--has: no name; give the ops of a microbenchmark");
  return out;
}

Json trace_json(const lab::trace::Trace& trace, const std::vector<std::string>& missing) {
  Json groups = Json::array(), passes = Json::array(), absent = Json::array();
  for (const auto& g : trace.groups) {
    groups.push_back({{"category", escape(g.category)},
                      {"name", escape(g.name)},
                      {"calls", g.calls},
                      {"ms", g.ms},
                      {"own_ms", g.own_ms},
                      {"enclosing", g.enclosing}});
  }
  for (const auto& p : trace.passes) {
    passes.push_back({{"rows", p.rows}, {"passes", p.passes}, {"ms", p.ms}});
  }
  for (const std::string& name : missing) absent.push_back(escape(name));
  return {{"schema", "lockstep.lab.trace/1"},
          {"events", trace.events},
          {"left_out", trace.left_out},
          {"other", trace.other},
          {"damaged", trace.damaged},
          {"crossing", trace.crossing},
          {"cut_off", trace.cut_off},
          {"tracks", trace.tracks},
          {"busy_ms", trace.busy_ms},
          {"sum_ms", trace.sum_ms},
          {"passes", passes},
          {"groups", groups},
          {"missing", absent}};
}

ExitCode run_trace(const TraceOptions& options) {
  if (options.file.empty()) bad_use("no trace; give a file of lockstep bench --trace");
  std::vector<std::string> wanted, missing;
  if (options.has) wanted = names_of(*options.has);
  const lab::trace::Trace trace = lab::trace::read_trace(options.file, options.rows);
  for (const std::string& name : wanted) {
    if (!trace.has(name)) missing.push_back(name);
  }
  if (options.json) {
    print_json(trace_json(trace, missing));
  } else {
    print(trace_text(trace));
    for (const std::string& name : missing) {
      print(fmt::format("\n{}: did not run here: what it gains alone is no gain in this\n",
                        escape(name, 200)));
    }
  }
  return missing.empty() ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

Runner set_up_lab_trace(Flags& flags) {
  const auto options = std::make_shared<TraceOptions>();
  flags.integer("--rows", options->rows, 0, int64_t{1} << 40);
  flags.text("--has", options->has);
  flags.toggle("--json", options->json);
  flags.positional("FILE", "a trace in the Chrome format", options->file);
  flags.describe(
      "Where the time of a trace went: each op's own time, without that of the events inside it, "
      "so that nothing is counted twice; passes by their rows, so that prompt and generation are "
      "not mixed; and whether the ops that a microbenchmark times ran at all.",
      "lockstep lab trace pass.json --rows 8");
  return [options] { return run_trace(*options); };
}

}  // namespace lockstep::app
