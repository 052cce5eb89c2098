// SQLite and PostgreSQL behind one narrow door: statements with parameters, rows of typed cells,
// transactions. Only what the ledger needs; statements are written in the SQL that both read.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace lockstep::lab {

struct Blob {
  std::string bytes;
  bool operator==(const Blob&) const = default;
};
using Cell = std::variant<std::monostate, int64_t, std::string, Blob>;
using Cells = std::vector<Cell>;

// The database itself is damaged (not: a row in it is wrong).
class Damaged : public Error {
 public:
  explicit Damaged(std::string_view message) : Error(ExitCode::bad_file, message) {}
};

// Where the ledger is: a path, or postgresql://….
bool is_postgresql(std::string_view where);

class Database {
 public:
  enum class Mode : uint8_t {
    read,    // has to be there
    create,  // a file is made where there is none
  };
  // Throws Error(bad_use) where there is no such ledger in Mode::read, Error(resource) where it
  // cannot be opened or reached, Error(bad_file) where the file is something else, and
  // Error(resource) naming the package where this program was built without that database.
  static std::unique_ptr<Database> open(const std::string& where, Mode mode);
  // An empty SQLite database that is nowhere: what a schema looks like.
  static std::unique_ptr<Database> in_memory();
  virtual ~Database() = default;

  // $1, $2, … stand for the cells, each used once and in order.
  virtual void query(const std::string& sql, std::span<const Cell> parameters,
                     const std::function<void(const Cells&)>& row) = 0;
  void execute(const std::string& sql, const Cells& parameters = {}) {
    query(sql, parameters, nullptr);
  }
  std::vector<Cells> all(const std::string& sql, const Cells& parameters = {});
  // Several statements without parameters.
  virtual void script(const std::string& sql) = 0;

  // A transaction that sees one state of the ledger from its start to its end.
  virtual void begin_read() = 0;
  // A transaction that no other writer is beside: waits for its turn, up to a minute.
  virtual void begin_write() = 0;
  virtual void commit() = 0;
  virtual void rollback() noexcept = 0;

  virtual bool postgresql() const = 0;
  // For messages: the path, or host and database, never a password.
  virtual std::string name() const = 0;
};

std::unique_ptr<Database> open_sqlite(const std::string& path, Database::Mode mode);
std::unique_ptr<Database> open_postgresql(const std::string& url, Database::Mode mode);

// Rolls back unless it was committed.
class Transaction {
 public:
  enum class Kind : uint8_t { read, write };
  Transaction(Database& database, Kind kind) : database_(&database) {
    kind == Kind::read ? database.begin_read() : database.begin_write();
  }
  ~Transaction() {
    if (database_) database_->rollback();
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit() {
    database_->commit();
    database_ = nullptr;
  }

 private:
  Database* database_;
};

}  // namespace lockstep::lab
