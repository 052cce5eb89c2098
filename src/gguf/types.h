// Tensor element types of GGUF files (ggml's numbering), with block geometry.
// Source: the GGUF specification (ggml, docs/gguf.md).
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::gguf {

enum class TensorType : uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q8_1 = 9,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  q8_k = 15,
  iq2_xxs = 16,
  iq2_xs = 17,
  iq3_xxs = 18,
  iq1_s = 19,
  iq4_nl = 20,
  iq3_s = 21,
  iq2_s = 22,
  iq4_xs = 23,
  i8 = 24,
  i16 = 25,
  i32 = 26,
  i64 = 27,
  f64 = 28,
  iq1_m = 29,
  bf16 = 30,
  tq1_0 = 34,
  tq2_0 = 35,
  mxfp4 = 39,
  nvfp4 = 40,
  q1_0 = 41,
  q2_0 = 42,
};

struct TypeInfo {
  TensorType type;
  std::string_view name;   // as ggml prints it: "q4_K", "f16"
  int64_t block_elements;  // elements of a row in one block
  int64_t block_bytes;     // bytes of one block
};

// Null for a number that ggml does not define (or no longer defines).
const TypeInfo* type_info(uint32_t raw_type);
inline const TypeInfo& type_info(TensorType type) {
  return *type_info(static_cast<uint32_t>(type));
}

}  // namespace lockstep::gguf
