// Objects that can be looked up by their ids, and the links between them: what a ledger or a result
// file holds, in memory.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lab/results/fingerprint.h"
#include "lab/results/object.h"
#include "lab/results/reader.h"

namespace lockstep::lab {

class Catalog {
 public:
  Catalog() = default;
  explicit Catalog(const Reading& reading);
  void add(std::string id, Object object);

  struct Item {
    std::string id;
    Object object;
  };
  const std::vector<Item>& items() const { return items_; }
  // In the order in which they were added; superseded ones are left out.
  std::vector<const Item*> of(Kind kind) const;
  const Item* find(std::string_view id) const;
  // What the field of `object` leads to, or null.
  const Item* follow(const Object& object, std::string_view field) const;
  // The one that superseded it, or "".
  std::string superseded_by(std::string_view id) const;
  // A row's own identity or its run's; of a run its own; of an identity itself. Null where none.
  const Item* identity_of(const Item& item) const;
  // The candidate of a row, a run or a verdict.
  const Item* candidate_of(const Item& item) const;
  const Item* run_of(const Item& item) const;

 private:
  std::vector<Item> items_;
  std::map<std::string, size_t, std::less<>> by_id_;
  std::map<std::string, std::string, std::less<>> superseded_;
};

// The settings of a candidate, sorted.
std::vector<Setting> settings_of(const Object& candidate);

// Everything that two things can differ in, by name: the identity's requested and effective values
// and receipts, the candidate's settings and change, lane, device. Absent facts too.
std::map<std::string, Fact> traits_of(const Catalog& catalog, const Catalog::Item& item);

struct Difference {
  std::string name;
  const Fact* a;  // null: never said
  const Fact* b;
  bool same;
};
// Over all names that either has, in order.
std::vector<Difference> differences(const std::map<std::string, Fact>& a,
                                    const std::map<std::string, Fact>& b);

}  // namespace lockstep::lab
