// lockstep lab report: what was measured, as a page.
#include <fmt/format.h>

#include <memory>

#include "cli.h"
#include "lab/lab.h"
#include "lab/ledger_common.h"
#include "lab/rates.h"
#include "lab/report/ledger_page.h"
#include "lab/report/render.h"
#include "lab/report/sources.h"
#include "output.h"
#include "output_file.h"

namespace lockstep::app {
namespace {

namespace report = lab::report;

struct ReportOptions : LedgerOptions {
  std::vector<std::string> files;
  std::optional<std::string> html, markdown, title, reported;
  std::optional<double> alpha;
};

ExitCode make_report(const ReportOptions& options) {
  std::vector<std::string> inputs_there = options.files;
  if (options.files.empty()) inputs_there.push_back(options.place());
  check_outputs({{"--html", options.html}, {"--md", options.markdown}}, inputs_there);
  report::Options studied_by;
  studied_by.alpha = options.alpha.value_or(0.05);
  if (options.reported) studied_by.reported = reported_values(*options.reported);
  report::Page page;
  if (options.files.empty()) {
    lab::Ledger ledger = options.open(lab::Database::Mode::read);
    page = report::ledger_page(ledger, studied_by);
  } else {
    std::vector<report::Input> inputs;
    for (const std::string& path : options.files) {
      inputs.push_back({path, read_result_file(path)});
    }
    page = report::make_page(inputs, studied_by);
  }
  if (options.title) page.title = *options.title;
  if (options.html) write_file(*options.html, report::render_html(page));
  if (options.markdown) write_file(*options.markdown, report::render_markdown(page));
  if (options.json) {
    print_json(report::page_json(page));
  } else if (!options.html && !options.markdown) {
    print(report::render_markdown(page));
  }
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_report(Flags& flags) {
  const auto options = std::make_shared<ReportOptions>();
  options->bind(flags);
  flags.text("--html", options->html);
  flags.text("--md", options->markdown);
  flags.text("--title", options->title);
  flags.text("--reported", options->reported);
  flags.number("--alpha", options->alpha, 1e-6, 0.5);
  flags.positionals("FILE",
                    "lockstep.lab.runs/1 (JSON or CSV; docs/lab-statistics.md), a table of runs "
                    "(CSV with batch,run,change,fresh_tok_s,verdict), lab log --json; any number "
                    "of them. Without one, the ledger",
                    options->files);
  flags.describe(
      "Makes one page of what was measured: effects with their intervals, the control in time with "
      "its change points, acceptance by position, the ladder of claimed records against the noise. "
      "--html is one file that holds its script, its style and its figures and asks no network; "
      "--md is the same as Markdown.",
      "lockstep lab report runs.csv log.json --html report.html");
  return [options] { return make_report(*options); };
}

}  // namespace lockstep::app
