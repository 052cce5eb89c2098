// The product over packed tiles: sixteen output columns side by side, each in the law's own order,
// for up to kRows rows of the pass at a time. Compiled once per instruction set; the
// instructions are in LOCKSTEP_SIMD_HEADER.
#include "kernels/ops/matmul_quantized.h"

#include LOCKSTEP_SIMD_HEADER
#include "kernels/cpu/tiles/layout.h"
#include "kernels/cpu/tiles/pack.h"
#include "kernels/reference/reference.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

using Int = Simd::Int;
using Float = Simd::Float;
using Codes = Simd::Codes;
constexpr int64_t kRows = LOCKSTEP_ROWS_TOGETHER;
constexpr int kAccumulators = 2 * kRows;  // sums in registers beside a superblock's totals

// Rows [first, first + R) of the activations, as one group of kernels reads them.
template <int R>
struct Rows {
  const int8_t* q;      // [n_in ÷ 4][R][4]
  const float* d;       // [block][rows]
  const float* d_sums;  // [32 elements][rows]
  const int16_t* sums;  // [32 elements][rows][2], minus Σ q of 16 each
  int64_t rows;         // of the pass: the stride
};

// Weights are read once, in order. Asked for this far ahead of their use, a line for every line
// that is read, they come while earlier ones are computed with; without it the eight rows of a
// verify pass cost 2.5 times as much (docs/rejected.md). Past a matrix's end it asks for nothing of
// use, and can't fault.
constexpr int64_t kAhead = 12288;

inline Codes load_ahead(const std::byte* codes) {
  _mm_prefetch(reinterpret_cast<const char*>(codes + kAhead), _MM_HINT_T0);
  return Simd::load_codes(codes);
}

// acc[t][r] += Σ w·q over four elements from k on; q at the block's start.
template <bool is_signed, int R, int T>
inline void dot_tiles(Int acc[][R], const Codes* w, const int8_t* q, int k) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const int8_t* four = q + k * R + 4 * r;
#pragma GCC unroll 2
    for (int t = 0; t < T; ++t) {
      acc[t][r] =
          is_signed ? Simd::dot_signed(acc[t][r], w[t], four) : Simd::dot(acc[t][r], w[t], four);
    }
  }
}
template <bool is_signed, int R>
inline void dot_rows(Int* acc, Codes w, const int8_t* q, int k) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const int8_t* four = q + k * R + 4 * r;
    acc[r] = is_signed ? Simd::dot_signed(acc[r], w, four) : Simd::dot(acc[r], w, four);
  }
}

