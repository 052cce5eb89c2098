#include "lab/ledger/verify.h"

#include <fmt/format.h>

#include <fstream>
#include <map>
#include <set>

#include "base/sha256.h"
#include "lab/ledger/schema.h"
#include "lab/results/kinds.h"

namespace lockstep::lab {
namespace {

class Verifier {
 public:
  Verifier(Ledger& ledger, const std::function<void(int64_t, int64_t)>& progress)
      : ledger_(ledger), database_(ledger.database()), progress_(progress) {}

  Verification run() {
    // Each part by itself, so that damage in one does not hide what is wrong in another.
    part([&] { check_file_header(); });
    Transaction transaction(database_, Transaction::Kind::read);
    part([&] { check_structure(); });
    part([&] { check_schema(); });
    part([&] { read_head(); });
    part([&] { check_chain(); });
    part([&] { check_strays(); });
    part([&] { check_artifacts(); });
    part([&] { check_refs(); });
    return std::move(out_);
  }

 private:
  struct Row {  // of table object
    int64_t seq = 0;
    std::string id, kind, supersedes, created_at, prev, hash;
  };
  struct FactRow {
    int64_t ordinal = 0;
    std::string name, type, value, provenance, source, sha256;
  };

  template <typename Body>
  void part(Body body) {
    try {
      body();
    } catch (const Error& error) {
      fault(0, "", "", error.what());
    }
  }

  void fault(int64_t seq, const std::string& id, std::string_view field, std::string_view text) {
    ++out_.fault_count;
    if (out_.faults.size() < Verification::kMaxFaults) {
      out_.faults.push_back({seq, id, escape(field, 200), escape(text, 500)});
    }
  }

  // A cell of the type that its column has. SQLite keeps what it is given, and a flipped bit makes
  // a text of the same bytes a blob.
  template <typename T>
  const T& cell(const Cells& cells, size_t i, int64_t seq, std::string_view column) {
    if (const T* value = std::get_if<T>(&cells[i])) return *value;
    fault(seq, "", column, fmt::format("entry {}: {} has a value of another type", seq, column));
    static const T none{};
    return none;
  }

  // https://sqlite.org/fileformat2.html#the_database_header: what integrity_check does not look at.
  void check_file_header() {
    if (database_.postgresql()) return;
    std::ifstream file(database_.name(), std::ios::binary);
    std::string head(100, '\0');
    if (!file.read(head.data(), 100)) {
      fault(0, "", "", "the file's header cannot be read");
      return;
    }
    const auto number = [&](size_t at) {
      uint32_t value = 0;
      for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(head[at + i]);
      return value;
    };
    const auto expect = [&](bool holds, size_t at, std::string_view what) {
      if (!holds) {
        fault(0, "", "header", fmt::format("the file's header, byte {}: {} was changed", at, what));
      }
    };
    expect(head[18] == 1 && head[19] == 1, 18, "the file format's version");
    expect(head[20] == 0, 20, "the reserved space");
    expect(head[21] == 64 && head[22] == 32 && head[23] == 32, 21, "a payload fraction");
    // Both are written at the end of every transaction.
    expect(number(24) == number(92), 24, "the change counter");
    expect(number(44) == 4, 44, "the schema's format");
    expect(number(48) == 0 && number(52) == 0 && number(64) == 0, 48, "a setting");
    expect(number(56) == 1, 56, "the encoding");
    expect(number(60) == 0, 60, "the user version");
    expect(number(68) == 0x4C636B6C, 68, "the application's mark");
    for (size_t at = 72; at < 92; ++at) expect(head[at] == 0, at, "the reserved space");
  }

  void check_structure() {
    if (database_.postgresql()) return;
    database_.query("PRAGMA integrity_check", {}, [&](const Cells& row) {
      const auto* text = std::get_if<std::string>(&row[0]);
      if (text && *text != "ok") fault(0, "", "", fmt::format("the file: {}", *text));
    });
  }

  void check_schema() {
    int64_t version = 0;
    database_.query("SELECT version FROM migration ORDER BY version", {}, [&](const Cells& row) {
      if (cell<int64_t>(row, 0, 0, "migration.version") != ++version) {
        fault(0, "", "migration.version", "the versions of the schema are not 1, 2, …");
      }
    });
    for (const std::string& difference : schema_differences(database_, version)) {
      fault(0, "", "", difference);
    }
  }

  void read_head() {
    const auto rows = database_.all("SELECT one, entries, hash FROM head");
    if (rows.size() != 1 || cell<int64_t>(rows[0], 0, 0, "head.one") != 1) {
      fault(0, "", "head", "the head has to be one row");
      return;
    }
    said_ = {cell<int64_t>(rows[0], 1, 0, "head.entries"),
             cell<std::string>(rows[0], 2, 0, "head.hash")};
  }

