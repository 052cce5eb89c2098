// The ledger: an append-only chain of objects and the artifacts they speak of.
//
// An entry's hash is the SHA-256 of the lines prev, seq, id and created_at; its id that of its
// kind, what it supersedes and the digests of its facts (lab/results/object.h). So a changed value
// changes a digest, that the id, that the hash of this entry and of every later one:
// docs/lab-ledger.md does it by hand.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "lab/ledger/database.h"
#include "lab/results/object.h"

namespace lockstep::lab {

inline constexpr std::string_view kFirstPrev =
    "0000000000000000000000000000000000000000000000000000000000000000";

struct Entry {
  int64_t seq = 0;  // from 1, without gaps
  std::string id, created_at, prev, hash;
  Object object{Kind::row};
};

struct Head {
  int64_t entries = 0;
  std::string hash;
  bool operator==(const Head&) const = default;
};

// The hash of an entry.
std::string chain_hash(std::string_view prev, int64_t seq, std::string_view id,
                       std::string_view created_at);

class Ledger {
 public:
  // Mode::create makes the tables where there are none, and brings an older ledger forward. Errors
  // as Database::open; Error(bad_use) in Mode::read where a database has no ledger in it.
  Ledger(const std::string& where, Database::Mode mode);

  Database& database() { return *database_; }
  Head head();
  std::map<std::string, int64_t> counts();  // entries by kind
  // The id that an id's beginning (at least 4 digits) or "#SEQ" means. Error(bad_use) where none or
  // several do.
  std::string resolve(std::string_view text);
  std::optional<Entry> find(std::string_view id);
  // In the order in which they were written.
  void each(std::optional<Kind> kind, const std::function<void(const Entry&)>& entry);
  // Ids that a later entry supersedes, and by which.
  std::map<std::string, std::string> superseded();
  bool has_artifact(std::string_view sha256);
  // An artifact's bytes; Error(bad_use) where it is not there.
  std::string artifact(std::string_view sha256);

 private:
  std::unique_ptr<Database> database_;
};

// One write: all of it or nothing. While it lives no other writer moves the chain.
class Writer {
 public:
  explicit Writer(Ledger& ledger);

  struct Added {
    std::string id;
    bool fresh;  // false: the same content was there already
  };
  // Throws Error(bad_use) where the object is not what its kind may be (kinds.h), where a ref leads
  // nowhere, and where what it supersedes is not there, of another kind or superseded already.
  Added add(const Object& object);
  // Keeps bytes under their SHA-256; `file` is the name they came by.
  Added add_artifact(std::string_view bytes, std::string_view file);
  void commit();

 private:
  bool there(std::string_view id);

  Ledger& ledger_;
  Transaction transaction_;
  Head head_;
  Head start_;
  std::string now_;
  std::set<std::string, std::less<>> known_;  // ids that are there
};

}  // namespace lockstep::lab
