// Random inputs of kernel tests: seeded, and awkward on purpose.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "base/half.h"
#include "gguf/types.h"
#include "kernels/types.h"

namespace lockstep::kernels::test {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  uint64_t bits() { return engine_(); }
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  // Uniform in (-1, 1).
  float uniform() {
    return static_cast<float>(static_cast<int64_t>(engine_() >> 40) - (1 << 23)) * 0x1p-23f;
  }

 private:
  std::mt19937_64 engine_;
};

enum class Kind {
  plain,   // around 1, both signs
  wide,    // magnitudes from 2^-60 to 2^20
  ties,    // few small multiples of 1/2 with one 127: x·r falls on ties
  tiny,    // 2^-149 to 2^-90: subnormals, and blocks about the 2^-100 cut-off
  sparse,  // mostly +0 and -0
  mixed,   // each element of another kind
};
inline constexpr Kind kAllKinds[] = {Kind::plain, Kind::wide,   Kind::ties,
                                     Kind::tiny,  Kind::sparse, Kind::mixed};

inline float random_float(Random& random, Kind kind) {
  switch (kind) {
    case Kind::plain:
      return random.uniform() * 4.0f;
    case Kind::wide:
      return std::ldexp(random.uniform(), static_cast<int>(random.between(-60, 20)));
    case Kind::ties:
      return random.below(40) == 0 ? 127.0f : static_cast<float>(random.between(-254, 254)) * 0.5f;
    case Kind::tiny:
      return std::ldexp(random.uniform(), static_cast<int>(random.between(-149, -90)));
    case Kind::sparse:
      return random.below(8) == 0 ? random.uniform() : (random.below(2) ? 0.0f : -0.0f);
    case Kind::mixed:
      return random_float(random, kAllKinds[random.below(5)]);
  }
  return 0.0f;
}

inline std::vector<float> random_floats(Random& random, int64_t n, Kind kind) {
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = random_float(random, kind);
  return values;
}

// Any row of the type with finite scales, drawn on the bytes: codes and sub-scales uniform, f16
// scales between 2^-14 and 2^2 (now and then subnormal, 0 or large).
inline uint16_t random_scale(Random& random) {
  switch (random.below(12)) {
    case 0:
      return static_cast<uint16_t>(random.below(0x400) | (random.below(2) << 15));
    case 1:
      return random.below(2) ? 0x0000 : 0x8000;
    case 2:
      return static_cast<uint16_t>(random.between(0x4000, 0x7BFF) | (random.below(2) << 15));
    default:
      return static_cast<uint16_t>(random.between(0x0400, 0x43FF) | (random.below(2) << 15));
  }
}

// Where a block's f16 fields are: d, and a minimum or its factor.
inline std::vector<int64_t> half_places(TensorType type) {
  switch (type) {
    case TensorType::q4_1:
    case TensorType::q5_1:
    case TensorType::q4_k:
    case TensorType::q5_k:
      return {0, 2};
    case TensorType::q2_k:
      return {80, 82};
    case TensorType::q3_k:
      return {108};
    case TensorType::q6_k:
      return {208};
    case TensorType::mxfp4:
      return {};
    default:
      return {0};
  }
}

inline void random_weight_row(Random& random, TensorType type, std::byte* row, int64_t n) {
  const gguf::TypeInfo& info = gguf::type_info(type);
  const auto store_scale = [&](std::byte* at) {
    const uint16_t scale = random_scale(random);
    std::memcpy(at, &scale, 2);
  };
  for (int64_t block = 0; block < n / info.block_elements; ++block, row += info.block_bytes) {
    for (int64_t i = 0; i < info.block_bytes; ++i)
      row[i] = static_cast<std::byte>(random.bits() >> 56);
    switch (type) {
      case TensorType::f32: {
        const float value = random_float(random, random.below(4) ? Kind::plain : Kind::mixed);
        std::memcpy(row, &value, 4);
        break;
      }
      case TensorType::bf16: {
        const float value = random_float(random, random.below(4) ? Kind::plain : Kind::mixed);
        std::memcpy(row, reinterpret_cast<const std::byte*>(&value) + 2, 2);
        break;
      }
      case TensorType::mxfp4:  // exponents as those of random_scale, now and then least
        *row =
            static_cast<std::byte>(random.below(12) ? random.between(114, 130) : random.below(4));
        break;
      default:
        for (const int64_t place : half_places(type)) store_scale(row + place);
    }
  }
}

// A weight with its memory.
struct OwnedWeight {
  Weight weight;
  std::vector<std::byte> bytes;
  OwnedWeight() = default;
  OwnedWeight(OwnedWeight&&) = default;
  OwnedWeight& operator=(OwnedWeight&&) = default;
};

inline OwnedWeight random_weight(Random& random, TensorType type, int64_t n_in, int64_t n_out) {
  const gguf::TypeInfo& info = gguf::type_info(type);
  OwnedWeight owned;
  owned.weight = {"w", type, n_in, n_out, nullptr, n_in / info.block_elements * info.block_bytes};
  owned.bytes.resize(static_cast<size_t>(owned.weight.row_bytes * n_out));
  owned.weight.data = owned.bytes.data();
  for (int64_t n = 0; n < n_out; ++n) {
    random_weight_row(random, type, owned.bytes.data() + n * owned.weight.row_bytes, n_in);
  }
  return owned;
}

inline constexpr TensorType kFloatTypes[] = {TensorType::f32, TensorType::f16, TensorType::bf16};
inline constexpr TensorType kQuantTypes[] = {
    TensorType::q4_0,  TensorType::q4_1,   TensorType::q5_0,  TensorType::q5_1, TensorType::q8_0,
    TensorType::q2_k,  TensorType::q3_k,   TensorType::q4_k,  TensorType::q5_k, TensorType::q6_k,
    TensorType::mxfp4, TensorType::iq4_nl, TensorType::iq4_xs};

}  // namespace lockstep::kernels::test