// Form 32. A Format says how a block's sum starts, and adds the block's dots to it.
struct Q8_0 {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kFactorBytes = tiles::kScale, kCodeBytes = tiles::kCodes8;
  static Float d(const std::byte* factors, int64_t b) { return Simd::load_f16(factors + 32 * b); }
  static Int start(const int16_t* sums) { return Simd::start_signed(sums); }
  template <int R, int T>
  static void dots(const std::byte* codes, int64_t tile_bytes, const int8_t* q, Int isum[][R]) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      Codes w[T];
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) w[t] = load_ahead(codes + t * tile_bytes + 64 * g);
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
  static Int start(const int16_t* sums) {
    if constexpr (offset == 0) return Simd::zero_int();
    return Simd::dot_sums<offset>(sums);
  }
  template <int R, int T>
  static void dots(const std::byte* codes, int64_t tile_bytes, const int8_t* q, Int isum[][R]) {
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      Codes low[T], high[T];
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) {
        const std::byte* own = codes + t * tile_bytes;
        const Codes both = load_ahead(own + 64 * g);
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

// What an index stands for: the codes of IQ4_NL and IQ4_XS + 128, those of MXFP4 + 12.
constexpr uint8_t kCodesIQ4[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                   129, 141, 153, 166, 181, 197, 217, 241};
constexpr uint8_t kCodesMXFP4[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// Four rows of nibbles are 32 elements: the low ones the first 16.
template <const uint8_t* table, bool is_signed, int R, int T>
inline void dot_indices(const std::byte* codes, int64_t tile_bytes, const int8_t* q,
                        Int isum[][R]) {
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    Codes low[T], high[T];
#pragma GCC unroll 2
    for (int t = 0; t < T; ++t) {
      const Codes both = load_ahead(codes + t * tile_bytes + 64 * g);
      low[t] = Simd::look_up(table, Simd::low_nibbles(both));
      high[t] = Simd::look_up(table, Simd::high_nibbles(both));
    }
    dot_tiles<is_signed, R, T>(isum, low, q, 4 * g);
    dot_tiles<is_signed, R, T>(isum, high, q, 16 + 4 * g);
  }
}

struct IQ4_NL {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kFactorBytes = tiles::kScale, kCodeBytes = tiles::kCodes4;
  static Float d(const std::byte* factors, int64_t b) { return Simd::load_f16(factors + 32 * b); }
  static Int start(const int16_t* sums) { return Simd::start_signed(sums); }
  template <int R, int T>
  static void dots(const std::byte* codes, int64_t tile_bytes, const int8_t* q, Int isum[][R]) {
    dot_indices<kCodesIQ4, true, R, T>(codes, tile_bytes, q, isum);
  }
};

struct MXFP4 {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kFactorBytes = tiles::kExponent, kCodeBytes = tiles::kCodes4;
  static Float d(const std::byte* factors, int64_t b) {
    return Simd::load_exponents(factors + 16 * b);
  }
  static Int start(const int16_t* sums) { return Simd::dot_sums<12>(sums); }
  template <int R, int T>
  static void dots(const std::byte* codes, int64_t tile_bytes, const int8_t* q, Int isum[][R]) {
    dot_indices<kCodesMXFP4, false, R, T>(codes, tile_bytes, q, isum);
  }
};

// The lanes of the law, of R rows by sixteen columns. bench/order_cost compiles this file with one
// lane in place of eight, to see what the law's order costs; nothing else may.
#ifdef LOCKSTEP_FREE_ORDER
constexpr int kLanes = 1;
#else
constexpr int kLanes = 8;
#endif
template <int R>
struct Lanes {
  Float lane[kLanes][R];
  Lanes() {
    for (auto& l : lane) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) l[r] = Simd::zero();
    }
  }
  void add(int64_t segment, const Float* acc) {
    Float* l = lane[segment % kLanes];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) l[r] = Simd::add(l[r], acc[r]);
  }
  Float sum(int r) const {
    if constexpr (kLanes == 1) {
      return lane[0][r];
    } else {
      const auto pair = [&](int i) { return Simd::add(lane[i][r], lane[i + 1][r]); };
      return Simd::add(Simd::add(pair(0), pair(2)), Simd::add(pair(4), pair(6)));
    }
  }
};

template <typename Format, int R>
struct Form32 {
  static constexpr int kTiles = R == kRows ? Simd::kTiles : 1;
  // T tiles side by side, tile_bytes apart.
  template <int T>
  static void run(const std::byte* in, int64_t tile_bytes, const Rows<R>& x, int64_t n_in,
                  Lanes<R>* lanes) {
    const int64_t n_blocks = n_in / 32;
    for (int64_t b0 = 0; b0 < n_blocks; b0 += tiles::kBlocksPerSegment) {
      const int64_t count = smaller(tiles::kBlocksPerSegment, n_blocks - b0);
      const std::byte* codes = in + tiles::factor_bytes(count, Format::kFactorBytes);
      Float acc[T][R];
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) acc[t][r] = Simd::zero();
      }
      for (int64_t b = 0; b < count; ++b, codes += Format::kCodeBytes) {
        const int64_t at = (b0 + b) * x.rows;
        Int isum[T][R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const Int start = Format::start(x.sums + 2 * (at + r));
#pragma GCC unroll 2
          for (int t = 0; t < T; ++t) isum[t][r] = start;
        }
        Format::template dots<R, T>(codes, tile_bytes, x.q + 32 * R * (b0 + b), isum);
#pragma GCC unroll 2
        for (int t = 0; t < T; ++t) {
          const Float d = Format::d(in + t * tile_bytes, b);
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            acc[t][r] = Simd::fma(Simd::to_float(isum[t][r]),
                                  Simd::mul(d, Simd::broadcast(x.d + at + r)), acc[t][r]);
          }
          if constexpr (Format::kHasMin) {
            const Float m = Simd::load_f16(in + t * tile_bytes + 32 * (count + b));
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
              acc[t][r] = Simd::fma(m, Simd::broadcast(x.d_sums + at + r), acc[t][r]);
            }
          }
        }
      }
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) lanes[t].add(b0 / tiles::kBlocksPerSegment, acc[t]);
      in = codes;
    }
  }
};