  void check_chain() {
    constexpr int64_t kBatch = 2000;
    out_.head.hash = kFirstPrev;
    int64_t last = 0;
    while (true) {
      std::vector<Row> rows;
      database_.query(
          "SELECT seq, id, kind, supersedes, created_at, prev, hash FROM object WHERE seq > $1 "
          "ORDER BY seq LIMIT 2000",
          Cells{last}, [&](const Cells& cells) {
            Row row;
            row.seq = cell<int64_t>(cells, 0, 0, "seq");
            row.id = cell<std::string>(cells, 1, row.seq, "id");
            row.kind = cell<std::string>(cells, 2, row.seq, "kind");
            row.supersedes = cell<std::string>(cells, 3, row.seq, "supersedes");
            row.created_at = cell<std::string>(cells, 4, row.seq, "created_at");
            row.prev = cell<std::string>(cells, 5, row.seq, "prev");
            row.hash = cell<std::string>(cells, 6, row.seq, "hash");
            rows.push_back(std::move(row));
          });
      if (rows.empty()) break;
      std::map<int64_t, std::vector<FactRow>> facts;
      database_.query(
          "SELECT seq, ordinal, name, type, value, provenance, source, sha256 FROM fact WHERE seq "
          "> "
          "$1 AND seq <= $2 ORDER BY seq, ordinal",
          Cells{last, rows.back().seq}, [&](const Cells& cells) {
            const int64_t seq = cell<int64_t>(cells, 0, 0, "fact.seq");
            FactRow fact;
            fact.ordinal = cell<int64_t>(cells, 1, seq, "fact.ordinal");
            fact.name = cell<std::string>(cells, 2, seq, "fact.name");
            fact.type = cell<std::string>(cells, 3, seq, fact.name + ".type");
            fact.value = cell<std::string>(cells, 4, seq, fact.name + ".value");
            fact.provenance = cell<std::string>(cells, 5, seq, fact.name + ".provenance");
            fact.source = cell<std::string>(cells, 6, seq, fact.name + ".source");
            fact.sha256 = cell<std::string>(cells, 7, seq, fact.name + ".sha256");
            facts[seq].push_back(std::move(fact));
          });
      for (size_t i = 0; i < rows.size(); ++i) {
        const std::string* next = i + 1 < rows.size() ? &rows[i + 1].prev : nullptr;
        check_entry(rows[i], facts[rows[i].seq], next);
        if (progress_ && rows[i].seq % 500 == 0) progress_(rows[i].seq, said_.entries);
      }
      last = rows.back().seq;
      if (static_cast<int64_t>(rows.size()) < kBatch) break;
    }
    if (said_.entries != out_.entries) {
      fault(0, "", "head.entries",
            fmt::format("the head says {} entries, there are {}: entries were cut off or added "
                        "without it",
                        said_.entries, out_.entries));
    } else if (said_.hash != out_.head.hash) {
      fault(0, "", "head.hash", "the head's hash is not the last entry's");
    }
    out_.head.entries = out_.entries;
  }

  void check_entry(const Row& row, const std::vector<FactRow>& facts,
                   const std::string* next_prev) {
    ++out_.entries;
    const auto said = [&](std::string_view field, std::string_view what) {
      fault(row.seq, row.id, field,
            fmt::format("entry {} ({} {}): {}", row.seq, row.kind, row.id.substr(0, 12), what));
    };
    if (row.seq != expected_seq_) {
      said("seq",
           row.seq == expected_seq_ + 1
               ? fmt::format("entry {} is missing before it", expected_seq_)
               : fmt::format("entries {} to {} are missing before it", expected_seq_, row.seq - 1));
      expected_seq_ = row.seq;
    }
    ++expected_seq_;

    // The digests as the fields give them now, and as they were written.
    std::string now = fmt::format("{}\n{}\n", row.kind, row.supersedes), written = now;
    std::vector<std::string> changed;
    int64_t ordinal = 0;
    bool order = true;
    for (const FactRow& fact : facts) {
      ++out_.facts;
      order &= fact.ordinal == ordinal++;
      const std::string digest = text_sha256(fmt::format("{}\n{}\n{}\n{}\n{}", fact.name, fact.type,
                                                         fact.provenance, fact.source, fact.value));
      if (digest != fact.sha256) changed.push_back(fact.name);
      now += digest + "\n", written += fact.sha256 + "\n";
      if (fact.type == "ref" && fact.name != "sha256") refs_[fact.value] = row.seq;
      if (fact.name == "sha256" && row.kind == "artifact") artifacts_[fact.value] = row.seq;
    }
    if (!order)
      said("fact.ordinal", "its fields are not numbered 0, 1, …: one was added or removed");
    const bool id_now = text_sha256(now) == row.id, id_written = text_sha256(written) == row.id;
    for (const std::string& name : changed) {
      said(name,
           id_now ? fmt::format("the digest of the field {} was edited; the field is whole", name)
                  : fmt::format("the field {} is not what was written", name));
    }
    const std::string hash = chain_hash(row.prev, row.seq, row.id, row.created_at);
    if (!id_now && !(id_written && !changed.empty())) {
      // With the id as it was written (the hash agrees) it is what the id is made of that changed.
      said(hash == row.hash ? "kind" : "id",
           changed.empty() && order
               ? (hash == row.hash ? "its kind, what it supersedes, or the list of its fields is "
                                     "not what was written"
                                   : "its id is not that of its content")
               : "its id is not that of its content");
    }
    if (row.prev != out_.head.hash) {
      // A missing entry before it has been said.
      said("prev", hash == row.hash ? "the entry before it is not the one it was written after"
                                    : "its link to the entry before it (prev) was edited");
    } else if (hash != row.hash) {
      const bool hash_edited = next_prev && *next_prev == hash;
      if (hash_edited) {
        said("hash", "its hash was edited");
      } else if (id_now) {
        said("created_at", "its created_at or hash is not what was written");
      } else {
        said("id", "its id or hash is not what was written");
      }
    }
    const auto kind = kind_named(row.kind);
    if (!kind) said("kind", "no known kind");
    // Goes on from what this entry should have been, so that one edit is one fault and not one of
    // every entry after it.
    out_.head.hash = next_prev && *next_prev == hash ? hash : row.hash;
    ids_.insert(row.id);
    if (!row.supersedes.empty()) refs_[row.supersedes] = row.seq;
  }

