// The product over packed tiles: sixteen output columns side by side, each in the law's own order,
// for up to Simd::kRows rows of the pass at a time. Compiled once per instruction set; the
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

// Rows [first, first + R) of the activations, as one group of kernels reads them.
template <int R>
struct Rows {
  const int8_t* q[R];
  const float* d;           // [block][rows]
  const float* d_sums;      // [32 elements][rows]
  const int16_t* sums;      // [32 elements][rows][2], minus Σ q of 16 each
  int64_t rows;             // of the pass: the stride
};

// acc[r] += Σ w·q over group g of the block at element k.
template <bool is_signed, int R>
inline void dot_rows(Int* acc, Codes w, const Rows<R>& x, int64_t at) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    acc[r] = is_signed ? Simd::dot_signed(acc[r], w, x.q[r] + at) : Simd::dot(acc[r], w, x.q[r] + at);
  }
}

// Form 32. A Format says how a block's sum starts, and adds the block's dots to it.
struct Q8_0 {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kCodeBytes = tiles::kCodes8;
  static Int start(const int16_t* sums) { return Simd::start_signed(sums); }
  template <int R>
  static void dots(const std::byte* codes, const Rows<R>& x, int64_t k, Int* isum) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      dot_rows<true>(isum, Simd::load_codes(codes + 64 * g), x, k + 4 * g);
    }
  }
};

template <int offset, bool has_min, bool fifth_bits>
struct Nibbles {
  static constexpr bool kHasMin = has_min;
  static constexpr int64_t kCodeBytes = tiles::kCodes4 + (fifth_bits ? tiles::kFifthBits : 0);
  static Int start(const int16_t* sums) {
    if constexpr (offset == 0) return Simd::zero_int();
    return Simd::dot_sums<offset>(sums);
  }
  template <int R>
  static void dots(const std::byte* codes, const Rows<R>& x, int64_t k, Int* isum) {
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const Codes both = Simd::load_codes(codes + 64 * g);
      Codes low = Simd::low_nibbles(both), high = Simd::high_nibbles(both);
      if constexpr (fifth_bits) {
        low = Simd::add_fifth_bits(low, codes + tiles::kCodes4 + 8 * g);
        high = Simd::add_fifth_bits(high, codes + tiles::kCodes4 + 8 * (g + 4));
      }
      dot_rows<false>(isum, low, x, k + 4 * g);
      dot_rows<false>(isum, high, x, k + 16 + 4 * g);
    }
  }
};
using Q4_0 = Nibbles<8, false, false>;
using Q4_1 = Nibbles<0, true, false>;
using Q5_0 = Nibbles<16, false, true>;
using Q5_1 = Nibbles<0, true, true>;

// The eight lanes of the law, of R rows by sixteen columns.
template <int R>
struct Lanes {
  Float lane[8][R];
  Lanes() {
    for (auto& l : lane) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) l[r] = Simd::zero();
    }
  }
  void add(int64_t segment, const Float* acc) {
    Float* l = lane[segment % 8];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) l[r] = Simd::add(l[r], acc[r]);
  }
  Float sum(int r) const {
    const auto pair = [&](int i) { return Simd::add(lane[i][r], lane[i + 1][r]); };
    return Simd::add(Simd::add(pair(0), pair(2)), Simd::add(pair(4), pair(6)));
  }
};

template <typename Format, int R>
struct Form32 {
  static const std::byte* tile(const std::byte* in, const Rows<R>& x, int64_t n_in,
                               Lanes<R>& lanes) {
    const int64_t n_blocks = n_in / 32;
    for (int64_t b0 = 0; b0 < n_blocks; b0 += tiles::kBlocksPerSegment) {
      const int64_t count = smaller(tiles::kBlocksPerSegment, n_blocks - b0);
      const std::byte* codes = in + tiles::factor_bytes(count, Format::kHasMin);
      Float acc[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) acc[r] = Simd::zero();
      for (int64_t b = 0; b < count; ++b, codes += Format::kCodeBytes) {
        const int64_t at = (b0 + b) * x.rows;
        Int isum[R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) isum[r] = Format::start(x.sums + 2 * (at + r));
        Format::template dots<R>(codes, x, 32 * (b0 + b), isum);
        const Float d = Simd::load_f16(in + 32 * b);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          acc[r] = Simd::fma(Simd::to_float(isum[r]), Simd::mul(d, Simd::broadcast(x.d + at + r)),
                             acc[r]);
        }
        if constexpr (Format::kHasMin) {
          const Float m = Simd::load_f16(in + 32 * (count + b));
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            acc[r] = Simd::fma(m, Simd::broadcast(x.d_sums + at + r), acc[r]);
          }
        }
      }
      lanes.add(b0 / tiles::kBlocksPerSegment, acc);
      in = codes;
    }
    return in;
  }
};

