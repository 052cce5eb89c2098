#include "lab/ledger/import.h"

#include <nlohmann/json.hpp>

#include "lab/results/reader.h"

namespace lockstep::lab {
namespace {

// Rises when the readers make something else of the same bytes: then a file may be imported again.
constexpr int64_t kImporter = 1;

bool imported_before(Database& database, const std::string& artifact) {
  return !database
              .all(
                  "SELECT 1 FROM object o JOIN fact a ON a.seq = o.seq AND a.name = 'artifact' "
                  "JOIN "
                  "fact v ON v.seq = o.seq AND v.name = 'importer' WHERE o.kind = 'import' AND "
                  "a.value = $1 AND v.value = $2",
                  Cells{artifact, std::to_string(kImporter)})
              .empty();
}

}  // namespace

Imported import_result(Ledger& ledger, std::string_view file, std::string_view bytes) {
  // Read before the ledger is held: reading may take a while, and may throw.
  const Reading reading = read_result(file, bytes);
  Imported out;
  out.file = clean_text(file);
  out.artifact = reading.artifact;
  out.format = reading.format;
  out.skipped = static_cast<int64_t>(reading.skipped);
  out.notes = reading.notes;
  Writer writer(ledger);
  if (imported_before(ledger.database(), reading.artifact)) {
    out.already = true;
    return out;
  }
  writer.add_artifact(bytes, out.file);
  for (const Object& object : reading.objects) {
    const Writer::Added added = writer.add(object);
    ++(added.fresh ? out.added : out.known);
    if (added.fresh) ++out.kinds[std::string(name_of(object.kind()))];
  }
  const Origin origin{Provenance::verified, ""};
  Object import(Kind::import);
  import.ref(origin, "artifact", reading.artifact);
  import.text(origin, "file", out.file);
  import.text(origin, "format", reading.format);
  import.integer(origin, "importer", kImporter);
  import.integer(origin, "objects", out.added);
  import.integer(origin, "skipped", out.skipped);
  import.json(
      origin, "notes",
      nlohmann::json(reading.notes).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  writer.add(import);
  writer.commit();
  return out;
}

Catalog load_catalog(Ledger& ledger) {
  Catalog catalog;
  Transaction transaction(ledger.database(), Transaction::Kind::read);
  ledger.each(std::nullopt, [&](const Entry& entry) {
    if (entry.object.kind() != Kind::artifact && entry.object.kind() != Kind::import) {
      catalog.add(entry.id, entry.object);
    }
  });
  return catalog;
}

}  // namespace lockstep::lab
