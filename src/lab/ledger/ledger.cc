#include "lab/ledger/ledger.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "lab/ledger/schema.h"
#include "lab/results/kinds.h"

namespace lockstep::lab {
namespace {

constexpr size_t kPart = size_t{256} << 10;
constexpr int64_t kBatch = 2000;  // entries read at a time

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

const std::string& text_of(const Cell& cell) {
  const auto* text = std::get_if<std::string>(&cell);
  if (!text) throw Damaged("a text of the ledger is none; lockstep lab verify says which");
  return *text;
}

int64_t integer_of(const Cell& cell) {
  const auto* number = std::get_if<int64_t>(&cell);
  if (!number) throw Damaged("a number of the ledger is none; lockstep lab verify says which");
  return *number;
}

constexpr std::string_view kEntryColumns =
    "SELECT o.seq, o.id, o.kind, o.supersedes, o.created_at, o.prev, o.hash, f.name, f.type, "
    "f.value, f.provenance, f.source FROM object o LEFT JOIN fact f ON f.seq = o.seq WHERE ";

// Puts the rows of kEntryColumns together.
class EntryReader {
 public:
  explicit EntryReader(const std::function<void(const Entry&)>& done) : done_(done) {}
  void row(const Cells& cells) {
    const int64_t seq = integer_of(cells[0]);
    if (!entry_ || entry_->seq != seq) {
      finish();
      const auto kind = kind_named(text_of(cells[2]));
      if (!kind) throw Damaged(fmt::format("entry {} is of no known kind", seq));
      entry_.emplace();
      entry_->seq = seq;
      entry_->id = text_of(cells[1]);
      entry_->object = Object(*kind);
      entry_->object.supersede(text_of(cells[3]));
      entry_->created_at = text_of(cells[4]);
      entry_->prev = text_of(cells[5]);
      entry_->hash = text_of(cells[6]);
    }
    if (std::holds_alternative<std::monostate>(cells[7])) return;  // an entry without facts
    const auto type = fact_type_named(text_of(cells[8]));
    const auto provenance = provenance_named(text_of(cells[10]));
    if (!type || !provenance) {
      throw Damaged(fmt::format("entry {} has a fact of no known type or provenance", seq));
    }
    entry_->object.set(
        {text_of(cells[7]), *type, text_of(cells[9]), *provenance, text_of(cells[11])});
  }
  void finish() {
    if (entry_) done_(*entry_);
    entry_.reset();
  }