  void check_strays() {
    database_.query(
        "SELECT f.seq, f.name FROM fact f WHERE NOT EXISTS (SELECT 1 FROM object o WHERE o.seq = "
        "f.seq) LIMIT 100",
        {}, [&](const Cells& row) {
          const int64_t seq = cell<int64_t>(row, 0, 0, "fact.seq");
          fault(seq, "", "fact.seq",
                fmt::format("a field {} of entry {}, which is not there",
                            shorten(cell<std::string>(row, 1, seq, "fact.name")), seq));
        });
  }

  void check_artifacts() {
    std::vector<Cells> rows = database_.all("SELECT sha256, bytes, parts FROM artifact");
    std::set<std::string> there;
    int64_t parts_in_all = 0;
    for (const Cells& cells : rows) {
      const std::string sha = cell<std::string>(cells, 0, 0, "artifact.sha256");
      const int64_t bytes = cell<int64_t>(cells, 1, 0, "artifact.bytes");
      const int64_t parts = cell<int64_t>(cells, 2, 0, "artifact.parts");
      const auto said = [&](std::string_view field, std::string_view what) {
        const auto entry = artifacts_.find(sha);
        fault(entry == artifacts_.end() ? 0 : entry->second, sha, field,
              fmt::format("artifact {}: {}", sha.substr(0, 16), what));
      };
      there.insert(sha);
      ++out_.artifacts;
      Sha256 hash;
      int64_t size = 0, part = 0;
      for (; part < parts; ++part) {
        const auto content = database_.all(
            "SELECT content FROM artifact_part WHERE sha256 = $1 AND part = $2", Cells{sha, part});
        if (content.empty()) {
          said("artifact_part", fmt::format("part {} of {} is not there", part, parts));
          break;
        }
        const Blob& blob = cell<Blob>(content[0], 0, 0, "artifact_part.content");
        hash.update(std::as_bytes(std::span(blob.bytes.data(), blob.bytes.size())));
        size += static_cast<int64_t>(blob.bytes.size());
        ++parts_in_all;
      }
      out_.bytes += size;
      if (part == parts && to_hex(hash.finish()) != sha) {
        said("content", "its bytes are not those that were kept");
      }
      if (size != bytes) said("bytes", fmt::format("{} bytes, where {} are said", size, bytes));
      if (!artifacts_.contains(sha)) said("sha256", "no entry speaks of it");
    }
    for (const auto& [sha, seq] : artifacts_) {
      if (!there.contains(sha)) {
        fault(seq, sha, "artifact",
              fmt::format("artifact {} of entry {} is not there", sha.substr(0, 16), seq));
      }
    }
    const auto count = database_.all("SELECT count(*) FROM artifact_part");
    if (cell<int64_t>(count[0], 0, 0, "artifact_part") != parts_in_all) {
      fault(0, "", "artifact_part", "there are parts that belong to no artifact");
    }
    artifact_shas_ = std::move(there);
  }

  void check_refs() {
    for (const auto& [id, seq] : refs_) {
      if (!ids_.contains(id) && !artifact_shas_.contains(id)) {
        fault(seq, "", "",
              fmt::format("entry {} speaks of {}, which is not there", seq,
                          shorten(id.substr(0, 16))));
      }
    }
  }

  Ledger& ledger_;
  Database& database_;
  const std::function<void(int64_t, int64_t)>& progress_;
  Verification out_;
  Head said_;
  int64_t expected_seq_ = 1;
  std::set<std::string> ids_, artifact_shas_;
  std::map<std::string, int64_t> refs_, artifacts_;
};

}  // namespace

Verification verify_ledger(Ledger& ledger, const std::function<void(int64_t, int64_t)>& progress) {
  return Verifier(ledger, progress).run();
}

}  // namespace lockstep::lab
