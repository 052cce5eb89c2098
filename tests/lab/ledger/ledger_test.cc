// The chain itself, on SQLite: what the command line cannot reach. Both databases are driven by
// tests/e2e/test_lab_ledger.py.
#include "lab/ledger/ledger.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>

#include "lab/ledger/history.h"
#include "lab/ledger/import.h"
#include "lab/ledger/schema.h"
#include "lab/ledger/verify.h"

using namespace lockstep;
using namespace lockstep::lab;

namespace {

const Origin kLogged{Provenance::logged, "test"};

class LedgerTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "ledger-XXXXXX").string();
    ASSERT_TRUE(mkdtemp(name.data()));
    folder_ = name;
    path_ = (folder_ / "sub" / "ledger.db").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  Ledger open() { return Ledger(path_, Database::Mode::create); }

  static Object row(double rate) {
    Object object(Kind::row);
    object.real(kLogged, "decode_tok_s", rate);
    return object;
  }
  std::filesystem::path folder_;
  std::string path_;
};

TEST_F(LedgerTest, TheChainByHand) {
  Ledger ledger = open();
  Writer writer(ledger);
  const auto first = writer.add(row(100)), second = writer.add(row(101));
  EXPECT_FALSE(writer.add(row(100)).fresh);
  writer.commit();
  const auto a = ledger.find(first.id), b = ledger.find(second.id);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->prev, kFirstPrev);
  EXPECT_EQ(b->prev, a->hash);
  const std::string digest = text_sha256("decode_tok_s\nreal\nlogged\ntest\n100");
  EXPECT_EQ(a->id, text_sha256("row\n\n" + digest + "\n"));
  EXPECT_EQ(a->hash,
            text_sha256(std::string(kFirstPrev) + "\n1\n" + a->id + "\n" + a->created_at + "\n"));
  EXPECT_EQ(ledger.head(), (Head{2, b->hash}));
  EXPECT_EQ(verify_ledger(ledger).fault_count, 0);
}

TEST_F(LedgerTest, WithoutACommitNothingIsThere) {
  Ledger ledger = open();
  {
    Writer writer(ledger);
    writer.add(row(100));
  }
  EXPECT_EQ(ledger.head().entries, 0);
  EXPECT_EQ(verify_ledger(ledger).entries, 0);
}

TEST_F(LedgerTest, RefsLeadSomewhere) {
  Ledger ledger = open();
  Writer writer(ledger);
  Object object = row(1);
  object.ref(kLogged, "run", std::string(64, 'a'));
  EXPECT_THROW(writer.add(object), Error);
  Object wrong = row(1);
  wrong.supersede(std::string(64, 'a'));
  EXPECT_THROW(writer.add(wrong), Error);
}

TEST_F(LedgerTest, SupersedingOnce) {
  Ledger ledger = open();
  Writer writer(ledger);
  const std::string old = writer.add(row(100)).id;
  Object better = row(101);
  better.supersede(old);
  const std::string now = writer.add(better).id;
  Object again = row(102);
  again.supersede(old);
  EXPECT_THROW(writer.add(again), Error);
  writer.commit();
  const Catalog catalog = load_catalog(ledger);
  ASSERT_EQ(catalog.of(Kind::row).size(), 1u);
  EXPECT_EQ(catalog.of(Kind::row)[0]->id, now);
  EXPECT_EQ(catalog.superseded_by(old), now);
}

TEST_F(LedgerTest, AnOlderLedgerIsBroughtForward) {
  {
    const auto database = Database::open(path_, Database::Mode::create);
    Transaction transaction(*database, Transaction::Kind::write);
    migrate(*database, 1);
    transaction.commit();
    EXPECT_EQ(schema_version(*database), 1);
    EXPECT_TRUE(schema_differences(*database, 1).empty());
    EXPECT_FALSE(schema_differences(*database, 2).empty());
  }
  // What only reads leaves it as it is.
  EXPECT_EQ(verify_ledger(*std::make_unique<Ledger>(path_, Database::Mode::read)).fault_count, 0);
  Ledger ledger = open();
  EXPECT_EQ(schema_version(ledger.database()), kSchemaVersion);
  EXPECT_EQ(verify_ledger(ledger).fault_count, 0);
  EXPECT_TRUE(ledger.database().all("SELECT * FROM measured").empty());
}

