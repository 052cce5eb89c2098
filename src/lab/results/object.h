// What the lab remembers: typed objects made of facts, each fact with where it comes from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::lab {

// Where a fact comes from. Only the first two can support a record.
enum class Provenance : uint8_t {
  verified,  // measured or checked by the lab itself
  logged,    // read in something an engine wrote: a log, a result file
  reported,  // somebody says so
  inferred,  // worked out from other facts (a run's name, a count)
};
inline constexpr std::string_view kProvenances[] = {"verified", "logged", "reported", "inferred"};

enum class FactType : uint8_t {
  text,
  integer,  // decimal
  real,     // the shortest decimal that reads back as the same binary64
  boolean,  // "true" or "false"
  json,     // a JSON value, as one line
  ref,      // the id of another object, or the SHA-256 of an artifact
  absent,   // not known; the value says why. Absent is not zero
};
inline constexpr std::string_view kFactTypes[] = {"text", "integer", "real",  "boolean",
                                                  "json", "ref",     "absent"};

enum class Kind : uint8_t {
  artifact,   // bytes kept under their SHA-256
  import,     // a file was read: what was made of it
  identity,   // what ran: requested, effective, receipts
  row,        // one request
  run,        // one server life and what is known of it as a whole
  block,      // paired runs
  candidate,  // what changes
  verdict,    // better, not_better, unknown, inexact, invalid, fault
  record,     // an effect that the lab proved
  oracle,     // tokens that a prompt gives with drafting off
  claim,      // a record that somebody else says
};
inline constexpr std::string_view kKinds[] = {"artifact", "import", "identity",  "row",
                                              "run",      "block",  "candidate", "verdict",
                                              "record",   "oracle", "claim"};

std::string_view name_of(Provenance provenance);
std::string_view name_of(FactType type);
std::string_view name_of(Kind kind);
std::optional<Provenance> provenance_named(std::string_view name);
std::optional<FactType> fact_type_named(std::string_view name);
std::optional<Kind> kind_named(std::string_view name);

// Where facts that are set together come from: `source` says the place, "ARTIFACT:line 12" or
// words.
struct Origin {
  Provenance provenance = Provenance::reported;
  std::string source;
};

struct Fact {
  std::string name;
  FactType type = FactType::text;
  std::string value;  // UTF-8 without NUL, for `absent` the reason
  Provenance provenance = Provenance::reported;
  std::string source;

  bool known() const { return type != FactType::absent; }
  std::optional<double> number() const;    // of integer and real
  std::optional<int64_t> integer() const;  // of integer
  std::optional<bool> boolean() const;
  // SHA-256, as hex, of the lines name, type, provenance, source, value (the last without a newline
  // after it): what the ledger's chain is made of.
  std::string digest() const;
};

// Lines joined by newlines are hashed: a newline inside a name or source would make two facts look
// alike, so those are kept out.
class Object {
 public:
  explicit Object(Kind kind) : kind_(kind) {}

  // Each sets a fact once; setting one again replaces it. Text that is not UTF-8 has U+FFFD in its
  // place, NUL too. Throws Error(bad_file) where a value is longer than kMaxValue bytes.
  Object& text(const Origin& origin, std::string_view name, std::string_view value);
  Object& integer(const Origin& origin, std::string_view name, int64_t value);
  Object& real(const Origin& origin, std::string_view name, double value);  // finite
  Object& boolean(const Origin& origin, std::string_view name, bool value);
  Object& json(const Origin& origin, std::string_view name, std::string_view dumped);
  Object& ref(const Origin& origin, std::string_view name, std::string_view id);
  Object& absent(const Origin& origin, std::string_view name, std::string_view why);
  Object& set(Fact fact);

  Kind kind() const { return kind_; }
  const std::string& supersedes() const { return supersedes_; }
  void supersede(std::string_view id) { supersedes_ = id; }
  const std::vector<Fact>& facts() const { return facts_; }
  const Fact* find(std::string_view name) const;  // null where it was never said
  // A known fact's value, or "".
  std::string value(std::string_view name) const;
  // The object's content address, 64 hex digits: SHA-256 of the lines kind, supersedes, and the
  // digest of each fact in order, each line ended by a newline. The same content has the same id.
  std::string id() const;

 private:
  Kind kind_;
  std::string supersedes_;
  std::vector<Fact> facts_;
};

inline constexpr size_t kMaxValue = size_t{1} << 20;

// SHA-256 of a text, as hex.
std::string text_sha256(std::string_view text);
// UTF-8 without NUL: bad bytes and NUL become U+FFFD.
std::string clean_text(std::string_view text);
// The shortest decimal that reads back as the same number; "-0" is "0".
std::string shortest(double value);
// A whole text as a finite number, or nothing.
std::optional<double> read_number(std::string_view text);
std::optional<int64_t> read_integer(std::string_view text);

}  // namespace lockstep::lab
