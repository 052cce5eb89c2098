// lockstep lab import: result files into the ledger.
#include <fmt/format.h>

#include <memory>

#include "lab/lab.h"
#include "lab/ledger_common.h"

namespace lockstep::app {
namespace {

struct ImportOptions : LedgerOptions {
  std::vector<std::string> files;
};

Json imported_json(const lab::Imported& one) {
  return {{"file", one.file},       {"artifact", one.artifact}, {"format", one.format},
          {"already", one.already}, {"added", one.added},       {"known", one.known},
          {"kinds", one.kinds},     {"skipped", one.skipped},   {"notes", one.notes}};
}

std::string kinds_text(const std::map<std::string, int64_t>& kinds) {
  std::string out;
  for (const auto& [kind, count] : kinds) {
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", count, kind);
  }
  return out;
}

ExitCode import(const ImportOptions& options) {
  if (options.files.empty()) bad_use("no file; see lockstep lab import --help");
  lab::Ledger ledger = options.open(lab::Database::Mode::create);
  Json files = Json::array();
  Progress progress;
  size_t done = 0;
  for (const std::string& path : options.files) {
    progress.show(fmt::format("{} of {} files", ++done, options.files.size()));
    lab::Imported one;
    try {
      const std::string bytes = read_result_file(path);
      one = lab::import_result(ledger, path, bytes);
    } catch (const Error& error) {
      // What was written before stays: each file is a transaction of its own.
      if (files.empty()) throw;
      throw Error(error.code(),
                  fmt::format("{} ({} files before it are imported)", error.what(), files.size()));
    }
    files.push_back(imported_json(one));
    if (options.json) continue;
    progress.clear();
    std::string text =
        one.already ? fmt::format("{}: imported before; nothing added\n", escape(one.file))
                    : fmt::format("{}: {}; {} objects ({}){}{}\n", escape(one.file), one.format,
                                  one.added, kinds_text(one.kinds),
                                  one.known ? fmt::format(", {} known", one.known) : "",
                                  one.skipped ? fmt::format("; {} rows skipped", one.skipped) : "");
    for (const std::string& line : one.notes) text += fmt::format("  {}\n", escape(line));
    print(text);
  }
  const lab::Head head = ledger.head();
  if (options.json) {
    print_json({{"schema", "lockstep.lab.import/1"},
                {"ledger", ledger.database().name()},
                {"files", files},
                {"entries", head.entries},
                {"head", head.hash}});
  }
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_import(Flags& flags) {
  const auto options = std::make_shared<ImportOptions>();
  options->bind(flags);
  flags.positionals("FILE", "result files", options->files);
  flags.describe(
      "Reads result files into the ledger, which is made where there is none: tables of runs "
      "(CSV), "
      "llama-bench -o json, jsonl and csv, lockstep run, bench and lab log --json, vllm bench "
      "serve "
      "--save-result. Each file whole or not at all; a file imported before adds nothing.",
      "lockstep lab import runs.csv llama-bench.json");
  return [options] { return import(*options); };
}

}  // namespace lockstep::app