TEST_F(LedgerTest, ALaterOneIsRefused) {
  { open().database().script("INSERT INTO migration VALUES (99)"); }
  EXPECT_THROW(open(), Error);
  EXPECT_THROW(Ledger(path_, Database::Mode::read), Error);
}

TEST_F(LedgerTest, ArtifactsOfManyParts) {
  Ledger ledger = open();
  std::string bytes(1'000'000, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * i >> 7);
  Writer writer(ledger);
  const auto added = writer.add_artifact(bytes, "big");
  EXPECT_TRUE(added.fresh);
  EXPECT_FALSE(writer.add_artifact(bytes, "again").fresh);
  EXPECT_TRUE(writer.add_artifact("", "empty").fresh);
  writer.commit();
  EXPECT_EQ(ledger.artifact(added.id), bytes);
  EXPECT_EQ(ledger.artifact(text_sha256("")), "");
  const Verification verification = verify_ledger(ledger);
  EXPECT_EQ(verification.fault_count, 0);
  EXPECT_EQ(verification.artifacts, 2);
  EXPECT_EQ(verification.bytes, 1'000'000);
}

TEST_F(LedgerTest, ResolvesBeginningsOfIds) {
  Ledger ledger = open();
  Writer writer(ledger);
  const std::string id = writer.add(row(100)).id;
  writer.commit();
  EXPECT_EQ(ledger.resolve(id.substr(0, 8)), id);
  EXPECT_EQ(ledger.resolve("#1"), id);
  for (const std::string_view bad : {"#2", "#x", "abc", "zzzz", ""}) {
    EXPECT_THROW(ledger.resolve(bad), Error) << bad;
  }
}

// What a record has to stand on, one fault at a time.
class RecordTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const std::string_view key : kIdentityKeys) {
      identity_.text(kLogged, "effective." + std::string(key), "x");
    }
    identity_.text(kLogged, "effective.draft.source", "");
  }
  std::vector<std::string> faults() {
    Catalog catalog;
    catalog.add(identity_.id(), identity_);
    Object first(Kind::row), second(Kind::row);
    first.real({rate_, "test"}, "decode_tok_s", 100);
    second.real(kLogged, "decode_tok_s", 101);
    catalog.add(first.id(), first);
    catalog.add(second.id(), second);
    const std::string confirmed = same_rows_ ? first.id() : second.id();
    Object record(Kind::record);
    record.ref(kLogged, "row", first.id()).ref(kLogged, "identity", identity_.id());
    for (const std::string_view name : {"level", "effect", "selected", "confirmed", "expected"}) {
      record.real({figures_, "test"}, name, 100);
    }
    record.json(kLogged, "selection_rows", "[\"" + first.id() + "\"]");
    record.json(kLogged, "confirmation_rows", "[\"" + confirmed + "\"]");
    return record_faults(catalog, record);
  }
  Object identity_{Kind::identity};
  Provenance rate_ = Provenance::logged, figures_ = Provenance::verified;
  bool same_rows_ = false;
};
TEST_F(RecordTest, Stands) {
  EXPECT_TRUE(faults().empty()) << faults()[0];
}
TEST_F(RecordTest, NotOnWhatIsReported) {
  rate_ = Provenance::reported;
  EXPECT_EQ(faults().size(), 1u);
  rate_ = Provenance::logged;
  figures_ = Provenance::inferred;
  EXPECT_EQ(faults().size(), 5u);
}
TEST_F(RecordTest, NotWithoutAFullIdentity) {
  identity_.absent(kLogged, "effective.model.sha256", "not known");
  EXPECT_EQ(faults(), std::vector<std::string>{"its identity lacks model.sha256"});
}
TEST_F(RecordTest, NotWithReportedIdentity) {
  identity_.text({Provenance::reported, ""}, "effective.device", "b70");
  EXPECT_EQ(faults(), std::vector<std::string>{"device of its identity is reported"});
}
TEST_F(RecordTest, NotConfirmedByWhatSelectedIt) {
  same_rows_ = true;
  ASSERT_EQ(faults().size(), 1u);
  EXPECT_NE(faults()[0].find("selected it and confirmed it"), std::string::npos);
}

}  // namespace
