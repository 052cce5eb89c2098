// The ledger's tables, the same in SQLite and PostgreSQL, and how older ledgers are brought
// forward.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lab/ledger/database.h"

namespace lockstep::lab {

inline constexpr int64_t kSchemaVersion = 2;

// The version of an opened database; 0 where it has no tables yet.
int64_t schema_version(Database& database);
// Within a write transaction: applies what is missing up to `version`. Throws Error(bad_file) where
// the ledger is of a later version than this program knows.
void migrate(Database& database, int64_t version = kSchemaVersion);
// What differs between the tables, indexes, views and triggers that `version` has and those that
// are there, one line each.
std::vector<std::string> schema_differences(Database& database, int64_t version);

}  // namespace lockstep::lab
