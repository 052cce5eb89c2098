// The types with superblocks of 256 elements, as products over packed tiles read them.
#pragma once

#include "kernels/cpu/tiles/matmul_parts.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

constexpr int kAccumulators = 2 * kRows;  // sums in registers beside a superblock's totals

// A Format gives t (and minus u, where there is a minimum) of one superblock.
template <bool fifth_bits>
struct Q45_K {
  static constexpr bool kHasMin = true;
  static constexpr int64_t kBytes = fifth_bits ? tiles::Q45_K::kBytes5 : tiles::Q45_K::kBytes4;
  using L = tiles::Q45_K;

  template <int R>
  static void sums(const std::byte* in, const Rows<R>& x, int64_t s, Int* t, Int* minus_u) {
    // [sub-block][column]
    alignas(64) std::byte scale[128], min[128];
    Simd::unpack_scales(in + L::kLow, in + L::kUpper, scale, min);
    const int8_t* q = x.q + 256 * R * s;
    for (int j = 0; j < 8; j += 2) {  // two sub-blocks share their bytes
      Int low_sum[R], high_sum[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) low_sum[r] = high_sum[r] = Simd::zero_int();
      const std::byte* nibbles = in + L::kNibbles + 256 * j;
      const std::byte* fifth = in + L::kFifth + 64 * j;
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        const Codes both = load_ahead(nibbles + 64 * g, x.far[s % 2]);
        Codes low = Simd::low_nibbles(both), high = Simd::high_nibbles(both);
        if constexpr (fifth_bits) {
          low = Simd::add_fifth_bits(low, fifth + 8 * g);
          high = Simd::add_fifth_bits(high, fifth + 64 + 8 * g);
        }
        dot_rows<false, R>(low_sum, low, q, 32 * j + 4 * g);
        dot_rows<false, R>(high_sum, high, q, 32 * (j + 1) + 4 * g);
      }
      const Int low_scale = Simd::widen_bytes(scale + 16 * j);
      const Int high_scale = Simd::widen_bytes(scale + 16 * (j + 1));
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        t[r] = Simd::mul_add(low_sum[r], low_scale, t[r]);
        t[r] = Simd::mul_add(high_sum[r], high_scale, t[r]);
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      const Int m = Simd::widen_bytes_twice(min + 16 * j);
      const int16_t* sums = x.sums + 2 * (8 * s + j) * x.rows;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) minus_u[r] = Simd::dot_pairs(minus_u[r], m, sums + 2 * r);
    }
  }
  static Float d(const std::byte* in) {
    return Simd::load_f16(in + L::kD);
  }
  static Float dmin(const std::byte* in) {
    return Simd::load_f16(in + L::kDmin);
  }
};

// Types with a scale for every 16 elements: the codes of `quarters` quarters (of 32) of a half,
// from k on, groups 4·part … 4·part + 3 of each; their scaled sums are added to t. The quarters of
// a half share bytes; how many are done together is a matter of registers.
template <typename Format, int quarters, int k, int R>
inline void add_quarters(const std::byte* in, int64_t far, int half, int part, const int8_t* q,
                         const Int* scales, Int* t) {
  Int isum[quarters][R];
#pragma GCC unroll 4
  for (int i = 0; i < quarters; ++i) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) isum[i][r] = Simd::zero_int();
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const int g = 4 * part + i;
    Codes w[quarters];
    Format::template codes<quarters, k>(in, far, half, g, w);
#pragma GCC unroll 4
    for (int j = 0; j < quarters; ++j) dot_rows<false, R>(isum[j], w[j], q, 32 * (k + j) + 4 * g);
  }
#pragma GCC unroll 4
  for (int i = 0; i < quarters; ++i) {
    const Int scale = part == 0 ? Simd::shift_right<16>(Simd::shift_left<16>(scales[k + i]))
                                : Simd::shift_right<16>(scales[k + i]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) t[r] = Simd::mul_add(isum[i][r], scale, t[r]);
  }
}

