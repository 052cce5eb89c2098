// Weights of packed tiles as signed bytes, for AMX: its products take bytes as they are, so scales
// that belong to less than what is summed up in integers have to be in them.
#pragma once

#include "kernels/cpu/tiles/formats256.h"
#include "kernels/cpu/tiles/formats32.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

inline Codes minus(Codes x, int offset) {
  return _mm512_sub_epi8(x, _mm512_set1_epi8(static_cast<char>(offset)));
}
inline void store_codes(std::byte* out, Codes x) {
  _mm512_store_si512(out, x);
}

// Form 32. One block of a tile to [element ÷ 4][column][4], the format's offset taken off.
template <typename Format>
struct Block;

template <>
struct Block<Q8_0> {
  static void unpack(const std::byte* in, std::byte* out) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) store_codes(out + 64 * g, minus(load_ahead(in + 64 * g), 128));
  }
};

template <int offset, bool has_min, bool fifth_bits>
struct Block<Nibbles<offset, has_min, fifth_bits>> {
  static void unpack(const std::byte* in, std::byte* out) {
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const Codes both = load_ahead(in + 64 * g);
      Codes low = Simd::low_nibbles(both), high = Simd::high_nibbles(both);
      if constexpr (fifth_bits) {
        low = Simd::add_fifth_bits(low, in + tiles::kCodes4 + 8 * g);
        high = Simd::add_fifth_bits(high, in + tiles::kCodes4 + 8 * (g + 4));
      }
      store_codes(out + 64 * g, minus(low, offset));
      store_codes(out + 64 * (g + 4), minus(high, offset));
    }
  }
};

// 32 indices into a table whose entries have `offset` too much.
inline void unpack_indices(const uint8_t* table, int offset, const std::byte* in, std::byte* out) {
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    const Codes both = load_ahead(in + 64 * g);
    store_codes(out + 64 * g, minus(Simd::look_up(table, Simd::low_nibbles(both)), offset));
    store_codes(out + 64 * (g + 4), minus(Simd::look_up(table, Simd::high_nibbles(both)), offset));
  }
}

template <>
struct Block<IQ4_NL> {
  static void unpack(const std::byte* in, std::byte* out) {
    unpack_indices(kCodesIQ4, 128, in, out);
  }
};
template <>
struct Block<MXFP4> {
  static void unpack(const std::byte* in, std::byte* out) {
    unpack_indices(kCodesMXFP4, 12, in, out);
  }
};

// Form 256. A superblock's codes times their scales are integers of at most 13 bits and a sign, in
// two digits: 128·high + low, each a signed byte; [element ÷ 4][column][4] of each. Σ q·code·scale
// is then 128·Σ q·high + Σ q·low, without an end of the sum at every scale.
struct Digits {
  alignas(64) std::byte low[4096], high[4096];
};

// A scale a column, as int16, four times each: columns 0 … 7 and 8 … 15.
struct Scales {
  Int first, second;
};

// From [column] and, with step 2, from the bytes [2·column + which].
template <int step, int which>
inline Scales spread(const std::byte* in) {
  static_assert(step == 1 || step == 2);
  alignas(32) int8_t index[2][32];
  for (int half = 0; half < 2; ++half) {
    for (int i = 0; i < 32; ++i) {
      const int column = 8 * half + i / 4;
      index[half][i] = static_cast<int8_t>((step * column + which) % 16);
    }
  }
  const auto pick = [&](int half) {
    const std::byte* from = in + (step == 2 ? 16 * half : 0);
    const __m256i both =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    return _mm512_cvtepi8_epi16(_mm256_shuffle_epi8(
        both, _mm256_load_si256(reinterpret_cast<const __m256i*>(index[half]))));
  };
  return {pick(0), pick(1)};
}

// Codes (signed bytes) of elements 4·group … 4·group + 3, times their scales.
template <int digits>
inline void put(Digits& out, int64_t group, Codes codes, const Scales& scales) {
  const auto half = [&](__m256i eight_columns, Int scale, int at) {
    const Int v = _mm512_mullo_epi16(_mm512_cvtepi8_epi16(eight_columns), scale);
    Int low = v;
    if constexpr (digits == 2) {
      const Int high = _mm512_srai_epi16(_mm512_add_epi16(v, _mm512_set1_epi16(64)), 7);
      low = _mm512_sub_epi16(v, _mm512_slli_epi16(high, 7));
      _mm256_store_si256(reinterpret_cast<__m256i*>(out.high + 64 * group + at),
                         _mm512_cvtepi16_epi8(high));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.low + 64 * group + at),
                       _mm512_cvtepi16_epi8(low));
  };
  half(_mm512_castsi512_si256(codes), scales.first, 0);
  half(_mm512_extracti64x4_epi64(codes, 1), scales.second, 32);
}

