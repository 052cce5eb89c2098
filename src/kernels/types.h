// Words shared by all op contracts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_team.h"  // Range
#include "gguf/types.h"

namespace lockstep::kernels {

using gguf::TensorType;

// The name of the law every backend here obeys (docs/numerics.md).
inline constexpr const char* kLaw = "ls1";

// Positions of one KV page, and pages of one merge span (law: attention).
inline constexpr int64_t kPagePositions = 64;
inline constexpr int64_t kSpanPages = 16;

enum class KvType : uint8_t { f32, f16, q8_0, q4_0 };
inline constexpr KvType kKvTypes[] = {KvType::f32, KvType::f16, KvType::q8_0, KvType::q4_0};
const char* kv_type_name(KvType type);                // "f32", "f16", "q8_0", "q4_0"
int64_t kv_block_elements(KvType type);               // head_dim is a multiple of it
int64_t kv_row_bytes(KvType type, int64_t head_dim);  // bytes of one head's row

// A matrix of the file: n_out rows of n_in elements, each row whole blocks of `type`.
struct Weight {
  const char* name = "";
  TensorType type = TensorType::f32;
  int64_t n_in = 0, n_out = 0;
  const std::byte* data = nullptr;
  int64_t row_bytes = 0;
  bool mapped = false;  // data lies in a mapped file: its pages can be let go (base/mapped_file.h)
};

// What one layer of one sequence remembers, as kernels see it. Page p holds absolute positions
// [64p, 64p+64); a null page holds none that any row of this pass may read.
// Page layout: [n_head_kv][64][kv_row_bytes].
struct KvLayerView {
  KvType k_type = KvType::f16, v_type = KvType::f16;
  int32_t n_head_kv = 0;
  int32_t head_dim = 0;
  std::byte* const* k_pages = nullptr;
  std::byte* const* v_pages = nullptr;
  int64_t n_pages = 0;
};

// A fault (law: Ground): a non-finite element where a rule forbids it. Kernels set row_fault[row]
// = 1; the executor knows which op ran. Setting is idempotent, any worker may do it.
struct FaultFlags {
  uint8_t* row_fault = nullptr;  // [rows of the pass]
};

}  // namespace lockstep::kernels