// pairs: the scales as signed bytes, [8][column][2], of 16 elements each.
template <typename Format, int R>
inline void add_superblock(const std::byte* in, int64_t far, const std::byte* pairs,
                           const int8_t* q, Int* t) {
  for (int half = 0; half < 2; ++half, q += 128 * R) {
    Int scales[4];  // two int16 a column
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) scales[k] = Simd::widen_signed_pairs(pairs + 32 * (4 * half + k));
    for (int part = 0; part < 2; ++part) {
      if constexpr (4 * R <= kAccumulators) {
        add_quarters<Format, 4, 0, R>(in, far, half, part, q, scales, t);
      } else {
        add_quarters<Format, 1, 0, R>(in, far, half, part, q, scales, t);
        add_quarters<Format, 1, 1, R>(in, far, half, part, q, scales, t);
        add_quarters<Format, 1, 2, R>(in, far, half, part, q, scales, t);
        add_quarters<Format, 1, 3, R>(in, far, half, part, q, scales, t);
      }
    }
  }
}

// sum[r] += Σ_j factor_j·(minus Σ q of 16 elements), the factors as `pairs` above.
template <int R>
inline void dot_factors(const std::byte* pairs, const Rows<R>& x, int64_t s, Int* sum) {
#pragma GCC unroll 8
  for (int j = 0; j < 8; ++j) {
    const Int factors = Simd::widen_signed_pairs(pairs + 32 * j);
    const int16_t* sums = x.sums + 2 * (8 * s + j) * x.rows;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sum[r] = Simd::dot_pairs(sum[r], factors, sums + 2 * r);
  }
}

// What codes stored as code + 2^offset_bits have too much.
template <int offset_bits, int R>
inline void take_offset(const std::byte* pairs, const Rows<R>& x, int64_t s, Int* t) {
  Int sum[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sum[r] = Simd::zero_int();
  dot_factors<R>(pairs, x, s, sum);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) t[r] = Simd::add_int(t[r], Simd::shift_left<offset_bits>(sum[r]));
}

struct Q2_K {
  static constexpr bool kHasMin = true;
  static constexpr int64_t kBytes = tiles::Q2_K::kBytes;
  using L = tiles::Q2_K;

  template <int quarters, int k>
  static void codes(const std::byte* in, int64_t far, int half, int g, Codes* w) {
    const std::byte* at = in + L::kCodes + 64 * (8 * half + g);
    const Codes all = k == 0 ? load_ahead(at, far) : Simd::load_codes(at);
    w[0] = Simd::bits<2 * k, 3>(all);
    if constexpr (quarters == 4) {
      w[1] = Simd::bits<2, 3>(all);
      w[2] = Simd::bits<4, 3>(all);
      w[3] = Simd::bits<6, 3>(all);
    }
  }

  // Both as `pairs`.
  static void unpack_scales(const std::byte* in, std::byte* scale, std::byte* min) {
    for (int i = 0; i < 256; ++i) {
      scale[i] = in[L::kScales + i] & std::byte{15};
      min[i] = in[L::kScales + i] >> 4;
    }
  }

  template <int R>
  static void sums(const std::byte* in, const Rows<R>& x, int64_t s, Int* t, Int* minus_u) {
    alignas(64) std::byte scale[256], min[256];
    unpack_scales(in, scale, min);
    add_superblock<Q2_K, R>(in, x.far[s % 2], scale, x.q + 256 * R * s, t);
    dot_factors<R>(min, x, s, minus_u);
  }
  static Float d(const std::byte* in) { return Simd::load_f16(in + L::kD); }
  static Float dmin(const std::byte* in) { return Simd::load_f16(in + L::kDmin); }
};

// 32 scales of -32 … 31, each from four bits of a byte and two upper bits of another.
inline void unpack_signed_scales(const std::byte* low, int low_at, const std::byte* upper,
                                 int upper_at, std::byte* scale) {
  using Bytes = uint8_t __attribute__((vector_size(32)));
  Bytes l, u;
  __builtin_memcpy(&l, low, 32);
  __builtin_memcpy(&u, upper, 32);
  l = ((l >> low_at & 15) | (u >> upper_at & 3) << 4) - 32;
  __builtin_memcpy(scale, &l, 32);
}

struct Q3_K {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kBytes = tiles::Q3_K::kBytes;
  using L = tiles::Q3_K;

  template <int quarters, int k>
  static void codes(const std::byte* in, int64_t far, int half, int g, Codes* w) {
    const std::byte* lows = in + L::kLow + 64 * (8 * half + g);
    const std::byte* thirds = in + L::kThird + 64 * g;
    const Codes low = k == 0 ? load_ahead(lows, far) : Simd::load_codes(lows);
    const Codes third = Simd::shift_right_any(
        k == 0 && half == 0 ? load_ahead(thirds, far) : Simd::load_codes(thirds), 4 * half);
    w[0] = Simd::either(Simd::bits<2 * k, 3>(low), Simd::bits<k - 2, 4>(third));
    if constexpr (quarters == 4) {
      w[1] = Simd::either(Simd::bits<2, 3>(low), Simd::bits<-1, 4>(third));
      w[2] = Simd::either(Simd::bits<4, 3>(low), Simd::bits<0, 4>(third));
      w[3] = Simd::either(Simd::bits<6, 3>(low), Simd::bits<1, 4>(third));
    }
  }