template <typename Format>
struct Superblock;

template <bool fifth_bits>
struct Superblock<Q45_K<fifth_bits>> {
  static constexpr int kDigits = 2;
  using L = tiles::Q45_K;
  static void unpack(const std::byte* in, Digits& out, Int* mins) {
    alignas(64) std::byte scale[128], min[128];
    Simd::unpack_scales(in + L::kLow, in + L::kUpper, scale, min);
    for (int j = 0; j < 8; j += 2) {
      const Scales even = spread<1, 0>(scale + 16 * j), odd = spread<1, 0>(scale + 16 * (j + 1));
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        const Codes both = load_ahead(in + L::kNibbles + 256 * j + 64 * g);
        Codes low = Simd::low_nibbles(both), high = Simd::high_nibbles(both);
        if constexpr (fifth_bits) {
          low = Simd::add_fifth_bits(low, in + L::kFifth + 64 * j + 8 * g);
          high = Simd::add_fifth_bits(high, in + L::kFifth + 64 * j + 64 + 8 * g);
        }
        put<kDigits>(out, 8 * j + g, low, even);
        put<kDigits>(out, 8 * (j + 1) + g, high, odd);
      }
    }
    for (int j = 0; j < 8; ++j) mins[j] = Simd::widen_bytes_twice(min + 16 * j);
  }
};

// Types with a scale for every 16 elements, as `pairs` of dot_factors; codes with `offset` too
// much.
template <typename Format, int digits, int k>
inline void put_quarter(const std::byte* in, const std::byte* pairs, int half, int offset,
                        Digits& out) {
  const int block = 4 * half + k;
  const Scales first = spread<2, 0>(pairs + 32 * block), second = spread<2, 1>(pairs + 32 * block);
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    Codes w[1];
    Format::template codes<1, k>(in, tiles::kAhead.far, half, g, w);
    put<digits>(out, 8 * block + g, minus(w[0], offset), g < 4 ? first : second);
  }
}
template <typename Format, int digits>
inline void put_quarters(const std::byte* in, const std::byte* pairs, int offset, Digits& out) {
  for (int half = 0; half < 2; ++half) {
    put_quarter<Format, digits, 0>(in, pairs, half, offset, out);
    put_quarter<Format, digits, 1>(in, pairs, half, offset, out);
    put_quarter<Format, digits, 2>(in, pairs, half, offset, out);
    put_quarter<Format, digits, 3>(in, pairs, half, offset, out);
  }
}

template <>
struct Superblock<Q2_K> {
  static constexpr int kDigits = 1;
  static void unpack(const std::byte* in, Digits& out, Int* mins) {
    alignas(64) std::byte scale[256], min[256];
    Q2_K::unpack_scales(in, scale, min);
    put_quarters<Q2_K, kDigits>(in, scale, 0, out);
    for (int j = 0; j < 8; ++j) mins[j] = Simd::widen_signed_pairs(min + 32 * j);
  }
};
template <>
struct Superblock<Q3_K> {
  static constexpr int kDigits = 2;
  static void unpack(const std::byte* in, Digits& out, Int*) {
    alignas(64) std::byte scale[256];
    Q3_K::unpack_scales(in, scale);
    put_quarters<Q3_K, kDigits>(in, scale, 4, out);
  }
};
template <>
struct Superblock<Q6_K> {
  static constexpr int kDigits = 2;
  static void unpack(const std::byte* in, Digits& out, Int*) {
    put_quarters<Q6_K, kDigits>(in, in + tiles::Q6_K::kScales, 32, out);
  }
};
template <>
struct Superblock<IQ4_XS> {
  static constexpr int kDigits = 2;
  using L = tiles::IQ4_XS;
  static void unpack(const std::byte* in, Digits& out, Int*) {
    alignas(64) std::byte scale[128], codes[512];
    IQ4_XS::unpack_scales(in, scale);
    for (int j = 0; j < 8; ++j) {
      const Scales own = spread<1, 0>(scale + 16 * j);
      unpack_indices(kCodesIQ4, 128, in + L::kNibbles + 256 * j, codes);
      for (int g = 0; g < 8; ++g) {
        put<kDigits>(out, 8 * j + g, Simd::load_codes(codes + 64 * g), own);
      }
    }
  }
};

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
