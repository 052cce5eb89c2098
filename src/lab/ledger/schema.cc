#include "lab/ledger/schema.h"

#include <fmt/format.h>

#include <map>
#include <set>

namespace lockstep::lab {
namespace {

struct Migration {
  int64_t version;
  std::vector<std::string_view> statements;
};

// {INT}, {BLOB} and {TABLE} (the end of a table's definition) are what the two databases spell
// differently. STRICT: a value of another type than its column's is a fault that `verify` is told
// of.
const std::vector<Migration>& migrations() {
  static const std::vector<Migration> list = {
      {1,
       {"CREATE TABLE migration (version {INT} PRIMARY KEY){STRICT}",
        // Bytes under their SHA-256, in parts of 256 KiB.
        "CREATE TABLE artifact (sha256 TEXT PRIMARY KEY, bytes {INT} NOT NULL, parts {INT} NOT "
        "NULL){TABLE}",
        "CREATE TABLE artifact_part (sha256 TEXT NOT NULL, part {INT} NOT NULL, content {BLOB} NOT "
        "NULL, PRIMARY KEY (sha256, part)){TABLE}",
        // The chain: hash = SHA-256 of the lines prev, seq, id, created_at.
        "CREATE TABLE object (seq {INT} PRIMARY KEY, id TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, "
        "supersedes TEXT NOT NULL, created_at TEXT NOT NULL, prev TEXT NOT NULL, hash TEXT NOT "
        "NULL){STRICT}",
        // sha256: of the lines name, type, provenance, source, value.
        "CREATE TABLE fact (seq {INT} NOT NULL, ordinal {INT} NOT NULL, name TEXT NOT NULL, type "
        "TEXT NOT NULL, value TEXT NOT NULL, provenance TEXT NOT NULL, source TEXT NOT NULL, "
        "sha256 "
        "TEXT NOT NULL, PRIMARY KEY (seq, ordinal)){TABLE}",
        // One row: how long the chain is. Without it rows cut off at the end would not be missed.
        "CREATE TABLE head (one {INT} PRIMARY KEY, entries {INT} NOT NULL, hash TEXT NOT "
        "NULL){STRICT}",
        "CREATE INDEX object_kind ON object (kind)",
        "CREATE INDEX object_supersedes ON object (supersedes)",
        "CREATE INDEX fact_name ON fact (name)",
        "INSERT INTO head VALUES (1, 0, "
        "'0000000000000000000000000000000000000000000000000000000000000000')"}},
      {2,
       // For people with a database shell.
       {"CREATE VIEW fact_of AS SELECT o.seq, o.id, o.kind, f.name, f.type, f.value, f.provenance, "
        "f.source FROM object o JOIN fact f ON f.seq = o.seq",
        "CREATE VIEW measured AS SELECT o.seq, o.id, n.value AS name, r.value AS decode_tok_s, "
        "r.provenance FROM object o JOIN fact r ON r.seq = o.seq AND r.name = 'decode_tok_s' AND "
        "r.type <> 'absent' LEFT JOIN fact n ON n.seq = o.seq AND n.name = 'name' WHERE o.kind = "
        "'row' "
        "AND NOT EXISTS (SELECT 1 FROM object s WHERE s.supersedes = o.id)"}},
  };
  return list;
}

constexpr std::string_view kTables[] = {"migration", "artifact", "artifact_part",
                                        "object",    "fact",     "head"};

std::string spelt(std::string_view statement, bool postgresql) {
  std::string out(statement);
  const auto replace = [&](std::string_view from, std::string_view to) {
    for (size_t at; (at = out.find(from)) != std::string::npos;) out.replace(at, from.size(), to);
  };
  replace("{INT}", postgresql ? "BIGINT" : "INTEGER");
  replace("{BLOB}", postgresql ? "BYTEA" : "BLOB");
  replace("{TABLE}", postgresql ? "" : " STRICT, WITHOUT ROWID");
  replace("{STRICT}", postgresql ? "" : " STRICT");
  return out;
}

// The database itself refuses to change or delete what is written. The head alone moves, forwards.
std::vector<std::string> guards(bool postgresql) {
  std::vector<std::string> out;
  if (postgresql) {
    out.emplace_back(
        "CREATE FUNCTION ledger_refuses() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE "
        "EXCEPTION ''the ledger is append-only: supersede instead''; END'");
    for (const std::string_view table : kTables) {
      const std::string_view when =
          table == "head" ? "DELETE OR TRUNCATE" : "UPDATE OR DELETE OR TRUNCATE";
      out.push_back(
          fmt::format("CREATE TRIGGER {0}_append_only BEFORE {1} ON {0} FOR EACH "
                      "STATEMENT EXECUTE FUNCTION ledger_refuses()",
                      table, when));
    }
    out.emplace_back(
        "CREATE TRIGGER head_forwards BEFORE UPDATE ON head FOR EACH ROW WHEN "
        "(NEW.entries <= OLD.entries) EXECUTE FUNCTION ledger_refuses()");
    return out;
  }
  for (const std::string_view table : kTables) {
    for (const std::string_view what : {"update", "delete"}) {
      const bool head_update = table == "head" && what == "update";
      out.push_back(
          fmt::format("CREATE TRIGGER {0}_no_{1} BEFORE {1} ON {0}{2} BEGIN SELECT "
                      "RAISE(ABORT, 'the ledger is append-only: supersede instead'); END",
                      table, what, head_update ? " WHEN NEW.entries <= OLD.entries" : ""));
    }
  }
  return out;
}

void apply(Database& database, const Migration& migration) {
  for (const std::string_view statement : migration.statements) {
    database.script(spelt(statement, database.postgresql()));
  }
  if (migration.version == 1) {
    for (const std::string& guard : guards(database.postgresql())) database.script(guard);
  }
  database.execute("INSERT INTO migration VALUES ($1)", {migration.version});
}

// Name to definition, of what the ledger's schema is made of.
std::map<std::string, std::string> described(Database& database) {
  std::map<std::string, std::string> out;
  const auto add = [&](const Cells& row) {
    const auto text = [&](size_t i) {
      const auto* value = std::get_if<std::string>(&row[i]);
      return value ? *value : std::string();
    };
    out[text(0) + " " + text(1)] = text(2);
  };
  if (!database.postgresql()) {
    database.query("SELECT type, name, sql FROM sqlite_master", {}, add);
    return out;
  }
  database.query(
      "SELECT 'column', table_name || '.' || column_name, data_type || ' ' || is_nullable "
      "FROM information_schema.columns WHERE table_schema = current_schema() AND "
      "table_name IN ('migration','artifact','artifact_part','object','fact','head')",
      {}, add);
  // O: it fires. D: somebody has switched it off.
  database.query(
      "SELECT 'trigger', t.tgname::text, t.tgenabled::text FROM pg_trigger t JOIN pg_class "
      "c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace WHERE NOT "
      "t.tgisinternal AND n.nspname = current_schema() AND c.relname IN "
      "('migration','artifact','artifact_part','object','fact','head')",
      {}, add);
  return out;
}

std::map<std::string, std::string> expected(Database& database, int64_t version) {
  if (!database.postgresql()) {
    const auto model = Database::in_memory();
    for (const Migration& migration : migrations()) {
      if (migration.version <= version) apply(*model, migration);
    }
    return described(*model);
  }
  std::map<std::string, std::string> out;
  const auto columns = [&](std::string_view table, std::initializer_list<std::string_view> names) {
    for (const std::string_view name : names) {
      const bool number = name == "version" || name == "bytes" || name == "parts" ||
                          name == "part" || name == "seq" || name == "ordinal" || name == "one" ||
                          name == "entries";
      out[fmt::format("column {}.{}", table, name)] =
          fmt::format("{} NO", number              ? "bigint"
                               : name == "content" ? "bytea"
                                                   : "text");
    }
  };
  columns("migration", {"version"});
  columns("artifact", {"sha256", "bytes", "parts"});
  columns("artifact_part", {"sha256", "part", "content"});
  columns("object", {"seq", "id", "kind", "supersedes", "created_at", "prev", "hash"});
  columns("fact", {"seq", "ordinal", "name", "type", "value", "provenance", "source", "sha256"});
  columns("head", {"one", "entries", "hash"});
  for (const std::string_view table : kTables) {
    out[fmt::format("trigger {}_append_only", table)] = std::string("O");
  }
  out["trigger head_forwards"] = std::string("O");
  return out;
}

}  // namespace

int64_t schema_version(Database& database) {
  const std::string there =
      database.postgresql()
          ? "SELECT 1 FROM information_schema.tables WHERE table_schema = current_schema() AND "
            "table_name = 'migration'"
          : "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'migration'";
  if (database.all(there).empty()) return 0;
  const auto rows = database.all("SELECT max(version) FROM migration");
  const auto* version = std::get_if<int64_t>(&rows.at(0).at(0));
  if (!version) throw Damaged(fmt::format("{}: no version in it", shorten(database.name())));
  return *version;
}

void migrate(Database& database, int64_t version) {
  const int64_t has = schema_version(database);
  if (has > kSchemaVersion) {
    throw Error(ExitCode::bad_file,
                fmt::format("{}: a ledger of version {}; this lockstep knows up to {}: use a later "
                            "one",
                            shorten(database.name()), has, kSchemaVersion));
  }
  for (const Migration& migration : migrations()) {
    if (migration.version > has && migration.version <= version) apply(database, migration);
  }
}

std::vector<std::string> schema_differences(Database& database, int64_t version) {
  const auto is = described(database), should = expected(database, version);
  std::vector<std::string> out;
  for (const auto& [name, definition] : should) {
    const auto at = is.find(name);
    if (at == is.end()) {
      out.push_back(fmt::format("schema: the {} is not there", name));
    } else if (at->second != definition) {
      out.push_back(fmt::format("schema: the {} is not what the ledger made: {}", name,
                                escape(at->second, 200)));
    }
  }
  for (const auto& [name, definition] : is) {
    if (!should.contains(name))
      out.push_back(fmt::format("schema: a {} that is not its own", escape(name, 100)));
  }
  return out;
}

}  // namespace lockstep::lab
