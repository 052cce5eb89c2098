// lockstep lab whatif: what other draft lengths would give, by the acceptance in a log.
#include "lab/log/whatif.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "cli.h"
#include "lab/lab.h"
#include "lab/no_timing.h"
#include "output.h"

namespace lockstep::app {
namespace {

using namespace lab::log;

constexpr int64_t kDeepest = 64;

struct WhatifOptions {
  std::vector<std::string> files;
  std::optional<std::string> depths;
  StepCost cost;
  bool json = false;
};

// "1..16", "1,2,4" or both: "1..4,8".
std::vector<int64_t> read_depths(std::string_view text) {
  std::vector<int64_t> out;
  const std::string whole(text);
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const size_t dots = part.find("..");
    const std::optional<int64_t> from = parse_integer(part.substr(0, dots));
    const std::optional<int64_t> to =
        dots == std::string_view::npos ? from : parse_integer(part.substr(dots + 2));
    if (!from || !to || *from < 1 || *to > kDeepest || *from > *to) {
      bad_use(fmt::format("--depth {}: give draft lengths of 1 to {}, as 1..16 or 1,2,4",
                          shorten(whole), kDeepest));
    }
    for (int64_t depth = *from; depth <= *to; ++depth) out.push_back(depth);
  }
  if (out.empty())
    bad_use(fmt::format("--depth: empty; give draft lengths of 1 to {}, as 1..16", kDeepest));
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

Json whatif_json(const Whatif& w) {
  Json rows = Json::array();
  for (const Prediction& p : w.predictions) {
    rows.push_back({{"depth", p.depth},
                    {"tokens_per_step", p.tokens_per_step},
                    {"ms_per_step", p.ms_per_step},
                    {"tok_s", p.tok_s},
                    {"tok_s_low", p.tok_s_low},
                    {"tok_s_high", p.tok_s_high},
                    {"beyond", p.beyond}});
  }
  return {{"schema", "lockstep.lab.whatif/1"},
          {"positions_known", w.positions_known},
          {"log_depth", w.log_depth},
          {"per_position", w.per_position},
          {"mean_accepted", w.mean_accepted},
          {"verify_steps", w.verify_steps},
          {"drafted_share", w.drafted_share},
          {"measured_tok_s", w.measured_tok_s},
          {"cost", {{"verify_ms", w.verify_ms}, {"draft_ms", w.draft_ms}, {"row_ms", w.row_ms}}},
          {"depths", rows},
          {"best", w.best},
          {"assumptions", w.assumptions}};
}

ExitCode whatif(const WhatifOptions& options) {
  if (options.files.empty())
    bad_use("no log; give one or more files of one server and its settings");
  const std::vector<int64_t> depths = read_depths(options.depths.value_or("1..16"));
  const std::vector<std::filesystem::path> paths(options.files.begin(), options.files.end());
  const Analysis analysis = read_logs(paths);
  require_timings(analysis, options.files);
  const Whatif result = predict(analysis, depths, options.cost);
  if (options.json) {
    print_json(whatif_json(result));
  } else {
    print(whatif_text(result));
  }
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_whatif(Flags& flags) {
  const auto options = std::make_shared<WhatifOptions>();
  flags.text("--depth", options->depths);
  flags.number("--draft-ms", options->cost.draft_ms, 0, 1e6);
  flags.number("--verify-ms", options->cost.verify_ms, 1e-6, 1e6);
  flags.number("--row-ms", options->cost.row_ms, 0, 1e6);
  flags.toggle("--json", options->json);
  flags.positionals("LOG", "logs of one server and its settings", options->files);
  flags.describe(
      "Expected tokens a second at other draft lengths, with intervals, from the acceptance in a "
      "log. It "
      "says what it assumes, and refuses (exit code 1) where an assumption would decide the "
      "answer.",
      "lockstep lab whatif server.log --depth 1..16 --draft-ms 1.0 --verify-ms 12.5");
  return [options] { return whatif(*options); };
}

}  // namespace lockstep::app
