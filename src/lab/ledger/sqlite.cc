// SQLite 3 (https://sqlite.org/c3ref/intro.html). One file in rollback-journal mode: between
// transactions there is nothing beside it, and after a kill the next one that opens it rolls back.
#include <fmt/format.h>
#include <sqlite3.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>

#include "lab/ledger/database.h"

namespace lockstep::lab {
namespace {

constexpr int kBusyMs = 60'000;
// "Lckl" in the file's header (offset 68): the file is a ledger of this program.
constexpr int kApplicationId = 0x4C636B6C;

class Sqlite final : public Database {
 public:
  Sqlite(const std::string& path, Mode mode) : path_(path) {
    namespace fs = std::filesystem;
    std::error_code ignored;
    const bool memory = path == ":memory:";
    const bool there = memory || fs::exists(path, ignored);
    if (!there && mode == Mode::read) {
      throw Error(ExitCode::bad_use,
                  fmt::format("{}: no ledger here; make one with lockstep lab init, or name one "
                              "with --ledger",
                              shorten(path)));
    }
    if (!memory && fs::is_directory(path, ignored)) {
      throw Error(ExitCode::bad_use, fmt::format("{}: a directory; name a file", shorten(path)));
    }
    if (!there) {
      const fs::path parent = fs::path(path).parent_path();
      std::error_code error;
      if (!parent.empty()) fs::create_directories(parent, error);
      if (error) {
        throw Error(ExitCode::resource, fmt::format("{}: the folder cannot be made: {}",
                                                    shorten(path), error.message()));
      }
    }
    const int flags = SQLITE_OPEN_READWRITE | (mode == Mode::create ? SQLITE_OPEN_CREATE : 0);
    const int status = sqlite3_open_v2(path.c_str(), &db_, flags, nullptr);
    try {
      if (status != SQLITE_OK) fail(status);
      sqlite3_extended_result_codes(db_, 1);
      sqlite3_busy_timeout(db_, kBusyMs);
      // EXTRA: a commit is on the disk before it is said, the journal's removal too.
      script(
          "PRAGMA synchronous = EXTRA; PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF; "
          "PRAGMA cell_size_check = ON;");
      check_application();
    } catch (...) {
      close();
      throw;
    }
  }
  ~Sqlite() override { close(); }

  void query(const std::string& sql, std::span<const Cell> parameters,
             const std::function<void(const Cells&)>& row) override {
    sqlite3_stmt* statement = prepare(sql);
    struct Reset {
      sqlite3_stmt* s;
      ~Reset() {
        sqlite3_reset(s);
        sqlite3_clear_bindings(s);
      }
    } reset{statement};
    for (size_t i = 0; i < parameters.size(); ++i) {
      check(bind(statement, static_cast<int>(i) + 1, parameters[i]));
    }
    Cells cells;
    while (true) {
      const int status = sqlite3_step(statement);
      if (status == SQLITE_DONE) return;
      if (status != SQLITE_ROW) fail(status);
      if (!row) continue;
      const int n = sqlite3_column_count(statement);
      cells.resize(static_cast<size_t>(n));
      for (int i = 0; i < n; ++i) cells[static_cast<size_t>(i)] = column(statement, i);
      row(cells);
    }
  }

  void script(const std::string& sql) override {
    check(sqlite3_exec(db_, sql.c_str(), nullptr, nullptr, nullptr));
  }

  void begin_read() override { script("BEGIN"); }
  void begin_write() override {
    script("BEGIN IMMEDIATE");
    if (!marked_) {
      script(fmt::format("PRAGMA application_id = {}", kApplicationId));
      marked_ = true;
    }
  }
  void commit() override { script("COMMIT"); }
  void rollback() noexcept override { sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr); }
  bool postgresql() const override { return false; }
  std::string name() const override { return path_; }

 private:
  void close() {
    for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
    statements_.clear();
    sqlite3_close_v2(db_);
    db_ = nullptr;
  }

