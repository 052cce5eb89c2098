// Sixteen lanes in two registers: AVX2 with FMA and F16C. The functions are those of
// simd_avx512.h.
#pragma once

#include <immintrin.h>

#include "kernels/reference/isa.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

struct Simd {
  struct Int {
    __m256i lo, hi;
  };
  struct Float {
    __m256 lo, hi;
  };
  using Codes = Int;  // columns 0-7 in lo, 8-15 in hi
  static constexpr int kTiles = 1;

  static Float zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Int zero_int() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static Float broadcast(const float* x) { return {_mm256_set1_ps(*x), _mm256_set1_ps(*x)}; }
  static Float load_f16(const std::byte* x) {
    return {_mm256_cvtph_ps(half(x)), _mm256_cvtph_ps(half(x + 16))};
  }
  static Float load_exponents(const std::byte* x) {
    const __m256i least = _mm256_set1_epi32(0x00400000);
    const Int twice = max_int(shift_left<23>(widen_bytes(x)), {least, least});
    const __m256 half_of = _mm256_set1_ps(0.5f);
    return {_mm256_mul_ps(_mm256_castsi256_ps(twice.lo), half_of),
            _mm256_mul_ps(_mm256_castsi256_ps(twice.hi), half_of)};
  }
  static Float load_floats(const float* x) { return {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8)}; }
  static void store(float* x, Float v) {
    _mm256_storeu_ps(x, v.lo);
    _mm256_storeu_ps(x + 8, v.hi);
  }
  static float max(Float v) {
    const __m256 a = _mm256_max_ps(v.lo, v.hi);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
  }
  static Float max(Float a, Float b) {
    return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
  }
  static Float trees16(const Float* set) {
    // Sets 4·i + n, i = 0 … 3, come out as four lanes.
    const auto four_sets = [&](int n) {
      __m128 half[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const __m256 eight = _mm256_add_ps(set[4 * i + n].lo, set[4 * i + n].hi);
        half[i] = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
      }
      const auto pairs = [](__m128 a, __m128 b) {
        return _mm_add_ps(_mm_shuffle_ps(a, b, 0x44), _mm_shuffle_ps(a, b, 0xEE));
      };
      const __m128 a = pairs(half[0], half[1]), b = pairs(half[2], half[3]);
      return _mm_add_ps(_mm_shuffle_ps(a, b, 0x88), _mm_shuffle_ps(a, b, 0xDD));
    };
    return {_mm256_set_m128(four_sets(1), four_sets(0)),
            _mm256_set_m128(four_sets(3), four_sets(2))};
  }
  static Float add(Float a, Float b) {
    return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
  }
  static Float mul(Float a, Float b) {
    return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
  }
  static Float fma(Float a, Float b, Float c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static Float to_float(Int v) {
    return {_mm256_cvtepi32_ps(v.lo), _mm256_cvtepi32_ps(v.hi)};
  }

  static Codes load_codes(const std::byte* x) {
    return {whole(x), whole(x + 32)};
  }
  static Codes low_nibbles(Codes x) {
    return and_bytes(x, 15);
  }
  static Codes high_nibbles(Codes x) {
    return and_bytes({_mm256_srli_epi16(x.lo, 4), _mm256_srli_epi16(x.hi, 4)}, 15);
  }
  template <int n, int mask>
  static Codes bits(Codes x) {
    const auto moved = [](__m256i v) {
      return n < 0 ? _mm256_slli_epi16(v, n < 0 ? -n : 0) : _mm256_srli_epi16(v, n < 0 ? 0 : n);
    };
    return and_bytes({moved(x.lo), moved(x.hi)}, mask);
  }
  static Codes shift_right_any(Codes x, int n) {
    const __m128i count = _mm_cvtsi32_si128(n);
    return {_mm256_srl_epi16(x.lo, count), _mm256_srl_epi16(x.hi, count)};
  }
  static Codes look_up(const uint8_t* table, Codes indices) {
    const __m256i twice =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return {_mm256_shuffle_epi8(twice, indices.lo), _mm256_shuffle_epi8(twice, indices.hi)};
  }
  static Codes add_fifth_bits(Codes x, const std::byte* bits) {
    return {_mm256_add_epi8(x.lo, sixteens(load<int32_t>(bits))),
            _mm256_add_epi8(x.hi, sixteens(load<int32_t>(bits + 4)))};
  }
  template <int k>
  static Codes add_two_bits(Codes low, Codes upper) {
    const Codes moved =
        k == 0   ? Codes{_mm256_slli_epi16(upper.lo, 4), _mm256_slli_epi16(upper.hi, 4)}
        : k == 1 ? Codes{_mm256_slli_epi16(upper.lo, 2), _mm256_slli_epi16(upper.hi, 2)}
        : k == 2 ? upper
                 : Codes{_mm256_srli_epi16(upper.lo, 2), _mm256_srli_epi16(upper.hi, 2)};
    return either(low, and_bytes(moved, 0x30));
  }

  // Pairs of products in int16: codes up to 63 can't saturate.
  static Int dot(Int acc, Codes w, const int8_t* q) {
    const __m256i x = _mm256_set1_epi32(load<int32_t>(q));
    return {add_pairs(acc.lo, _mm256_maddubs_epi16(w.lo, x)),
            add_pairs(acc.hi, _mm256_maddubs_epi16(w.hi, x))};
  }
  // |w|·(q with w's sign): |w| is at most 128, |q| 127, so that no pair saturates.
  static Int dot_signed(Int acc, Codes w, const int8_t* q) {
    const __m256i x = _mm256_set1_epi32(load<int32_t>(q)), flip = _mm256_set1_epi8(-128);
    const auto one = [&](__m256i sum, __m256i codes) {
      const __m256i c = _mm256_xor_si256(codes, flip);
      return add_pairs(sum, _mm256_maddubs_epi16(_mm256_abs_epi8(c), _mm256_sign_epi8(x, c)));
    };
    return {one(acc.lo, w.lo), one(acc.hi, w.hi)};
  }
  static Int start_signed(const int32_t*) {
    return zero_int();
  }
  static Int start_signed(const int16_t*) {
    return zero_int();
  }
  static Int dot_pairs(Int acc, Int a, const int16_t* pair) {
    const __m256i x = _mm256_set1_epi32(load<int32_t>(pair));
    return {_mm256_add_epi32(acc.lo, _mm256_madd_epi16(a.lo, x)),
            _mm256_add_epi32(acc.hi, _mm256_madd_epi16(a.hi, x))};
  }

  static Int mul_add(Int a, Int b, Int c) {
    return {_mm256_add_epi32(_mm256_mullo_epi32(a.lo, b.lo), c.lo),
            _mm256_add_epi32(_mm256_mullo_epi32(a.hi, b.hi), c.hi)};
  }
  static Int broadcast_int(const int32_t* x) {
    return {_mm256_set1_epi32(*x), _mm256_set1_epi32(*x)};
  }
  static Int add_int(Int a, Int b) {
    return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)};
  }
  template <int n>
  static Int shift_left(Int a) {
    return {_mm256_slli_epi32(a.lo, n), _mm256_slli_epi32(a.hi, n)};
  }
  template <int n>
  static Int shift_right(Int a) {
    return {_mm256_srai_epi32(a.lo, n), _mm256_srai_epi32(a.hi, n)};
  }
  static Int masked(Int a, int32_t bits) {
    const __m256i mask = _mm256_set1_epi32(bits);
    return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
  }
  static Int either(Int a, Int b) {
    return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
  }
  static Int widen_bytes(const std::byte* x) {
    const __m128i bytes = half(x);
    return {_mm256_cvtepu8_epi32(bytes), _mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static Int widen_signed_bytes(const std::byte* x) {
    const __m128i bytes = half(x);
    return {_mm256_cvtepi8_epi32(bytes), _mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8))};
  }
  static Int widen_bytes_twice(const std::byte* x) {
    const Int v = widen_bytes(x);
    return either(v, shift_left<16>(v));
  }
  static void unpack_scales(const std::byte* low, const std::byte* upper, std::byte* scale,
                            std::byte* min) {
    const auto put = [](std::byte* out, Codes nibbles, Codes top) {
      const Codes joined = either(nibbles, and_bytes(top, 0x30));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out), joined.lo);
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + 32), joined.hi);
    };
    const auto left = [](Codes x, int n) -> Codes {
      return {_mm256_slli_epi16(x.lo, n), _mm256_slli_epi16(x.hi, n)};
    };
    const Codes l0 = load_codes(low), l1 = load_codes(low + 64), u = load_codes(upper);
    put(scale, low_nibbles(l0), left(u, 4));
    put(scale + 64, low_nibbles(l1), u);
    put(min, high_nibbles(l0), left(u, 2));
    put(min + 64, high_nibbles(l1), {_mm256_srli_epi16(u.lo, 2), _mm256_srli_epi16(u.hi, 2)});
  }
  static Int widen_signed_pairs(const std::byte* x) {
    return {_mm256_cvtepi8_epi16(half(x)), _mm256_cvtepi8_epi16(half(x + 16))};
  }

  static Int round(Float x) {
    return {_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi)};
  }
  static Int magnitude(Float x) {
    return masked({_mm256_castps_si256(x.lo), _mm256_castps_si256(x.hi)}, 0x7FFFFFFF);
  }
  static Int max_int(Int a, Int b) {
    return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)};
  }
  static int32_t max_lane(Int v) {
    const __m256i a = _mm256_max_epi32(v.lo, v.hi);
    __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4E));
    return _mm_cvtsi128_si32(_mm_max_epi32(b, _mm_shuffle_epi32(b, 0xB1)));
  }
  static int32_t sum_lanes(Int v) {
    const __m256i a = _mm256_add_epi32(v.lo, v.hi);
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_add_epi32(b, _mm_shuffle_epi32(b, 0x4E));
    return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 0xB1)));
  }
  static void store_bytes(int8_t* out, Int v) {
    const auto eight_words = [](__m256i x) {  // eight int32 to eight int16
      return _mm_packs_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    };
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out),
                     _mm_packs_epi16(eight_words(v.lo), eight_words(v.hi)));
  }

  static void store_columns(float* out, Float v, int64_t columns) {
    _mm256_maskstore_ps(out, first_lanes(columns), v.lo);
    if (columns > 8) _mm256_maskstore_ps(out + 8, first_lanes(columns - 8), v.hi);
  }
  static Float load_columns(const float* x, int64_t columns) {
    return {
        _mm256_maskload_ps(x, first_lanes(columns)),
        columns > 8 ? _mm256_maskload_ps(x + 8, first_lanes(columns - 8)) : _mm256_setzero_ps()};
  }

 private:
  static __m128i half(const std::byte* x) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(x));
  }
  static __m256i whole(const std::byte* x) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
  }
  static Codes and_bytes(Codes x, char mask) {
    return {_mm256_and_si256(x.lo, _mm256_set1_epi8(mask)),
            _mm256_and_si256(x.hi, _mm256_set1_epi8(mask))};
  }
  static __m256i add_pairs(__m256i acc, __m256i products) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
  }
  // Byte i: 16 where bit i is set.
  static __m256i sixteens(int32_t bits) {
    const __m256i byte_of =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit_of = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
    const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), byte_of);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit_of), bit_of);
    return _mm256_and_si256(set, _mm256_set1_epi8(16));
  }
  static __m256i first_lanes(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int32_t>(n)),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
};

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
