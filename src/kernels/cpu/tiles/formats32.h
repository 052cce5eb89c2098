// The types with one scale for every 32 elements, as products over packed tiles read them.
#pragma once

#include "kernels/cpu/tiles/matmul_parts.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

// Of codes stored as code + offset, from -128·Σ q: minus offset·Σ q.
template <int offset>
inline Int start_of(const int32_t* start) {
  if constexpr (offset == 0) return Simd::zero_int();
  const Int eighths = Simd::shift_right<4>(Simd::broadcast_int(start));  // -8·Σ q
  if constexpr (offset == 8) return eighths;
  if constexpr (offset == 12) return Simd::add_int(eighths, Simd::shift_right<1>(eighths));
  static_assert(offset == 0 || offset == 8 || offset == 12 || offset == 16);
  return Simd::shift_left<1>(eighths);
}

// A Format says how a block's sum starts, and adds the block's dots to it.
struct Q8_0 {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kFactorBytes = tiles::kScale, kCodeBytes = tiles::kCodes8;
  static Float d(const std::byte* factors, int64_t b) { return Simd::load_f16(factors + 32 * b); }
  static Int start(const int32_t* start) { return Simd::start_signed(start); }
  template <int R, int T>
  static void dots(const std::byte* codes, int64_t tile_bytes, const int64_t* far, const int8_t* q,
                   Int isum[][R]) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      Codes w[T];
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) w[t] = load_ahead(codes + t * tile_bytes + 64 * g, far[t]);
      dot_tiles<true, R, T>(isum, w, q, 4 * g);
    }
  }
};

template <int offset, bool has_min, bool fifth_bits>
struct Nibbles {
  static constexpr bool kHasMin = has_min;
  static constexpr int64_t kFactorBytes = has_min ? tiles::kScaleAndMin : tiles::kScale;
  static constexpr int64_t kCodeBytes = tiles::kCodes4 + (fifth_bits ? tiles::kFifthBits : 0);
  static Float d(const std::byte* factors, int64_t b) { return Simd::load_f16(factors + 32 * b); }
  static Int start(const int32_t* start) { return start_of<offset>(start); }
  template <int R, int T>
  static void dots(const std::byte* codes, int64_t tile_bytes, const int64_t* far, const int8_t* q,
                   Int isum[][R]) {
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      Codes low[T], high[T];
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) {
        const std::byte* own = codes + t * tile_bytes;
        const Codes both = load_ahead(own + 64 * g, far[t]);
        low[t] = Simd::low_nibbles(both);
        high[t] = Simd::high_nibbles(both);
        if constexpr (fifth_bits) {
          low[t] = Simd::add_fifth_bits(low[t], own + tiles::kCodes4 + 8 * g);
          high[t] = Simd::add_fifth_bits(high[t], own + tiles::kCodes4 + 8 * (g + 4));
        }
      }
      dot_tiles<false, R, T>(isum, low, q, 4 * g);
      dot_tiles<false, R, T>(isum, high, q, 16 + 4 * g);
    }
  }
};
using Q4_0 = Nibbles<8, false, false>;
using Q4_1 = Nibbles<0, true, false>;
using Q5_0 = Nibbles<16, false, true>;
using Q5_1 = Nibbles<0, true, true>;

struct IQ4_NL {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kFactorBytes = tiles::kScale, kCodeBytes = tiles::kCodes4;
  static Float d(const std::byte* factors, int64_t b) { return Simd::load_f16(factors + 32 * b); }
  static Int start(const int32_t* start) { return Simd::start_signed(start); }
  template <int R, int T>
  static void dots(const std::byte* codes, int64_t tile_bytes, const int64_t* far, const int8_t* q,
                   Int isum[][R]) {
    dot_indices<kCodesIQ4, true, R, T>(codes, tile_bytes, far, q, isum);
  }
};

struct MXFP4 {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kFactorBytes = tiles::kExponent, kCodeBytes = tiles::kCodes4;
  static Float d(const std::byte* factors, int64_t b) {
    return Simd::load_exponents(factors + 16 * b);
  }
  static Int start(const int32_t* start) { return start_of<12>(start); }
  template <int R, int T>
  static void dots(const std::byte* codes, int64_t tile_bytes, const int64_t* far, const int8_t* q,
                   Int isum[][R]) {
    dot_indices<kCodesMXFP4, false, R, T>(codes, tile_bytes, far, q, isum);
  }
};

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
