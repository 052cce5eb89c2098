// PostgreSQL through libpq (https://www.postgresql.org/docs/15/libpq.html). Values go and come as
// text, bytes as bytea.
#include <fmt/format.h>
#include <libpq-fe.h>

#include <algorithm>

#include "lab/ledger/database.h"

namespace lockstep::lab {
namespace {

// Type numbers of pg_type.dat that no version changes.
constexpr Oid kBytea = 17, kInt8 = 20, kInt2 = 21, kInt4 = 23;

struct Result {
  PGresult* result;
  explicit Result(PGresult* r) : result(r) {}
  ~Result() { PQclear(result); }
  Result(const Result&) = delete;
  Result& operator=(const Result&) = delete;
};

std::string first_line(const char* text) {
  std::string line(text ? text : "");
  return escape(line.substr(0, line.find('\n')), 300);
}

class Postgresql final : public Database {
 public:
  Postgresql(const std::string& url, Mode) {
    connection_ = PQconnectdb(url.c_str());
    if (!connection_ || PQstatus(connection_) != CONNECTION_OK) {
      const std::string reason = first_line(connection_ ? PQerrorMessage(connection_) : "");
      PQfinish(connection_);
      connection_ = nullptr;
      throw Error(ExitCode::resource, fmt::format("PostgreSQL: no connection: {}", reason));
    }
    const char* host = PQhost(connection_);
    name_ = fmt::format("postgresql {}/{}", host ? host : "", PQdb(connection_));
    PQsetNoticeProcessor(
        connection_, [](void*, const char*) {}, nullptr);
    // Backslashes in texts mean themselves, and a commit is on the disk before it is said, whatever
    // the server's defaults are. One minute is what a writer waits for its turn.
    try {
      script(
          "SET standard_conforming_strings = on; SET synchronous_commit = on; "
          "SET lock_timeout = '60s'; SET client_encoding = 'UTF8'; SET bytea_output = 'hex';");
    } catch (...) {
      PQfinish(connection_);
      throw;
    }
  }
  ~Postgresql() override { PQfinish(connection_); }

  void query(const std::string& sql, std::span<const Cell> parameters,
             const std::function<void(const Cells&)>& row) override {
    std::vector<std::string> texts(parameters.size());
    std::vector<const char*> values(parameters.size());
    std::vector<int> lengths(parameters.size()), formats(parameters.size(), 0);
    std::vector<Oid> types(parameters.size(), 0);
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (const auto* number = std::get_if<int64_t>(&parameters[i])) {
        texts[i] = fmt::format("{}", *number);
        values[i] = texts[i].c_str();
      } else if (const auto* text = std::get_if<std::string>(&parameters[i])) {
        values[i] = text->c_str();
      } else if (const auto* blob = std::get_if<Blob>(&parameters[i])) {
        values[i] = blob->bytes.data();
        lengths[i] = static_cast<int>(blob->bytes.size());
        formats[i] = 1;
        types[i] = kBytea;
      }
    }
    const Result result(PQexecParams(connection_, sql.c_str(), static_cast<int>(values.size()),
                                     types.data(), values.data(), lengths.data(), formats.data(),
                                     0));
    check(result.result);
    if (!row) return;
    const int n_rows = PQntuples(result.result), n = PQnfields(result.result);
    Cells cells(static_cast<size_t>(n));
    for (int r = 0; r < n_rows; ++r) {
      for (int i = 0; i < n; ++i) cells[static_cast<size_t>(i)] = cell(result.result, r, i);
      row(cells);
    }
  }

  void script(const std::string& sql) override {
    const Result result(PQexec(connection_, sql.c_str()));
    check(result.result);
  }

  void begin_read() override { script("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"); }
  // All writers of one database take their turns by one advisory lock, so that nobody reads a head
  // that another is about to move. The number is arbitrary: "Lckl".
  void begin_write() override {
    script("BEGIN");
    try {
      script("SELECT pg_advisory_xact_lock(1281584492)");
    } catch (...) {
      rollback();
      throw;
    }
  }
  void commit() override { script("COMMIT"); }
  void rollback() noexcept override { PQclear(PQexec(connection_, "ROLLBACK")); }
  bool postgresql() const override { return true; }
  std::string name() const override { return name_; }

 private:
  static Cell cell(const PGresult* result, int row, int i) {
    if (PQgetisnull(result, row, i)) return std::monostate{};
    const std::string_view text(PQgetvalue(result, row, i),
                                static_cast<size_t>(PQgetlength(result, row, i)));
    const Oid type = PQftype(result, i);
    if (type == kInt8 || type == kInt4 || type == kInt2) {
      return static_cast<int64_t>(std::stoll(std::string(text)));
    }
    if (type != kBytea) return std::string(text);
    size_t n = 0;
    unsigned char* bytes = PQunescapeBytea(reinterpret_cast<const unsigned char*>(text.data()), &n);
    if (!bytes) throw Error(ExitCode::resource, "out of memory; use a smaller file");
    Blob blob{std::string(reinterpret_cast<const char*>(bytes), n)};
    PQfreemem(bytes);
    return blob;
  }

  void check(const PGresult* result) {
    const ExecStatusType status = PQresultStatus(result);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return;
    const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const std::string code(state ? state : "");
    const std::string reason =
        first_line(result ? PQresultErrorMessage(result) : PQerrorMessage(connection_));
    // Class 23: a constraint; P0001: raised by a trigger.
    if (code.starts_with("23") || code == "P0001") {
      throw Error(ExitCode::check_failed, fmt::format("{}: {}", name_, reason));
    }
    // Class XX: corruption; 42P01 and 42703: a table or column is not there.
    if (code.starts_with("XX") || code == "42P01" || code == "42703") {
      throw Damaged(fmt::format("{}: the ledger is damaged: {}", name_, reason));
    }
    if (code == "55P03") {
      throw Error(ExitCode::resource,
                  fmt::format("{}: another writer has held the ledger for 60 s; try again", name_));
    }
    throw Error(ExitCode::resource, fmt::format("{}: {}", name_, reason));
  }

  PGconn* connection_ = nullptr;
  std::string name_ = "postgresql";
};

}  // namespace

std::unique_ptr<Database> open_postgresql(const std::string& url, Database::Mode mode) {
  return std::make_unique<Postgresql>(url, mode);
}

}  // namespace lockstep::lab