// Form 256: t (and minus u, where there is a minimum) of one superblock.
template <bool fifth_bits>
struct Q45_K {
  static constexpr bool kHasMin = true;
  static constexpr int64_t kBytes = fifth_bits ? tiles::Q45_K::kBytes5 : tiles::Q45_K::kBytes4;
  template <int R>
  static void sums(const std::byte* in, const Rows<R>& x, int64_t s, Int* t, Int* minus_u) {
    using L = tiles::Q45_K;
    for (int j = 0; j < 8; ++j) {  // sub-block
      Int isum[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) isum[r] = Simd::zero_int();
      const std::byte* nibbles = in + L::kNibbles + 512 * (j / 2);
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) {
        const Codes both = Simd::load_codes(nibbles + 64 * g);
        Codes w = j % 2 == 0 ? Simd::low_nibbles(both) : Simd::high_nibbles(both);
        if constexpr (fifth_bits) w = Simd::add_fifth_bits(w, in + L::kFifth + 64 * j + 8 * g);
        dot_rows<false>(isum, w, x, 256 * s + 32 * j + 4 * g);
      }
      const Int low = Simd::widen_bytes(in + L::kLow + 16 * j);
      const Int upper = Simd::widen_bytes(in + L::kUpper + 16 * (j % 4));
      Int scale = Simd::masked(low, 15), min = Simd::shift_right<4>(low);
      if (j < 4) {
        scale = Simd::either(scale, Simd::masked(Simd::shift_left<4>(upper), 48));
        min = Simd::either(min, Simd::masked(Simd::shift_left<2>(upper), 48));
      } else {
        scale = Simd::either(scale, Simd::masked(upper, 48));
        min = Simd::either(min, Simd::masked(Simd::shift_right<2>(upper), 48));
      }
      min = Simd::either(min, Simd::shift_left<16>(min));  // for both sums of 16
      const int16_t* sums = x.sums + 2 * (8 * s + j) * x.rows;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        t[r] = Simd::mul_add(isum[r], scale, t[r]);
        minus_u[r] = Simd::dot_pairs(minus_u[r], min, sums + 2 * r);
      }
    }
  }
  static Float d(const std::byte* in) { return Simd::load_f16(in + tiles::Q45_K::kD); }
  static Float dmin(const std::byte* in) { return Simd::load_f16(in + tiles::Q45_K::kDmin); }
};

