// A drafter that shares a model's vocabulary and nothing else.
#pragma once

#include <memory>

#include "model/model.h"

namespace lockstep::app {

// Two small layers of random weights under the tokenizer of `target`: what it drafts is wrong.
std::shared_ptr<const model::Model> make_wrong_drafter(const model::Model& target, uint64_t seed);

}  // namespace lockstep::app
