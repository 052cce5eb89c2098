// First include of every file that is compiled once per instruction set.
//
// These files are built several times into one binary with different -march. A function with weak
// linkage (an inline function or template of a shared header) would let the linker keep one copy
// for all of them, and a VEX instruction could end up in a process without AVX. Hence: everything
// lives in the namespace LOCKSTEP_ISA_NS, helpers in an unnamed namespace inside it, and nothing of
// std that is a template or has a body. tests/kernels/isa_symbols_test.py looks at the objects.
#pragma once

#include <cstddef>
#include <cstdint>

#ifndef LOCKSTEP_ISA_NS
#error "compile with -DLOCKSTEP_ISA_NS=<name of the instruction set>"
#endif

#include "kernels/types.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

[[maybe_unused]] inline constexpr uint32_t kExponentBits = 0x7F800000u;

[[maybe_unused]] inline bool is_non_finite(float x) {
  return (__builtin_bit_cast(uint32_t, x) & kExponentBits) == kExponentBits;
}

// Counted in int32, so that the compiler finds a vector of lanes.
[[maybe_unused]] inline bool any_non_finite(const float* x, int64_t n) {
  int32_t found = 0;
  for (int64_t i = 0; i < n; ++i) found |= is_non_finite(x[i]) ? 1 : 0;
  return found != 0;
}

// Any worker may set a row's flag, so two may at once.
[[maybe_unused]] inline void set_fault(const FaultFlags& faults, int64_t row) {
  __atomic_store_n(&faults.row_fault[row], uint8_t{1}, __ATOMIC_RELAXED);
}

template <typename T>
inline T load(const void* p) {
  T value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

template <typename T>
inline T smaller(T a, T b) {
  return a < b ? a : b;
}
template <typename T>
inline T larger(T a, T b) {
  return a > b ? a : b;
}

// Item k of an elementwise op: elements [begin, end) of row `row` (ops/add.h).
struct Chunk {
  int64_t row, begin, end;
};
[[maybe_unused]] inline Chunk chunk_of(int64_t item, int64_t width) {
  const int64_t per_row = (width + 255) / 256;
  const int64_t begin = item % per_row * 256;
  return {item / per_row, begin, smaller(begin + 256, width)};
}

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