struct Q6_K {
  static constexpr bool kHasMin = false;
  static constexpr int64_t kBytes = tiles::Q6_K::kBytes;
  // Quarter k of a half: two sums of 16 elements, scaled and added to t.
  template <int k, int R>
  static void quarter(const std::byte* in, int half, const Rows<R>& x, int64_t s, Int* t,
                      Int* scaled_sums) {
    using L = tiles::Q6_K;
    const int j = 4 * half + k;  // of the 32 elements
    const Int scales = Simd::widen_signed_pairs(in + L::kScales + 32 * j);
    const int16_t* sums = x.sums + 2 * (8 * s + j) * x.rows;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      scaled_sums[r] = Simd::dot_pairs(scaled_sums[r], scales, sums + 2 * r);
    }
    for (int part = 0; part < 2; ++part) {
      Int isum[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) isum[r] = Simd::zero_int();
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const int g = 4 * part + i;
        const Codes both = Simd::load_codes(in + L::kNibbles + 64 * (16 * half + 8 * (k & 1) + g));
        const Codes upper = Simd::load_codes(in + L::kUpper + 64 * (8 * half + g));
        const Codes w = Simd::add_two_bits<k>(
            k < 2 ? Simd::low_nibbles(both) : Simd::high_nibbles(both), upper);
        dot_rows<false>(isum, w, x, 256 * s + 32 * j + 4 * g);
      }
      const Int scale = part == 0 ? Simd::shift_right<16>(Simd::shift_left<16>(scales))
                                  : Simd::shift_right<16>(scales);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) t[r] = Simd::mul_add(isum[r], scale, t[r]);
    }
  }
  template <int R>
  static void sums(const std::byte* in, const Rows<R>& x, int64_t s, Int* t, Int*) {
    Int scaled_sums[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) scaled_sums[r] = Simd::zero_int();
    for (int half = 0; half < 2; ++half) {
      quarter<0>(in, half, x, s, t, scaled_sums);
      quarter<1>(in, half, x, s, t, scaled_sums);
      quarter<2>(in, half, x, s, t, scaled_sums);
      quarter<3>(in, half, x, s, t, scaled_sums);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {  // codes are stored as code + 32
      t[r] = Simd::add_int(t[r], Simd::shift_left<5>(scaled_sums[r]));
    }
  }
  static Float d(const std::byte* in) { return Simd::load_f16(in + tiles::Q6_K::kD); }
  static Float dmin(const std::byte*) { return Simd::zero(); }
};

template <typename Format, int R>
struct Form256 {
  static const std::byte* tile(const std::byte* in, const Rows<R>& x, int64_t n_in,
                               Lanes<R>& lanes) {
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
      lanes.add(s, acc);
    }
    return in;
  }
};

// Tiles [first, last) for R rows of the pass from first_row on.
template <template <typename, int> class Form, typename Format, int R>
void tiles_of_rows(const MatmulQuantizedArgs& args, Range range, int64_t tile_bytes,
                   int64_t first_row) {
  const Weight& w = *args.weight;
  Rows<R> x;
  for (int r = 0; r < R; ++r) x.q[r] = args.x.q + (first_row + r) * w.n_in;
  x.d = args.x.d + first_row;
  x.d_sums = args.x.d_sums + first_row;
  x.sums = args.x.sums + 2 * first_row;
  x.rows = args.rows;
  for (int64_t tile = range.begin; tile < range.end; ++tile) {
    Lanes<R> lanes;
    Form<Format, R>::tile(args.packed + tile * tile_bytes, x, w.n_in, lanes);
    const int64_t n = tile * tiles::kColumns;
    const int64_t columns = smaller(tiles::kColumns, w.n_out - n);
    float* out = args.out + first_row * w.n_out + n;
    for (int r = 0; r < R; ++r, out += w.n_out) {
      Float y = lanes.sum(r);
      if (args.bias) y = Simd::add(y, Simd::load_columns(args.bias + n, columns));
      Simd::store_columns(out, y, columns);
    }
  }
}

// Tiles that share the second-level cache while all rows pass over them.
constexpr int64_t kTilesTogether = 8;

template <template <typename, int> class Form, typename Format>
void product(const MatmulQuantizedArgs& args, Range items) {
  const int64_t tile_bytes =
      tiles::packed_bytes(*args.weight) / ((args.weight->n_out + 15) / 16);
  // Groups as even as can be: 9 rows are 5 and 4.
  const int64_t groups = (args.rows + Simd::kRows - 1) / Simd::kRows;
  for (int64_t tile = items.begin; tile < items.end; tile += kTilesTogether) {
    const Range range{tile, smaller(items.end, tile + kTilesTogether)};
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t first = args.rows * g / groups, rows = args.rows * (g + 1) / groups - first;
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
          if constexpr (Simd::kRows > 4) {
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
    case TensorType::q4_k:
      return product<Form256, Q45_K<false>>(args, items);
    case TensorType::q5_k:
      return product<Form256, Q45_K<true>>(args, items);
    case TensorType::q6_k:
      return product<Form256, Q6_K>(args, items);
    default:
      __builtin_trap();  // the executor asks activation_form first
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