// Form 256: t (and minus u, where there is a minimum) of one superblock.
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
        const Codes both = load_ahead(nibbles + 64 * g);
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
inline void add_quarters(const std::byte* in, int half, int part, const int8_t* q,
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
    Format::template codes<quarters, k>(in, half, g, w);
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
inline void add_superblock(const std::byte* in, const std::byte* pairs, const int8_t* q, Int* t) {
  for (int half = 0; half < 2; ++half, q += 128 * R) {
    Int scales[4];  // two int16 a column
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) scales[k] = Simd::widen_signed_pairs(pairs + 32 * (4 * half + k));
    for (int part = 0; part < 2; ++part) {
      if constexpr (4 * R <= kAccumulators) {
        add_quarters<Format, 4, 0, R>(in, half, part, q, scales, t);
      } else {
        add_quarters<Format, 1, 0, R>(in, half, part, q, scales, t);
        add_quarters<Format, 1, 1, R>(in, half, part, q, scales, t);
        add_quarters<Format, 1, 2, R>(in, half, part, q, scales, t);
        add_quarters<Format, 1, 3, R>(in, half, part, q, scales, t);
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
  static void codes(const std::byte* in, int half, int g, Codes* w) {
    const std::byte* at = in + L::kCodes + 64 * (8 * half + g);
    const Codes all = k == 0 ? load_ahead(at) : Simd::load_codes(at);
    w[0] = Simd::bits<2 * k, 3>(all);
    if constexpr (quarters == 4) {
      w[1] = Simd::bits<2, 3>(all);
      w[2] = Simd::bits<4, 3>(all);
      w[3] = Simd::bits<6, 3>(all);
    }
  }

  template <int R>
  static void sums(const std::byte* in, const Rows<R>& x, int64_t s, Int* t, Int* minus_u) {
    alignas(64) std::byte scale[256], min[256];
    for (int i = 0; i < 256; ++i) {
      scale[i] = in[L::kScales + i] & std::byte{15};
      min[i] = in[L::kScales + i] >> 4;
    }
    add_superblock<Q2_K, R>(in, scale, x.q + 256 * R * s, t);
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
  static void codes(const std::byte* in, int half, int g, Codes* w) {
    const std::byte* lows = in + L::kLow + 64 * (8 * half + g);
    const std::byte* thirds = in + L::kThird + 64 * g;
    const Codes low = k == 0 ? load_ahead(lows) : Simd::load_codes(lows);
    const Codes third = Simd::shift_right_any(
        k == 0 && half == 0 ? load_ahead(thirds) : Simd::load_codes(thirds), 4 * half);
    w[0] = Simd::either(Simd::bits<2 * k, 3>(low), Simd::bits<k - 2, 4>(third));
    if constexpr (quarters == 4) {
      w[1] = Simd::either(Simd::bits<2, 3>(low), Simd::bits<-1, 4>(third));
      w[2] = Simd::either(Simd::bits<4, 3>(low), Simd::bits<0, 4>(third));
      w[3] = Simd::either(Simd::bits<6, 3>(low), Simd::bits<1, 4>(third));
    }
  }

  template <int R>
  static void sums(const std::byte* in, const Rows<R>& x, int64_t s, Int* t, Int*) {
    alignas(64) std::byte scale[256];
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) {
      unpack_signed_scales(in + L::kScaleLow + 32 * (j % 4), j / 4 * 4,
                           in + L::kScaleUpper + 32 * (j % 2), j / 2 * 2, scale + 32 * j);
    }
    add_superblock<Q3_K, R>(in, scale, x.q + 256 * R * s, t);
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
  static void codes(const std::byte* in, int half, int g, Codes* w) {
    const std::byte* nibbles = in + L::kNibbles + 64 * (16 * half + 8 * (k & 1) + g);
    const std::byte* uppers = in + L::kUpper + 64 * (8 * half + g);
    const Codes upper = k == 0 ? load_ahead(uppers) : Simd::load_codes(uppers);
    const Codes both = k < 2 ? load_ahead(nibbles) : Simd::load_codes(nibbles);
    w[0] = Simd::add_two_bits<k>(k < 2 ? Simd::low_nibbles(both) : Simd::high_nibbles(both), upper);
    if constexpr (quarters == 4) {
      const Codes odd = load_ahead(nibbles + 512);
      w[1] = Simd::add_two_bits<1>(Simd::low_nibbles(odd), upper);
      w[2] = Simd::add_two_bits<2>(Simd::high_nibbles(both), upper);
      w[3] = Simd::add_two_bits<3>(Simd::high_nibbles(odd), upper);
    }
  }

  template <int R>
  static void sums(const std::byte* in, const Rows<R>& x, int64_t s, Int* t, Int*) {
    add_superblock<Q6_K, R>(in, in + L::kScales, x.q + 256 * R * s, t);
    take_offset<5, R>(in + L::kScales, x, s, t);
  }
  static Float d(const std::byte* in) { return Simd::load_f16(in + L::kD); }
  static Float dmin(const std::byte*) { return Simd::zero(); }
};

struct IQ4_XS {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kBytes = tiles::IQ4_XS::kBytes;
  using L = tiles::IQ4_XS;

  template <int R>
  static void sums(const std::byte* in, const Rows<R>& x, int64_t s, Int* t, Int*) {
    alignas(64) std::byte scale[128];  // [sub-block][column]
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {  // two sub-blocks
      unpack_signed_scales(in + L::kLow + 32 * (j % 2), j / 2 * 4, in + L::kUpper, 2 * j,
                           scale + 32 * j);
    }
    for (int j = 0; j < 8; ++j) {
      Int isum[1][R];
      const int16_t* sums = x.sums + 2 * (8 * s + j) * x.rows;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) isum[0][r] = Simd::start_signed(sums + 2 * r);
      dot_indices<kCodesIQ4, true, R, 1>(in + L::kNibbles + 256 * j, 0, x.q + 32 * R * (8 * s + j),
                                         isum);
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

template <typename Format, int R>
struct Form256 {
  static constexpr int kTiles = 1;
  template <int T>
  static void run(const std::byte* in, int64_t, const Rows<R>& x, int64_t n_in, Lanes<R>* lanes) {
    static_assert(T == 1);
    for (int64_t s = 0; s < n_in / 256; ++s, in += Format::kBytes) {
      Int t[R], minus_u[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) t[r] = minus_u[r] = Simd::zero_int();
      Format::template sums<R>(in, x, s, t, minus_u);
      const Float d = Format::d(in), dmin = Format::dmin(in);
      Float acc[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Float dx = Simd::broadcast(x.d + s * x.rows + r);
        acc[r] = Simd::mul(Simd::to_float(t[r]), Simd::mul(d, dx));
        if constexpr (Format::kHasMin) {
          acc[r] = Simd::fma(Simd::to_float(minus_u[r]), Simd::mul(dmin, dx), acc[r]);
        }
      }
      lanes->add(s, acc);
    }
  }
};

template <int R>
void store_tile(const MatmulQuantizedArgs& args, int64_t tile, int64_t first_row,
                const Lanes<R>& lanes) {
  const int64_t n = tile * tiles::kColumns, n_out = args.weight->n_out;
  const int64_t columns = smaller(tiles::kColumns, n_out - n);
  float* out = args.out + first_row * n_out + n;
  for (int r = 0; r < R; ++r, out += n_out) {
    Float y = lanes.sum(r);
    if (args.bias) y = Simd::add(y, Simd::load_columns(args.bias + n, columns));
    Simd::store_columns(out, y, columns);
  }
}

// Tiles [range.begin, range.end) for R rows of the pass from first_row on.
template <template <typename, int> class Form, typename Format, int R>
void tiles_of_rows(const MatmulQuantizedArgs& args, Range range, int64_t tile_bytes,
                   int64_t first_row) {
  const Rows<R> x = {args.x.q + first_row * args.weight->n_in, args.x.d + first_row,
                     args.x.d_sums + first_row, args.x.sums + 2 * first_row, args.rows};
  // Two tiles share the loads of the activations; not worth the registers while memory is slower.
  constexpr int T = Form<Format, R>::kTiles;
  int64_t tile = range.begin;
  if constexpr (T > 1) {
    for (; args.rows > kRows && tile + T <= range.end; tile += T) {
      Lanes<R> lanes[T];
      Form<Format, R>::template run<T>(args.packed + tile * tile_bytes, tile_bytes, x,
                                       args.weight->n_in, lanes);
      for (int t = 0; t < T; ++t) store_tile<R>(args, tile + t, first_row, lanes[t]);
    }
  }
  for (; tile < range.end; ++tile) {
    Lanes<R> lanes;
    Form<Format, R>::template run<1>(args.packed + tile * tile_bytes, tile_bytes, x,
                                     args.weight->n_in, &lanes);
    store_tile<R>(args, tile, first_row, lanes);
  }
}

// Tiles that all rows pass over together take about this much of the second-level cache.
constexpr int64_t kTogetherBytes = 192 << 10;

// Asks for a part of the tiles that come next, so that with many rows in a pass their way from
// memory costs nothing.
inline void ask_for_part(const std::byte* from, int64_t bytes, int64_t part, int64_t parts) {
  const int64_t lines = (bytes + 63) / 64;
  for (int64_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line) {
    _mm_prefetch(reinterpret_cast<const char*>(from + 64 * line), _MM_HINT_T1);
  }
}

template <template <typename, int> class Form, typename Format>
void product(const MatmulQuantizedArgs& args, Range items) {
  const int64_t tile_bytes = tiles::packed_bytes(*args.weight) / args.items();
  const int64_t together = larger<int64_t>(2, kTogetherBytes / tile_bytes / 2 * 2);
  const int64_t groups = (args.rows + kRows - 1) / kRows;
  for (int64_t tile = items.begin; tile < items.end; tile += together) {
    const Range range{tile, smaller(items.end, tile + together)};
    const int64_t next = smaller(items.end, range.end + together) - range.end;
    for (int64_t first = 0; first < args.rows; first += kRows) {
      const int64_t rows = smaller(kRows, args.rows - first);
      if (groups > 1) {
        ask_for_part(args.packed + range.end * tile_bytes, next * tile_bytes, first / kRows,
                     groups);
      }
      switch (rows) {
        case 1:
          tiles_of_rows<Form, Format, 1>(args, range, tile_bytes, first);
          break;
        case 2:
          tiles_of_rows<Form, Format, 2>(args, range, tile_bytes, first);
          break;
        case 3:
          tiles_of_rows<Form, Format, 3>(args, range, tile_bytes, first);
          break;
        case 4:
          tiles_of_rows<Form, Format, 4>(args, range, tile_bytes, first);
          break;
        default:
          if constexpr (kRows > 4) {
            switch (rows) {
              case 5:
                tiles_of_rows<Form, Format, 5>(args, range, tile_bytes, first);
                break;
              case 6:
                tiles_of_rows<Form, Format, 6>(args, range, tile_bytes, first);
                break;
              case 7:
                tiles_of_rows<Form, Format, 7>(args, range, tile_bytes, first);
                break;
              default:
                tiles_of_rows<Form, Format, 8>(args, range, tile_bytes, first);
            }
          }
      }
    }
  }
}

}  // namespace

void matmul_quantized(const MatmulQuantizedArgs& args, Range items) {
  switch (args.weight->type) {
    case TensorType::q4_0:
      return product<Form32, Q4_0>(args, items);
    case TensorType::q4_1:
      return product<Form32, Q4_1>(args, items);
    case TensorType::q5_0:
      return product<Form32, Q5_0>(args, items);
    case TensorType::q5_1:
      return product<Form32, Q5_1>(args, items);
    case TensorType::q8_0:
      return product<Form32, Q8_0>(args, items);
    case TensorType::q2_k:
      return product<Form256, Q2_K>(args, items);
    case TensorType::q3_k:
      return product<Form256, Q3_K>(args, items);
    case TensorType::q4_k:
      return product<Form256, Q45_K<false>>(args, items);
    case TensorType::q5_k:
      return product<Form256, Q45_K<true>>(args, items);
    case TensorType::q6_k:
      return product<Form256, Q6_K>(args, items);
    case TensorType::iq4_nl:
      return product<Form32, IQ4_NL>(args, items);
    case TensorType::iq4_xs:
      return product<Form256, IQ4_XS>(args, items);
    case TensorType::mxfp4:
      return product<Form32, MXFP4>(args, items);
    default:
      __builtin_trap();  // the executor asks activation_form first
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
