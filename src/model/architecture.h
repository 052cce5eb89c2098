// What an architecture file provides. To add one: write src/model/<name>.cc, declare its entry
// below and name it in the table of architectures.cc.
#pragma once

#include <string_view>
#include <vector>

#include "gguf/file.h"
#include "kernels/graph.h"
#include "model/binder.h"
#include "model/key_reader.h"
#include "model/model.h"

namespace lockstep::model {

struct Architecture {
  std::string_view name;  // general.architecture
  Hyperparameters (*read)(const KeyReader& keys);
  void (*build)(const Hyperparameters& hparams, Binder& binder, kernels::Graph& graph);
};

extern const Architecture kLlama;
extern const Architecture kGemma3;
extern const Architecture kQwen2;
extern const Architecture kQwen3;

const Architecture* find_architecture(std::string_view name);  // null: unknown
std::vector<std::string_view> architecture_names();            // sorted

}  // namespace lockstep::model