  // As `pairs`.
  static void unpack_scales(const std::byte* in, std::byte* scale) {
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      unpack_signed_scales(in + L::kScaleLow + 32 * (j % 4), j / 4 * 4,
                           in + L::kScaleUpper + 32 * (j % 2), j / 2 * 2, scale + 32 * j);
    }
  }

  template <int R>
  static void sums(const std::byte* in, const Rows<R>& x, int64_t s, Int* t, Int*) {
    alignas(64) std::byte scale[256];
    unpack_scales(in, scale);
    add_superblock<Q3_K, R>(in, x.far[s % 2], scale, x.q + 256 * R * s, t);
    take_offset<2, R>(scale, x, s, t);
  }
  static Float d(const std::byte* in) {
    return Simd::load_f16(in + L::kD);
  }
  static Float dmin(const std::byte*) {
    return Simd::zero();
  }
};

struct Q6_K {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kBytes = tiles::Q6_K::kBytes;
  using L = tiles::Q6_K;

  // Quarters k and k + 2 share their nibbles, all four their upper bits.
  template <int quarters, int k>
  static void codes(const std::byte* in, int64_t far, int half, int g, Codes* w) {
    const std::byte* nibbles = in + L::kNibbles + 64 * (16 * half + 8 * (k & 1) + g);
    const std::byte* uppers = in + L::kUpper + 64 * (8 * half + g);
    const Codes upper = k == 0 ? load_ahead(uppers, far) : Simd::load_codes(uppers);
    const Codes both = k < 2 ? load_ahead(nibbles, far) : Simd::load_codes(nibbles);
    w[0] = Simd::add_two_bits<k>(k < 2 ? Simd::low_nibbles(both) : Simd::high_nibbles(both), upper);
    if constexpr (quarters == 4) {
      const Codes odd = load_ahead(nibbles + 512, far);
      w[1] = Simd::add_two_bits<1>(Simd::low_nibbles(odd), upper);
      w[2] = Simd::add_two_bits<2>(Simd::high_nibbles(both), upper);
      w[3] = Simd::add_two_bits<3>(Simd::high_nibbles(odd), upper);
    }
  }

  template <int R>
  static void sums(const std::byte* in, const Rows<R>& x, int64_t s, Int* t, Int*) {
    add_superblock<Q6_K, R>(in, x.far[s % 2], in + L::kScales, x.q + 256 * R * s, t);
    take_offset<5, R>(in + L::kScales, x, s, t);
  }
  static Float d(const std::byte* in) { return Simd::load_f16(in + L::kD); }
  static Float dmin(const std::byte*) { return Simd::zero(); }
};

struct IQ4_XS {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kBytes = tiles::IQ4_XS::kBytes;
  using L = tiles::IQ4_XS;

  // [sub-block][column]
  static void unpack_scales(const std::byte* in, std::byte* scale) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {  // two sub-blocks
      unpack_signed_scales(in + L::kLow + 32 * (j % 2), j / 2 * 4, in + L::kUpper, 2 * j,
                           scale + 32 * j);
    }
  }

  template <int R>
  static void sums(const std::byte* in, const Rows<R>& x, int64_t s, Int* t, Int*) {
    alignas(64) std::byte scale[128];
    unpack_scales(in, scale);
    for (int j = 0; j < 8; ++j) {
      Int isum[1][R];
      const int16_t* sums = x.sums + 2 * (8 * s + j) * x.rows;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) isum[0][r] = Simd::start_signed(sums + 2 * r);
      dot_indices<kCodesIQ4, true, R, 1>(in + L::kNibbles + 256 * j, 0, &x.far[s % 2],
                                         x.q + 32 * R * (8 * s + j), isum);
      const Int own = Simd::widen_signed_bytes(scale + 16 * j);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) t[r] = Simd::mul_add(isum[0][r], own, t[r]);
    }
  }
  static Float d(const std::byte* in) {
    return Simd::load_f16(in + L::kD);
  }
  static Float dmin(const std::byte*) {
    return Simd::zero();
  }
};

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
