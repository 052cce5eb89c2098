#include "device_room.h"

#include <fmt/format.h>

#include "base/error.h"

namespace lockstep::app {

void check_room_for_context(const kernels::Backend& backend, const model::Model& model,
                            int64_t context, kernels::KvType k_type, kernels::KvType v_type) {
  using kernels::KvType;
  const std::optional<int64_t> free = backend.free_memory();
  if (!free) return;
  const auto bytes = [&](int64_t positions, KvType k, KvType v) {
    // A row that is computed after so many reads its own, too. context may be that of several
    // answers, and more than one may have; the layers are the same.
    const state::KvSpec spec = model.kv_spec(k, v, model.hyperparameters().n_ctx_train);
    return model.kv_bytes_read(spec, positions - 1);
  };
  const int64_t needed = bytes(context, k_type, v_type);
  if (needed <= *free) return;
  // In whole pages, found by halving: layers with a window make it less than proportional.
  const auto fitting = [&](KvType k, KvType v) {
    int64_t fits = 0, over = context / kernels::kPagePositions + 1;
    while (over - fits > 1) {
      const int64_t middle = fits + (over - fits) / 2;
      (bytes(middle * kernels::kPagePositions, k, v) <= *free ? fits : over) = middle;
    }
    return fits * kernels::kPagePositions;
  };
  const int64_t same = fitting(k_type, v_type);
  std::string instead = same > 0 ? fmt::format("-c {} fits", same) : "not even one page fits";
  if (k_type != KvType::q8_0 || v_type != KvType::q8_0) {
    try {
      const int64_t smaller = fitting(KvType::q8_0, KvType::q8_0);
      if (smaller > same) instead += fmt::format(", with -ctk q8_0 -ctv q8_0 -c {}", smaller);
    } catch (const Error&) {
      // its heads are no whole blocks of it
    }
  }
  throw Error(
      ExitCode::resource,
      fmt::format("a context of {} positions needs {:.2f} GB of device memory for its KV ({} keys, "
                  "{} values), and {:.2f} GB are free beside the weights; {}",
                  context, 1e-9 * static_cast<double>(needed), kernels::kv_type_name(k_type),
                  kernels::kv_type_name(v_type), 1e-9 * static_cast<double>(*free), instead));
}

}  // namespace lockstep::app
