// What an architecture file provides. To add one: write src/model/<name>.cc and one line in the
// table of architectures.cc.
#pragma once

#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "kernels/graph.h"
#include "model/model.h"

namespace lockstep::model {

// Finds and checks tensors, and owns the Weight and RopeSpec objects that ops point to (their
// addresses stay fixed).
class Binder;

struct Architecture {
  std::string_view name;   // general.architecture
  Hyperparameters (*read)(const gguf::File& file);
  void (*build)(const Hyperparameters& hparams, Binder& binder, kernels::Graph& graph);
};

const Architecture* find_architecture(std::string_view name);   // null: unknown
std::vector<std::string_view> architecture_names();

}  // namespace lockstep::model
