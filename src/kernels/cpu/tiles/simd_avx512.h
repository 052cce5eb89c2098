// Sixteen lanes in one register: AVX-512 (F, BW, DQ, VL) with VNNI.
#pragma once

#include <immintrin.h>

#include "kernels/reference/isa.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

// What the products ask of an instruction set. Every function is exact or rounds as the law says.
struct Simd {
  using Int = __m512i;              // 16 × int32
  using Float = __m512;             // 16 × binary32
  using Codes = __m512i;            // 64 × uint8, [column][4]
  static constexpr int kTiles = 2;  // side by side in registers, for a whole group of rows

  static Float zero() { return _mm512_setzero_ps(); }
  static Int zero_int() { return _mm512_setzero_si512(); }
  static Float broadcast(const float* x) { return _mm512_set1_ps(*x); }
  static Float load_f16(const std::byte* x) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }
  // Sixteen bytes e to 2^(e - 128): subnormal for 0 and 1, infinite for 255.
  static Float load_exponents(const std::byte* x) {
    const Int twice = max_int(shift_left<23>(widen_bytes(x)), _mm512_set1_epi32(0x00400000));
    return _mm512_mul_ps(_mm512_castsi512_ps(twice), _mm512_set1_ps(0.5f));
  }
  static Float load_floats(const float* x) { return _mm512_loadu_ps(x); }
  static void store(float* x, Float v) { _mm512_storeu_ps(x, v); }
  static float max(Float v) { return _mm512_reduce_max_ps(v); }
  static Float max(Float a, Float b) { return _mm512_max_ps(a, b); }
  // The law's tree(16) of each of sixteen sets of lanes; set 4·i + n comes out as lane 4·n + i.
  static Float trees16(const Float* set) {
    Float two[8], four[4], eight[2];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {  // halves of 8 lanes
      const Float a = set[2 * i], b = set[2 * i + 1];
      two[i] = add(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xEE));
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {  // of 4: now set 4·i + n is 128-bit lane n
      const Float a = two[2 * i], b = two[2 * i + 1];
      four[i] = add(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xDD));
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      const Float a = four[2 * i], b = four[2 * i + 1];
      eight[i] = add(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xEE));
    }
    return add(_mm512_shuffle_ps(eight[0], eight[1], 0x88),
               _mm512_shuffle_ps(eight[0], eight[1], 0xDD));
  }
  static Float add(Float a, Float b) {
    return _mm512_add_ps(a, b);
  }
  static Float mul(Float a, Float b) {
    return _mm512_mul_ps(a, b);
  }
  static Float fma(Float a, Float b, Float c) {
    return _mm512_fmadd_ps(a, b, c);
  }
  static Float to_float(Int v) {
    return _mm512_cvtepi32_ps(v);
  }

  static Codes load_codes(const std::byte* x) {
    return _mm512_loadu_si512(x);
  }
  static Codes low_nibbles(Codes x) {
    return _mm512_and_si512(x, _mm512_set1_epi8(15));
  }
  static Codes high_nibbles(Codes x) {
    return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
  }
  // Bits n … of every byte that `mask` has room for, moved to bit 0; to the left where n < 0.
  template <int n, int mask>
  static Codes bits(Codes x) {
    const Codes moved =
        n < 0 ? _mm512_slli_epi16(x, n < 0 ? -n : 0) : _mm512_srli_epi16(x, n < 0 ? 0 : n);
    return _mm512_and_si512(moved, _mm512_set1_epi8(mask));
  }
  // Every byte's bits from `n` on, below bits of its neighbour.
  static Codes shift_right_any(Codes x, int n) {
    return _mm512_srl_epi16(x, _mm_cvtsi32_si128(n));
  }
  // Indices 0 … 15 to what the table holds.
  static Codes look_up(const uint8_t* table, Codes indices) {
    return _mm512_shuffle_epi8(
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), indices);
  }
  // Adds 16 to the codes whose bit of the 64 at `bits` is set.
  static Codes add_fifth_bits(Codes x, const std::byte* bits) {
    return _mm512_mask_add_epi8(x, load<uint64_t>(bits), x, _mm512_set1_epi8(16));
  }
  // Bits 2k, 2k + 1 of `upper` on top of four bits of `low`.
  template <int k>
  static Codes add_two_bits(Codes low, Codes upper) {
    const Codes moved = k == 0   ? _mm512_slli_epi16(upper, 4)
                        : k == 1 ? _mm512_slli_epi16(upper, 2)
                        : k == 2 ? upper
                                 : _mm512_srli_epi16(upper, 2);
    return _mm512_ternarylogic_epi32(low, moved, _mm512_set1_epi8(0x30), 0xF8);  // low | moved & 48
  }

  // acc + Σ w·q over four elements a lane; q is the same for all columns.
  static Int dot(Int acc, Codes w, const int8_t* q) {
    return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(load<int32_t>(q)));
  }
  // The same for signed codes stored as code + 128; their sum starts at start_signed: -128·Σ q of
  // the block is given, or minus the sums of its halves.
  static Int dot_signed(Int acc, Codes w, const int8_t* q) {
    return dot(acc, w, q);
  }
  static Int start_signed(const int32_t* start) {
    return _mm512_set1_epi32(*start);
  }
  static Int start_signed(const int16_t* minus_sums) {
    return dot_pairs(zero_int(), _mm512_set1_epi16(128), minus_sums);
  }
  // acc + a[2i]·pair[0] + a[2i + 1]·pair[1], a and pair int16
  static Int dot_pairs(Int acc, Int a, const int16_t* pair) {
    return _mm512_dpwssd_epi32(acc, a, _mm512_set1_epi32(load<int32_t>(pair)));
  }

  static Int mul_add(Int a, Int b, Int c) {
    return _mm512_add_epi32(_mm512_mullo_epi32(a, b), c);
  }
  static Int broadcast_int(const int32_t* x) {
    return _mm512_set1_epi32(*x);
  }
  static Int add_int(Int a, Int b) {
    return _mm512_add_epi32(a, b);
  }
  template <int n>
  static Int shift_left(Int a) {
    return _mm512_slli_epi32(a, n);
  }
  template <int n>
  static Int shift_right(Int a) {
    return _mm512_srai_epi32(a, n);
  }
  static Int masked(Int a, int32_t bits) {
    return _mm512_and_si512(a, _mm512_set1_epi32(bits));
  }
  static Int either(Int a, Int b) {
    return _mm512_or_si512(a, b);
  }
  // 16 bytes to 16 × int32
  static Int widen_bytes(const std::byte* x) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  }
  // 16 signed bytes to 16 × int32
  static Int widen_signed_bytes(const std::byte* x) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x)));
  }
  // 16 bytes to 16 × two equal int16
  static Int widen_bytes_twice(const std::byte* x) {
    const __m128i first_of_each =
        _mm_setr_epi8(0, -1, 0, -1, 4, -1, 4, -1, 8, -1, 8, -1, 12, -1, 12, -1);
    return _mm512_shuffle_epi8(widen_bytes(x), _mm512_broadcast_i32x4(first_of_each));
  }
  // The scales and minimums of Q4_K (layout.h) as bytes: [sub-block][column] of each.
  static void unpack_scales(const std::byte* low, const std::byte* upper, std::byte* scale,
                            std::byte* min) {
    const __m512i u = _mm512_loadu_si512(upper), four = _mm512_set1_epi8(15);
    const __m512i l0 = _mm512_loadu_si512(low), l1 = _mm512_loadu_si512(low + 64);
    const auto join = [](__m512i nibbles, __m512i top) {
      return _mm512_ternarylogic_epi32(nibbles, top, _mm512_set1_epi8(0x30), 0xF8);
    };
    const auto high = [&](__m512i l) { return _mm512_and_si512(_mm512_srli_epi16(l, 4), four); };
    _mm512_store_si512(scale, join(_mm512_and_si512(l0, four), _mm512_slli_epi16(u, 4)));
    _mm512_store_si512(scale + 64, join(_mm512_and_si512(l1, four), u));
    _mm512_store_si512(min, join(high(l0), _mm512_slli_epi16(u, 2)));
    _mm512_store_si512(min + 64, join(high(l1), _mm512_srli_epi16(u, 2)));
  }
  // 32 signed bytes to 32 × int16
  static Int widen_signed_pairs(const std::byte* x) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x)));
  }

  // For |x| below 2^31, to nearest, ties to even (the law's mode of the processor).
  static Int round(Float x) {
    return _mm512_cvtps_epi32(x);
  }
  static Int magnitude(Float x) {
    return _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7FFFFFFF));
  }
  static Int max_int(Int a, Int b) {
    return _mm512_max_epi32(a, b);
  }
  static int32_t max_lane(Int v) {
    return _mm512_reduce_max_epi32(v);
  }
  static int32_t sum_lanes(Int v) {
    return _mm512_reduce_add_epi32(v);
  }
  // Sixteen int8; values must fit.
  static void store_bytes(int8_t* out, Int v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(v));
  }

  static void store_columns(float* out, Float v, int64_t columns) {
    _mm512_mask_storeu_ps(out, static_cast<__mmask16>((1u << columns) - 1u), v);
  }
  static Float load_columns(const float* x, int64_t columns) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << columns) - 1u), x);
  }
};

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
