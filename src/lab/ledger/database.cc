#include "lab/ledger/database.h"

namespace lockstep::lab {

bool is_postgresql(std::string_view where) {
  return where.starts_with("postgresql://") || where.starts_with("postgres://");
}

std::unique_ptr<Database> Database::open(const std::string& where, Mode mode) {
  if (is_postgresql(where)) {
#ifdef LOCKSTEP_POSTGRESQL
    return open_postgresql(where, mode);
#else
    throw Error(ExitCode::resource,
                "this lockstep was built without PostgreSQL; install libpq-dev and build it again");
#endif
  }
#ifdef LOCKSTEP_SQLITE
  return open_sqlite(where, mode);
#else
  (void)mode;
  throw Error(
      ExitCode::resource,
      "this lockstep was built without a ledger; install libsqlite3-dev and build it again");
#endif
}

std::unique_ptr<Database> Database::in_memory() {
#ifdef LOCKSTEP_SQLITE
  return open_sqlite(":memory:", Mode::create);
#else
  return nullptr;
#endif
}

std::vector<Cells> Database::all(const std::string& sql, const Cells& parameters) {
  std::vector<Cells> rows;
  query(sql, parameters, [&](const Cells& row) { rows.push_back(row); });
  return rows;
}

}  // namespace lockstep::lab
