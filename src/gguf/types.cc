#include "gguf/types.h"

#include <iterator>

namespace lockstep::gguf {
namespace {

using enum TensorType;

// Indexed by ggml's number. An empty name is a number that was never given out, or whose type ggml
// has removed (4, 5, 31-33, 36-38).
constexpr TypeInfo kTypes[] = {
    {f32, "f32", 1, 4},
    {f16, "f16", 1, 2},
    {q4_0, "q4_0", 32, 18},
    {q4_1, "q4_1", 32, 20},
    {},
    {},
    {q5_0, "q5_0", 32, 22},
    {q5_1, "q5_1", 32, 24},
    {q8_0, "q8_0", 32, 34},
    {q8_1, "q8_1", 32, 36},
    {q2_k, "q2_K", 256, 84},
    {q3_k, "q3_K", 256, 110},
    {q4_k, "q4_K", 256, 144},
    {q5_k, "q5_K", 256, 176},
    {q6_k, "q6_K", 256, 210},
    {q8_k, "q8_K", 256, 292},
    {iq2_xxs, "iq2_xxs", 256, 66},
    {iq2_xs, "iq2_xs", 256, 74},
    {iq3_xxs, "iq3_xxs", 256, 98},
    {iq1_s, "iq1_s", 256, 50},
    {iq4_nl, "iq4_nl", 32, 18},
    {iq3_s, "iq3_s", 256, 110},
    {iq2_s, "iq2_s", 256, 82},
    {iq4_xs, "iq4_xs", 256, 136},
    {i8, "i8", 1, 1},
    {i16, "i16", 1, 2},
    {i32, "i32", 1, 4},
    {i64, "i64", 1, 8},
    {f64, "f64", 1, 8},
    {iq1_m, "iq1_m", 256, 56},
    {bf16, "bf16", 1, 2},
    {},
    {},
    {},
    {tq1_0, "tq1_0", 256, 54},
    {tq2_0, "tq2_0", 256, 66},
    {},
    {},
    {},
    {mxfp4, "mxfp4", 32, 17},
    {nvfp4, "nvfp4", 64, 36},
    {q1_0, "q1_0", 128, 18},
    {q2_0, "q2_0", 64, 18},
};

constexpr bool rows_stand_at_their_number() {
  for (uint32_t i = 0; i < std::size(kTypes); ++i) {
    if (!kTypes[i].name.empty() && static_cast<uint32_t>(kTypes[i].type) != i) return false;
  }
  return true;
}
static_assert(rows_stand_at_their_number());

}  // namespace

const TypeInfo* type_info(uint32_t raw_type) {
  if (raw_type >= std::size(kTypes) || kTypes[raw_type].name.empty()) return nullptr;
  return &kTypes[raw_type];
}

}  // namespace lockstep::gguf