 private:
  const std::function<void(const Entry&)>& done_;
  std::optional<Entry> entry_;
};

}  // namespace

std::string chain_hash(std::string_view prev, int64_t seq, std::string_view id,
                       std::string_view created_at) {
  return text_sha256(fmt::format("{}\n{}\n{}\n{}\n", prev, seq, id, created_at));
}

Ledger::Ledger(const std::string& where, Database::Mode mode)
    : database_(Database::open(where, mode)) {
  if (schema_version(*database_) < kSchemaVersion && mode == Database::Mode::create) {
    // Another writer may be at it: looked at again when it is this one's turn.
    Transaction transaction(*database_, Transaction::Kind::write);
    migrate(*database_);
    transaction.commit();
  }
  const int64_t version = schema_version(*database_);
  if (version == 0) {
    throw Error(ExitCode::bad_use, fmt::format("{}: no ledger in it yet; make it with lockstep lab "
                                               "init",
                                               shorten(database_->name())));
  }
  if (version > kSchemaVersion) migrate(*database_);  // says so
}

Head Ledger::head() {
  const auto rows = database_->all(
      "SELECT entries, hash, (SELECT coalesce(max(seq), 0) FROM object) FROM head WHERE one = 1");
  if (rows.size() != 1) throw Damaged("the ledger has no head; lockstep lab verify says more");
  const int64_t entries = integer_of(rows[0][0]), last = integer_of(rows[0][2]);
  if (entries > last) {
    throw Damaged(
        fmt::format("the ledger's head says {} entries and the last is {}; lockstep lab verify "
                    "says more",
                    entries, last));
  }
  return {entries, text_of(rows[0][1])};
}

std::map<std::string, int64_t> Ledger::counts() {
  std::map<std::string, int64_t> out;
  database_->query("SELECT kind, count(*) FROM object GROUP BY kind", {},
                   [&](const Cells& row) { out[text_of(row[0])] = integer_of(row[1]); });
  return out;
}

std::string Ledger::resolve(std::string_view text) {
  if (text.starts_with('#')) {
    const auto seq = read_integer(text.substr(1));
    const auto rows =
        seq ? database_->all("SELECT id FROM object WHERE seq = $1", {*seq}) : std::vector<Cells>{};
    if (rows.empty()) {
      throw Error(ExitCode::bad_use, fmt::format("{}: no entry of that number", shorten(text)));
    }
    return text_of(rows[0][0]);
  }
  if (text.size() < 4 || text.size() > 64 ||
      text.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    throw Error(ExitCode::bad_use,
                fmt::format("{}: no id; give the first digits (4 at least) of one, or #NUMBER",
                            shorten(text)));
  }
  std::vector<std::string> found;
  const std::string low(text), high = low + "g";
  database_->query("SELECT id FROM object WHERE id >= $1 AND id < $2 ORDER BY seq LIMIT 5",
                   Cells{low, high}, [&](const Cells& row) { found.push_back(text_of(row[0])); });
  if (found.size() == 1) return found[0];
  if (found.empty()) {
    throw Error(ExitCode::bad_use, fmt::format("{}: no entry has an id that begins so", text));
  }
  std::string list;
  for (const std::string& id : found) list += (list.empty() ? "" : ", ") + id.substr(0, 16);
  throw Error(ExitCode::bad_use,
              fmt::format("{}: several ids begin so ({}…); give more digits", text, list));
}

std::optional<Entry> Ledger::find(std::string_view id) {
  std::optional<Entry> found;
  const std::function<void(const Entry&)> keep = [&](const Entry& entry) { found = entry; };
  EntryReader reader(keep);
  database_->query(fmt::format("{} o.id = $1 ORDER BY f.ordinal", kEntryColumns),
                   Cells{std::string(id)}, [&](const Cells& row) { reader.row(row); });
  reader.finish();
  return found;
}

void Ledger::each(std::optional<Kind> kind, const std::function<void(const Entry&)>& entry) {
  const int64_t entries = head().entries;
  EntryReader reader(entry);
  std::string sql = fmt::format("{} o.seq > $1 AND o.seq <= $2 {} ORDER BY o.seq, f.ordinal",
                                kEntryColumns, kind ? "AND o.kind = $3" : "");
  for (int64_t from = 0; from < entries; from += kBatch) {
    Cells parameters{from, from + kBatch};
    if (kind) parameters.emplace_back(std::string(name_of(*kind)));
    database_->query(sql, parameters, [&](const Cells& row) { reader.row(row); });
    reader.finish();
  }
}

std::map<std::string, std::string> Ledger::superseded() {
  std::map<std::string, std::string> out;
  database_->query("SELECT supersedes, id FROM object WHERE supersedes <> ''", {},
                   [&](const Cells& row) { out[text_of(row[0])] = text_of(row[1]); });
  return out;
}

bool Ledger::has_artifact(std::string_view sha256) {
  return !database_->all("SELECT 1 FROM artifact WHERE sha256 = $1", Cells{std::string(sha256)})
              .empty();
}

std::string Ledger::artifact(std::string_view sha256) {
  const auto rows =
      database_->all("SELECT parts FROM artifact WHERE sha256 = $1", Cells{std::string(sha256)});
  if (rows.empty()) {
    throw Error(ExitCode::bad_use, fmt::format("{}: no artifact", shorten(sha256)));
  }
  std::string bytes;
  for (int64_t part = 0; part < integer_of(rows[0][0]); ++part) {
    const auto content =
        database_->all("SELECT content FROM artifact_part WHERE sha256 = $1 AND part = $2",
                       Cells{std::string(sha256), part});
    const auto* blob = content.empty() ? nullptr : std::get_if<Blob>(&content[0][0]);
    if (!blob) throw Damaged(fmt::format("artifact {}: part {} is not there", sha256, part));
    bytes += blob->bytes;
  }
  if (text_sha256(bytes) != sha256) {
    throw Damaged(fmt::format("artifact {}: its bytes are not those that were kept", sha256));
  }
  return bytes;
}

Writer::Writer(Ledger& ledger)
    : ledger_(ledger),
      transaction_(ledger.database(), Transaction::Kind::write),
      head_(ledger.head()),
      start_(head_),
      now_(utc_now()) {}

bool Writer::there(std::string_view id) {
  if (known_.contains(id)) return true;
  if (ledger_.database()
          .all("SELECT 1 FROM object WHERE id = $1", Cells{std::string(id)})
          .empty()) {
    return false;
  }
  known_.emplace(id);
  return true;
}

Writer::Added Writer::add(const Object& object) {
  Database& database = ledger_.database();
  if (const std::string fault = fault_of(object); !fault.empty()) {
    throw Error(ExitCode::bad_use, fault);
  }
  const std::string id = object.id();
  if (there(id)) return {id, false};
  for (const Fact& fact : object.facts()) {
    if (fact.type != FactType::ref || there(fact.value) || known_.contains("a" + fact.value)) {
      continue;
    }
    if (!ledger_.has_artifact(fact.value)) {
      throw Error(ExitCode::bad_use,
                  fmt::format("{}: {} is neither an entry nor an artifact", fact.name, fact.value));
    }
    known_.insert("a" + fact.value);
  }
  if (!object.supersedes().empty()) {
    const auto old = ledger_.find(object.supersedes());
    if (!old || old->object.kind() != object.kind()) {
      throw Error(ExitCode::bad_use,
                  fmt::format("{}: no {} to supersede", object.supersedes().substr(0, 16),
                              name_of(object.kind())));
    }
    if (!database.all("SELECT 1 FROM object WHERE supersedes = $1", Cells{object.supersedes()})
             .empty()) {
      throw Error(ExitCode::bad_use, fmt::format("{}: superseded already; supersede what did it",
                                                 object.supersedes().substr(0, 16)));
    }
  }
  const int64_t seq = head_.entries + 1;
  const std::string hash = chain_hash(head_.hash, seq, id, now_);
  database.execute(
      "INSERT INTO object VALUES ($1, $2, $3, $4, $5, $6, $7)",
      {seq, id, std::string(name_of(object.kind())), object.supersedes(), now_, head_.hash, hash});
  // Many facts a statement: a round trip each would be most of an import.
  constexpr size_t kRows = 16;
  const std::vector<Fact>& facts = object.facts();
  for (size_t begin = 0; begin < facts.size(); begin += kRows) {
    const size_t end = std::min(begin + kRows, facts.size());
    std::string sql = "INSERT INTO fact VALUES ";
    Cells cells;
    for (size_t i = begin; i < end; ++i) {
      sql += i == begin ? "(" : ", (";
      for (int k = 0; k < 8; ++k) {
        sql += fmt::format("{}${}", k ? ", " : "", (i - begin) * 8 + static_cast<size_t>(k) + 1);
      }
      sql += ")";
      const Fact& fact = facts[i];
      cells.insert(cells.end(),
                   {seq, static_cast<int64_t>(i), fact.name, std::string(name_of(fact.type)),
                    fact.value, std::string(name_of(fact.provenance)), fact.source, fact.digest()});
    }
    database.execute(sql, cells);
  }
  head_ = {seq, hash};
  known_.insert(id);
  return {id, true};
}

Writer::Added Writer::add_artifact(std::string_view bytes, std::string_view file) {
  const std::string sha = text_sha256(bytes);
  Object object(Kind::artifact);
  const Origin origin{Provenance::verified, ""};
  object.ref(origin, "sha256", sha);
  object.integer(origin, "bytes", static_cast<int64_t>(bytes.size()));
  if (ledger_.has_artifact(sha)) return {sha, false};
  Database& database = ledger_.database();
  const size_t parts = (bytes.size() + kPart - 1) / kPart;
  database.execute("INSERT INTO artifact VALUES ($1, $2, $3)",
                   {sha, static_cast<int64_t>(bytes.size()), static_cast<int64_t>(parts)});
  for (size_t part = 0; part < parts; ++part) {
    database.execute(
        "INSERT INTO artifact_part VALUES ($1, $2, $3)",
        {sha, static_cast<int64_t>(part), Blob{std::string(bytes.substr(part * kPart, kPart))}});
  }
  object.text({Provenance::reported, ""}, "file", file);
  add(object);
  return {sha, true};
}

void Writer::commit() {
  if (head_ != start_) {
    ledger_.database().execute("UPDATE head SET entries = $1, hash = $2 WHERE one = 1",
                               {head_.entries, head_.hash});
  }
  transaction_.commit();
}

}  // namespace lockstep::lab
