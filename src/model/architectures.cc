#include "model/architecture.h"

namespace lockstep::model {
namespace {

constexpr const Architecture* kArchitectures[] = {&kGemma3, &kLlama, &kQwen2, &kQwen3};

}  // namespace

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture* architecture : kArchitectures) {
    if (architecture->name == name) return architecture;
  }
  return nullptr;
}

std::vector<std::string_view> architecture_names() {
  std::vector<std::string_view> names;
  for (const Architecture* architecture : kArchitectures) names.push_back(architecture->name);
  return names;
}

}  // namespace lockstep::model
