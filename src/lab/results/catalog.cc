#include "lab/results/catalog.h"

#include <algorithm>
#include <set>

namespace lockstep::lab {

Catalog::Catalog(const Reading& reading) {
  for (const Object& object : reading.objects) add(object.id(), object);
}

void Catalog::add(std::string id, Object object) {
  if (!object.supersedes().empty()) superseded_[object.supersedes()] = id;
  if (by_id_.contains(id)) return;
  by_id_[id] = items_.size();
  items_.push_back({std::move(id), std::move(object)});
}

std::vector<const Catalog::Item*> Catalog::of(Kind kind) const {
  std::vector<const Item*> out;
  for (const Item& item : items_) {
    if (item.object.kind() == kind && !superseded_.contains(item.id)) out.push_back(&item);
  }
  return out;
}

const Catalog::Item* Catalog::find(std::string_view id) const {
  const auto at = by_id_.find(id);
  return at == by_id_.end() ? nullptr : &items_[at->second];
}

const Catalog::Item* Catalog::follow(const Object& object, std::string_view field) const {
  const Fact* fact = object.find(field);
  return fact && fact->type == FactType::ref ? find(fact->value) : nullptr;
}

std::string Catalog::superseded_by(std::string_view id) const {
  const auto at = superseded_.find(id);
  return at == superseded_.end() ? "" : at->second;
}

const Catalog::Item* Catalog::run_of(const Item& item) const {
  return item.object.kind() == Kind::run ? &item : follow(item.object, "run");
}

const Catalog::Item* Catalog::identity_of(const Item& item) const {
  if (item.object.kind() == Kind::identity) return &item;
  if (const Item* own = follow(item.object, "identity")) return own;
  const Item* run = item.object.kind() == Kind::run ? nullptr : follow(item.object, "run");
  return run ? follow(run->object, "identity") : nullptr;
}

const Catalog::Item* Catalog::candidate_of(const Item& item) const {
  if (item.object.kind() == Kind::candidate) return &item;
  if (const Item* own = follow(item.object, "candidate")) return own;
  const Item* run = run_of(item);
  return run ? follow(run->object, "candidate") : nullptr;
}

std::vector<Setting> settings_of(const Object& candidate) {
  std::vector<Setting> out;
  for (const Fact& fact : candidate.facts()) {
    if (fact.name.starts_with("setting.") && fact.known()) {
      out.push_back({fact.name.substr(8), fact.value});
    }
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::map<std::string, Fact> traits_of(const Catalog& catalog, const Catalog::Item& item) {
  std::map<std::string, Fact> out;
  if (const auto* identity = catalog.identity_of(item)) {
    for (const Fact& fact : identity->object.facts()) {
      if (fact.name.starts_with("requested.") || fact.name.starts_with("effective.") ||
          fact.name.starts_with("receipt.")) {
        out[fact.name] = fact;
      }
    }
  }
  if (const auto* candidate = catalog.candidate_of(item)) {
    for (const Fact& fact : candidate->object.facts()) {
      if (fact.name != "fingerprint" && fact.name != "retry") out[fact.name] = fact;
    }
  }
  if (const auto* run = catalog.run_of(item)) {
    for (const std::string_view name : {"lane", "device", "engine", "stage", "slots"}) {
      if (const Fact* fact = run->object.find(name)) out[std::string(name)] = *fact;
    }
  }
  if (out.empty()) {
    for (const Fact& fact : item.object.facts()) out[fact.name] = fact;
  }
  return out;
}

std::vector<Difference> differences(const std::map<std::string, Fact>& a,
                                    const std::map<std::string, Fact>& b) {
  std::set<std::string> names;
  for (const auto& [name, fact] : a) names.insert(name);
  for (const auto& [name, fact] : b) names.insert(name);
  std::vector<Difference> out;
  for (const std::string& name : names) {
    const auto in_a = a.find(name), in_b = b.find(name);
    const Fact* fa = in_a == a.end() ? nullptr : &in_a->second;
    const Fact* fb = in_b == b.end() ? nullptr : &in_b->second;
    const bool known_a = fa && fa->known(), known_b = fb && fb->known();
    out.push_back({name, fa, fb,
                   known_a == known_b &&
                       (!known_a || canonical_value(fa->value) == canonical_value(fb->value))});
  }
  return out;
}

}  // namespace lockstep::lab
