// Models that are sound as files and wrong as models: hyperparameters, tensors, weights and
// vocabularies that nothing may compute with. Each is a tiny synthetic model with one thing
// changed.
#pragma once

#include <string>
#include <vector>

#include "hostile_gguf.h"

namespace lockstep::test {

struct HostileModel {
  HostileFile file;
  // False where only the vocabulary or an unknown architecture is at fault, so that the file can
  // still be looked at.
  bool inspect_refuses = true;
};
inline std::ostream& operator<<(std::ostream& out, const HostileModel& model) {
  return out << model.file.what;
}

std::vector<HostileModel> hostile_models();

}  // namespace lockstep::test
