// The negative control of `prove`: faults planted in the compared arm, which the comparison must
// find.
#pragma once

#include <string>
#include <vector>

#include "prove/prover.h"

namespace lockstep::app {

struct PlantResult {
  enum class Kind : uint8_t { logits, kv, elsewhere };
  Kind kind = Kind::elsewhere;
  kernels::Plant plant;
  std::string op;  // "attn_norm"
  int layer = -1;
  bool applied = false;
  std::optional<Difference> first;  // what the comparison found
  // Logits and KV: found at its own place. Elsewhere: anything was found, or rounding absorbed it.
  bool found() const;
  bool missed() const { return !applied || (kind != Kind::elsewhere && !found()); }
};
std::string_view plant_kind_name(PlantResult::Kind kind);

inline constexpr int kPlants = 20;

// Seeded plants over the ops of the model; `of` is decoded once per plant. on_result is called
// after each.
std::vector<PlantResult> run_plants(Prover& prover, const Case& of, uint64_t seed,
                                    const std::function<void(const PlantResult&)>& on_result);

}  // namespace lockstep::app
