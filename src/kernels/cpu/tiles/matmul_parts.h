// What the products over packed tiles share, whatever the format: rows of activations in registers,
// the law's lanes, and the walk over tiles and rows. Included once per instruction set; the
// instructions are in LOCKSTEP_SIMD_HEADER.
#pragma once

#include "kernels/ops/matmul_quantized.h"

#include LOCKSTEP_SIMD_HEADER
#include "kernels/cpu/tiles/layout.h"
#include "kernels/cpu/tiles/pack.h"
#include "kernels/cpu/tiles/prefetch.h"
#include "kernels/reference/reference.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

using Int = Simd::Int;
using Float = Simd::Float;
using Codes = Simd::Codes;
constexpr int64_t kRows = LOCKSTEP_ROWS_TOGETHER;

// Rows [first, first + R) of the activations, as one group of kernels reads them.
template <int R>
struct Rows {
  const int8_t* q;        // [n_in ÷ 4][R][4]
  const float* d;         // [block][rows]
  const float* d_sums;    // [32 elements][rows]
  const int32_t* starts;  // [32 elements][rows], -128·Σ q
  const int16_t* sums;    // [32 elements][rows][2], minus Σ q of 16 each
  int64_t rows;           // of the pass: the stride
  int64_t far[2];         // what to ask the second level for while even and odd parts are read: of
                          // two tiles side by side, else of a tile's superblocks
};

// Weights are read once, in order. Asked for ahead of their use, a line for every line that is
// read, they come while earlier ones are computed with; without it the eight rows of a verify pass
// cost 2.5 times as much (docs/rejected.md). Past a matrix's end it asks for nothing of use, and
// can't fault.
inline Codes load_ahead(const std::byte* codes, int64_t far = tiles::kAhead.far) {
  _mm_prefetch(reinterpret_cast<const char*>(codes + far), _MM_HINT_T2);
  _mm_prefetch(reinterpret_cast<const char*>(codes + tiles::kAhead.near), _MM_HINT_T0);
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

// What an index stands for: the codes of IQ4_NL and IQ4_XS + 128, those of MXFP4 + 12.
constexpr uint8_t kCodesIQ4[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                   129, 141, 153, 166, 181, 197, 217, 241};
constexpr uint8_t kCodesMXFP4[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

// Four rows of nibbles are 32 elements: the low ones the first 16.
template <const uint8_t* table, bool is_signed, int R, int T>
inline void dot_indices(const std::byte* codes, int64_t tile_bytes, const int64_t* far,
                        const int8_t* q, Int isum[][R]) {
#pragma GCC unroll 4
  for (int g = 0; g < 4; ++g) {
    Codes low[T], high[T];
#pragma GCC unroll 2
    for (int t = 0; t < T; ++t) {
      const Codes both = load_ahead(codes + t * tile_bytes + 64 * g, far[t]);
      low[t] = Simd::look_up(table, Simd::low_nibbles(both));
      high[t] = Simd::look_up(table, Simd::high_nibbles(both));
    }
    dot_tiles<is_signed, R, T>(isum, low, q, 4 * g);
    dot_tiles<is_signed, R, T>(isum, high, q, 16 + 4 * g);
  }
}

// The lanes of the law, of R rows by sixteen columns. bench/order_cost compiles these files with
// one lane in place of eight, to see what the law's order costs; nothing else may.
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

// Distances in bytes at which a group of rows asks for weights (Rows::far).
struct Far {
  int64_t even, odd;
};

// Tiles [range.begin, range.end) for R rows of the pass from first_row on.
template <template <typename, int> class Form, typename Format, int R>
void tiles_of_rows(const MatmulQuantizedArgs& args, Range range, int64_t tile_bytes,
                   int64_t first_row, Far far) {
  const Rows<R> x = {args.x.q + first_row * args.weight->n_in,
                     args.x.d + first_row,
                     args.x.d_sums + first_row,
                     args.x.starts + first_row,
                     args.x.sums + 2 * first_row,
                     args.rows,
                     {far.even, far.odd}};
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

// With several groups of rows, the first two ask for half each of the tiles that come next, line by
// line as they read their own: so the memory is busy in both. Nobody has asked for a first run of
// tiles; its first group reads as one alone does, and its second asks for all of the next.
inline Far far_of(int64_t group, int64_t groups, bool is_first, bool is_last, int64_t next) {
  const tiles::Ahead& ahead = tiles::kAhead;
  if (groups == 1 || (is_first && group == 0)) return {ahead.far, ahead.far};
  if (is_last) return {ahead.near, ahead.near};
  if (is_first && group == 1) return {next, next};
  return {group == 0 ? next : ahead.near, group == 1 ? next : ahead.near};
}

template <template <typename, int> class Form, typename Format>
void product(const MatmulQuantizedArgs& args, Range items) {
  const int64_t tile_bytes = tiles::packed_bytes(*args.weight) / args.items();
  const int64_t together = larger<int64_t>(2, kTogetherBytes / tile_bytes / 2 * 2);
  const int64_t groups = (args.rows + kRows - 1) / kRows;
  for (int64_t tile = items.begin; tile < items.end; tile += together) {
    const Range range{tile, smaller(items.end, tile + together)};
    for (int64_t first = 0; first < args.rows; first += kRows) {
      const int64_t rows = smaller(kRows, args.rows - first);
      const Far far = far_of(first / kRows, groups, tile == items.begin, range.end == items.end,
                             together * tile_bytes);
      switch (rows) {
        case 1:
          tiles_of_rows<Form, Format, 1>(args, range, tile_bytes, first, far);
          break;
        case 2:
          tiles_of_rows<Form, Format, 2>(args, range, tile_bytes, first, far);
          break;
        case 3:
          tiles_of_rows<Form, Format, 3>(args, range, tile_bytes, first, far);
          break;
        case 4:
          tiles_of_rows<Form, Format, 4>(args, range, tile_bytes, first, far);
          break;
        default:
          if constexpr (kRows > 4) {
            switch (rows) {
              case 5:
                tiles_of_rows<Form, Format, 5>(args, range, tile_bytes, first, far);
                break;
              case 6:
                tiles_of_rows<Form, Format, 6>(args, range, tile_bytes, first, far);
                break;
              case 7:
                tiles_of_rows<Form, Format, 7>(args, range, tile_bytes, first, far);
                break;
              default:
                tiles_of_rows<Form, Format, 8>(args, range, tile_bytes, first, far);
            }
          }
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
