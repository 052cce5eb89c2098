// A page of what a ledger holds.
#pragma once

#include "lab/ledger/ledger.h"
#include "lab/report/page.h"
#include "lab/report/sources.h"

namespace lockstep::lab::report {

// Records and whether they stand, verdicts that have an effect, the ladder of claims in each lane
// against the noise of an imported table, and of imported tables of runs and lab log results what
// make_page makes of them (their bytes are artifacts of the ledger). Throws as Ledger does, and
// Error(bad_use) where the ledger holds nothing of these.
Page ledger_page(Ledger& ledger, const Options& options);

}  // namespace lockstep::lab::report
