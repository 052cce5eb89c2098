// lockstep lab verify: whether the ledger is what was written.
#include "lab/ledger/verify.h"

#include <fmt/format.h>

#include <memory>

#include "lab/lab.h"
#include "lab/ledger_common.h"

namespace lockstep::app {
namespace {

struct VerifyOptions : LedgerOptions {
  std::optional<std::string> head;
};

// "886:0a1b…": an entry and how its hash began, as an earlier `verify` printed them.
void check_head(const std::string& text, lab::Ledger& ledger, lab::Verification& verification) {
  const size_t colon = text.find(':');
  const auto seq = lab::read_integer(std::string_view(text).substr(0, colon));
  const std::string hash = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (!seq || *seq < 1 || hash.size() < 16 || hash.size() > 64) {
    bad_use(fmt::format("--head {}: give ENTRY:HASH as lab verify prints it (16 digits at least)",
                        shorten(text)));
  }
  const auto rows = ledger.database().all("SELECT hash FROM object WHERE seq = $1", {*seq});
  const auto* is = rows.empty() ? nullptr : std::get_if<std::string>(&rows[0][0]);
  if (is && is->starts_with(hash)) return;
  ++verification.fault_count;
  verification.faults.push_back(
      {*seq, "", "hash",
       is ? fmt::format("entry {} has another hash than --head: the chain was written anew", *seq)
          : fmt::format("entry {} of --head is not there: the chain was cut", *seq)});
}

ExitCode verify(const VerifyOptions& options) {
  lab::Ledger ledger = options.open(lab::Database::Mode::read);
  Progress progress;
  lab::Verification result = lab::verify_ledger(ledger, [&](int64_t done, int64_t of) {
    progress.show(fmt::format("entry {} of {}", done, of));
  });
  if (options.head) check_head(*options.head, ledger, result);
  progress.clear();
  const bool whole = result.fault_count == 0;
  if (options.json) {
    Json faults = Json::array();
    for (const lab::LedgerFault& fault : result.faults) {
      faults.push_back({{"entry", fault.seq ? Json(fault.seq) : Json()},
                        {"id", fault.id.empty() ? Json() : Json(fault.id)},
                        {"field", fault.field.empty() ? Json() : Json(fault.field)},
                        {"text", fault.text}});
    }
    print_json({{"schema", "lockstep.lab.verify/1"},
                {"ledger", ledger.database().name()},
                {"whole", whole},
                {"entries", result.entries},
                {"facts", result.facts},
                {"artifacts", result.artifacts},
                {"artifact_bytes", result.bytes},
                {"head", fmt::format("{}:{}", result.head.entries, result.head.hash)},
                {"fault_count", result.fault_count},
                {"faults", faults}});
    return whole ? ExitCode::ok : ExitCode::check_failed;
  }
  std::string out;
  for (const lab::LedgerFault& fault : result.faults) out += escape(fault.text) + "\n";
  if (result.fault_count > static_cast<int64_t>(result.faults.size())) {
    out += fmt::format("… and {} more\n",
                       result.fault_count - static_cast<int64_t>(result.faults.size()));
  }
  out += fmt::format("{}: {} entries, {} facts, {} artifacts of {} bytes\n",
                     whole ? "whole" : fmt::format("{} faults", result.fault_count), result.entries,
                     result.facts, result.artifacts, result.bytes);
  if (whole) {
    out += fmt::format(
        "head {}:{}\nkept elsewhere and given back as --head, it shows that nobody "
        "wrote the chain anew\n",
        result.head.entries, result.head.hash);
  }
  print(out);
  return whole ? ExitCode::ok : ExitCode::check_failed;
}

}  // namespace

Runner set_up_lab_verify(Flags& flags) {
  const auto options = std::make_shared<VerifyOptions>();
  options->bind(flags);
  flags.text("--head", options->head);
  flags.describe(
      "Reads all of the ledger and checks every digest, the chain, every artifact, the "
      "schema and, for SQLite, the file itself. Exit code 1 where something is not what was "
      "written; it says which entry and field.",
      "lockstep lab verify --head 886:8f0a31c2d45e6b79");
  return [options] { return verify(*options); };
}

}  // namespace lockstep::app
