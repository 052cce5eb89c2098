// lockstep lab init: a ledger where there is none.
#include <fmt/format.h>

#include <memory>

#include "lab/lab.h"
#include "lab/ledger_common.h"

namespace lockstep::app {
namespace {

ExitCode init(const LedgerOptions& options) {
  lab::Ledger ledger = options.open(lab::Database::Mode::create);
  const lab::Head head = ledger.head();
  const std::string name = ledger.database().name();
  if (options.json) {
    print_json({{"schema", "lockstep.lab.init/1"},
                {"ledger", name},
                {"entries", head.entries},
                {"head", head.hash}});
    return ExitCode::ok;
  }
  print(head.entries == 0 ? fmt::format("{}: a ledger, empty\n", escape(name))
                          : fmt::format("{}: a ledger of {} entries, left as it is\n", escape(name),
                                        head.entries));
  return ExitCode::ok;
}

}  // namespace

Runner set_up_lab_init(Flags& flags) {
  const auto options = std::make_shared<LedgerOptions>();
  options->bind(flags);
  flags.describe(
      "Makes a ledger: ./.lockstep/ledger.db, or where --ledger says. One that is there is "
      "left as it is.",
      "lockstep lab init --ledger postgresql://lab@db.example/lab");
  return [options] { return init(*options); };
}

}  // namespace lockstep::app
