// Whether a device's own memory has room for what is asked of it.
#pragma once

#include <cstdint>

#include "kernels/backend.h"
#include "model/model.h"

namespace lockstep::app {

// Throws Error(resource) where a device's memory has no room for the context's KV, saying what it
// needs and what would fit. The weights must be loaded. Of main memory the pages themselves say it.
void check_room_for_context(const kernels::Backend& backend, const model::Model& model,
                            int64_t context, kernels::KvType k_type, kernels::KvType v_type);

}  // namespace lockstep::app
