// lockstep lab log: what a server's log does and does not say.
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "cli.h"
#include "lab/lab.h"
#include "lab/log/compare.h"
#include "lab/log/text_report.h"
#include "lab/log_json.h"
#include "lab/no_timing.h"
#include "output.h"
#include "output_file.h"

namespace lockstep::app {
namespace {

using namespace lab::log;

struct LogOptions {
  std::vector<std::string> files;
  std::optional<std::string> html;
  bool json = false, compare = false;
};

Progress* shown = nullptr;  // read_logs reports through a plain function

Analysis read(std::span<const std::filesystem::path> files) {
  Progress progress;
  shown = &progress;
  Analysis analysis = read_logs(
      files, [](int64_t bytes) { shown->show(fmt::format("read {} MB", bytes / 1'000'000)); });
  shown = nullptr;
  return analysis;
}

Json side_json(const Side& side) {
  return {{"tok_s", side.tok_s},
          {"tokens_per_step", side.tokens_per_step},
          {"ms_per_step", side.ms_per_step},
          {"context", side.context ? Json(*side.context) : Json()}};
}

ExitCode compare(const LogOptions& options) {
  if (options.files.size() != 2)
    bad_use("--compare needs two logs: lockstep lab log --compare A B");
  if (options.html) bad_use("--compare writes no page; leave out --html");
  std::vector<Analysis> logs;
  for (const std::string& file : options.files) {
    const std::filesystem::path path(file);
    logs.push_back(read({&path, 1}));
  }
  Side a = side_of(logs[0], options.files[0]), b = side_of(logs[1], options.files[1]);
  a.ms_per_position = b.ms_per_position = common_slope(logs[0], logs[1]);
  const Split split = split_change(a, b);
  if (!options.json) {
    print(compare_text(options.files[0], a, options.files[1], b, split));
    return ExitCode::ok;
  }
  const auto part = [&split](double value) -> Json {
    const std::optional<double> share = split.share(value);
    return {{"ln", value}, {"share", share ? Json(*share) : Json()}};
  };
  print_json({{"schema", "lockstep.lab.log-compare/1"},
              {"a", side_json(a)},
              {"b", side_json(b)},
              {"ms_per_position", a.ms_per_position ? Json(*a.ms_per_position) : Json()},
              {"ln_ratio", split.total},
              {"acceptance", part(split.acceptance)},
              {"context", split.context ? part(*split.context) : Json()},
              {"rest", part(split.rest)}});
  return ExitCode::ok;
}

ExitCode log(const LogOptions& options) {
  if (options.files.empty()) bad_use("no log; give one or more files");
  check_outputs({{"--html", options.html}}, options.files);
  if (options.compare) return compare(options);
  const std::vector<std::filesystem::path> paths(options.files.begin(), options.files.end());
  const Analysis analysis = read(paths);
  require_timings(analysis, options.files);
  if (options.html) write_file(*options.html, html_report(analysis));
  if (options.json) {
    print_log_json(analysis);
  } else {
    print(text_report(analysis));
  }
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_log(Flags& flags) {
  const auto options = std::make_shared<LogOptions>();
  flags.toggle("--json", options->json);
  flags.text("--html", options->html);
  flags.toggle("--compare", options->compare);
  flags.positionals("FILE", "logs of llama-server, ik_llama.cpp or vLLM, in order of time",
                    options->files);
  flags.describe(
      "Reads servers' logs of any known generation and says what they show: rates and by what they "
      "were divided, the draft length in force, acceptance, the cost of a step, warm rows, depth, "
      "and "
      "what contradicts itself. docs/lab-log.md says what each figure means.",
      "lockstep lab log server.log --html server.html");
  return [options] { return log(*options); };
}

}  // namespace lockstep::app
