// The configurations of `prove`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "prove/prover.h"

namespace lockstep::app {

struct Configuration {
  std::string name;  // "draft suffix n=8"
  Needs needs;
  std::function<void(Prover&, Line&)> run;
};

struct PlanInputs {
  bool quick = false;
  uint64_t seed = 1;
  std::vector<int32_t> repetitive, prose, code;  // prompts, as ids
  kernels::KvType k_type = kernels::KvType::f16, v_type = kernels::KvType::f16;
  std::shared_ptr<const model::Model> drafter;        // -md, or null
  std::shared_ptr<const model::Model> wrong_drafter;  // same vocabulary, weights of its own
};

std::vector<Configuration> make_plan(Prover& prover, const PlanInputs& inputs);

}  // namespace lockstep::app