  // Another program's database is left alone. An empty one (a file made by a writer that was killed
  // before its first commit, too) has no mark yet.
  void check_application() {
    const auto id = std::get<int64_t>(all("PRAGMA application_id").at(0).at(0));
    marked_ = id == kApplicationId;
    if (marked_) return;
    const auto tables = std::get<int64_t>(all("SELECT count(*) FROM sqlite_master").at(0).at(0));
    if (id != 0 || tables != 0) {
      // A ledger whose mark was damaged is still one, for `verify` to say so.
      if (!all("SELECT 1 FROM sqlite_master WHERE name = 'artifact_part'").empty()) return;
      throw Error(
          ExitCode::bad_file,
          fmt::format("{}: an SQLite database of another program, no ledger", shorten(path_)));
    }
  }

  sqlite3_stmt* prepare(const std::string& sql) {
    const auto at = statements_.find(sql);
    if (at != statements_.end()) return at->second;
    sqlite3_stmt* statement = nullptr;
    check(sqlite3_prepare_v3(db_, sql.c_str(), static_cast<int>(sql.size()),
                             SQLITE_PREPARE_PERSISTENT, &statement, nullptr));
    statements_[sql] = statement;
    return statement;
  }

  static int bind(sqlite3_stmt* statement, int i, const Cell& cell) {
    if (const auto* number = std::get_if<int64_t>(&cell)) {
      return sqlite3_bind_int64(statement, i, *number);
    }
    if (const auto* text = std::get_if<std::string>(&cell)) {
      return sqlite3_bind_text64(statement, i, text->data(), text->size(), SQLITE_STATIC,
                                 SQLITE_UTF8);
    }
    if (const auto* blob = std::get_if<Blob>(&cell)) {
      // A null pointer would be NULL, not an empty blob.
      return sqlite3_bind_blob64(statement, i, blob->bytes.empty() ? "" : blob->bytes.data(),
                                 blob->bytes.size(), SQLITE_STATIC);
    }
    return sqlite3_bind_null(statement, i);
  }

  static Cell column(sqlite3_stmt* statement, int i) {
    const auto bytes = [&](const void* data) {
      const auto n = static_cast<size_t>(sqlite3_column_bytes(statement, i));
      return data ? std::string(static_cast<const char*>(data), n) : std::string();
    };
    switch (sqlite3_column_type(statement, i)) {
      case SQLITE_INTEGER:
        return static_cast<int64_t>(sqlite3_column_int64(statement, i));
      case SQLITE_BLOB:
        return Blob{bytes(sqlite3_column_blob(statement, i))};
      case SQLITE_NULL:
        return std::monostate{};
      default:
        return bytes(sqlite3_column_text(statement, i));
    }
  }

  void check(int status) {
    if (status != SQLITE_OK) fail(status);
  }

  [[noreturn]] void fail(int status) {
    const std::string where = shorten(path_);
    const std::string reason = escape(db_ ? sqlite3_errmsg(db_) : sqlite3_errstr(status), 300);
    switch (status & 0xFF) {
      case SQLITE_BUSY:
      case SQLITE_LOCKED:
        throw Error(ExitCode::resource,
                    fmt::format("{}: another writer has held the ledger for {} s; try again", where,
                                kBusyMs / 1000));
      case SQLITE_NOTADB:
        throw Damaged(fmt::format("{}: no ledger: {}", where, reason));
      case SQLITE_CORRUPT:
      case SQLITE_ERROR:  // a schema that does not have what it should
      case SQLITE_MISMATCH:
      case SQLITE_FORMAT:
        throw Damaged(fmt::format("{}: the ledger is damaged: {}; lockstep lab verify says more",
                                  where, reason));
      case SQLITE_CONSTRAINT:
        throw Error(ExitCode::check_failed, fmt::format("{}: {}", where, reason));
      case SQLITE_READONLY:
      case SQLITE_CANTOPEN:
      case SQLITE_PERM:
        throw Error(ExitCode::resource,
                    fmt::format("{}: the ledger cannot be opened or written: {}", where, reason));
      default:
        throw Error(ExitCode::resource, fmt::format("{}: {}", where, reason));
    }
  }

  std::string path_;
  sqlite3* db_ = nullptr;
  bool marked_ = false;
  std::map<std::string, sqlite3_stmt*> statements_;
};

}  // namespace

std::unique_ptr<Database> open_sqlite(const std::string& path, Database::Mode mode) {
  return std::make_unique<Sqlite>(path, mode);
}

}  // namespace lockstep::lab
