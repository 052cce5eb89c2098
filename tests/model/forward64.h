// Every architecture's forward pass in binary64, written plainly from the formulas of
// docs/models.md and the models' published definitions: no cache, no graph, no kernels, nothing
// shared with the engine but the file reader and the dequantiser. What the engine gives must be
// close to it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gguf/file.h"

namespace lockstep::model {

// Logits of every row, [tokens][n_vocab].
std::vector<std::vector<double>> forward64(const gguf::File& file, std::span<const int32_t> tokens);

}  // namespace lockstep::model
