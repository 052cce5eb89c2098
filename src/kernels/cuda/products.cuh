// Products of int8 activations with quantised matrices, by int8 tensor cores.
//
// A block has a run of tiles of 16 matrix rows, and 8 or 16 rows of activations (columns here). Its
// eight warps are the law's eight lanes: warp w has segments w, w + 8, …, and adds them in
// ascending order. Integer products are exact, so one mma takes 32 elements whatever its inner
// order; the factors are applied to its results one by one, as the law has it. At the end of some
// tiles the warps' lanes meet in shared memory.
//
// Weights come through a ring in shared memory, one for each warp, which only that warp fills and
// reads: copies of the next units go on while it computes, and no barrier is between.
#pragma once

#include "kernels/cuda/device_code.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kLawLanes = 8;
constexpr int kProductThreads = 32 * kLawLanes;
// Blocks that a multiprocessor runs at a time, and what the rings of one take, at most, in bytes.
constexpr int kBlocksTogether = 2;
constexpr int kRingBytes = 76 << 10;

// Tiles whose lanes are in registers together: the activations of a segment are fetched once for
// them.
constexpr int kTiles = 2;

// What a warp copies at a time: a tile's segment.
template <Format kFormat>
struct Unit {
  static constexpr FormatInfo kInfo = format_info(kFormat);
  static constexpr BlockLayout kAt = block_layout(kFormat);
  static constexpr int kBytes = kAt.bytes * (kInfo.superblocks ? 1 : 8);
  static constexpr int kStages =
      kRingBytes / (kLawLanes * kBytes) < 12 ? kRingBytes / (kLawLanes * kBytes) : 12;
  static_assert(kStages >= 2 && kAt.bytes % 16 == 0);
};

// Shared memory of a block: rings, the activations' factors of each warp, the lanes at the end.
template <Format kFormat, int kEights>
struct ProductShared {
  static constexpr int kRings = kLawLanes * Unit<kFormat>::kStages * Unit<kFormat>::kBytes;
  static constexpr int kFactors = Unit<kFormat>::kInfo.superblocks ? 0 : 2 * 8 * 8 * kEights * 4;
  static constexpr int kLanes = kLawLanes * kTiles * kEights * 128 * 4;
  static constexpr int kBytes = kRings + kLawLanes * kFactors + kLanes;
};

// Four nibbles or so to four bytes: register r of a lane's codes, 2^code_shift times.
template <Codes kCodes>
__device__ inline void unpack_codes(const unsigned char* at, int lane, const uint32_t* table,
                                    uint32_t (&a)[4]) {
  if constexpr (kCodes == Codes::bytes) {
    const Words4 words = *reinterpret_cast<const Words4*>(at + 16 * lane);
    LOCKSTEP_UNROLL
    for (int r = 0; r < 4; ++r) a[r] = words.word[r];
    return;
  } else {
    const Words2 low = *reinterpret_cast<const Words2*>(at + 8 * lane);
    uint32_t high = 0;
    if constexpr (kCodes == Codes::signed_six) {
      high = *reinterpret_cast<const uint32_t*>(at + 256 + 4 * lane);
    }
    if constexpr (kCodes == Codes::five || kCodes == Codes::signed_five) {
      high = *reinterpret_cast<const uint16_t*>(at + 256 + 2 * lane);
    }
    LOCKSTEP_UNROLL
    for (int r = 0; r < 4; ++r) {
      const uint32_t word = low.word[r / 2];
      // Bits 4r … to bit 0 of each byte; the products below do not meet.
      const uint32_t fifth = (high >> (4 * r) & 15u) * 0x00204081u & 0x01010101u;
      if constexpr (kCodes == Codes::nibbles) {
        a[r] = (r % 2 ? word >> 4 : word) & 0x0F0F0F0Fu;
      } else if constexpr (kCodes == Codes::signed_nibbles) {
        a[r] = (r % 2 ? word : word << 4) & 0xF0F0F0F0u;
      } else if constexpr (kCodes == Codes::five) {
        a[r] = ((r % 2 ? word >> 4 : word) & 0x0F0F0F0Fu) | fifth << 4;
      } else if constexpr (kCodes == Codes::signed_five) {
        a[r] = ((r % 2 ? word >> 1 : word << 3) & 0x78787878u) | fifth << 7;
      } else if constexpr (kCodes == Codes::signed_six) {
        a[r] = ((r % 2 ? word >> 2 : word << 2) & 0x3C3C3C3Cu) | (high >> (2 * r) & 0x03030303u)
                                                                     << 6;
      } else {
        const uint32_t index = (r % 2 ? word >> 16 : word) & 0xFFFFu;
        const uint32_t low_half = pick_bytes(table[0], table[1], index & 0x7777u);
        const uint32_t high_half = pick_bytes(table[2], table[3], index & 0x7777u);
        a[r] = pick_bytes(low_half, high_half, 0x3210u | (index & 0x8888u) >> 1);
      }
    }
  }
}

// The activations of a segment that a lane needs: fragments of its eight blocks, for each eight
// columns.
template <int kEights>
struct Columns {
  uint32_t q[kEights][16];
};

template <int kEights>
__device__ inline void fetch_columns(const ProductsArgs& args, int64_t first_row, int64_t segments,
                                     int64_t segment, int lane, Columns<kEights>& to) {
  LOCKSTEP_UNROLL
  for (int n = 0; n < kEights; ++n) {
    const int64_t row = first_row + 8 * n + lane / 4;
    const bool there = row < args.rows;
    const auto* from = reinterpret_cast<const Words4*>(
        args.x.q + ((there ? row : 0) * segments + segment) * 256 + 64 * (lane % 4));
    LOCKSTEP_UNROLL
    for (int i = 0; i < 4; ++i) {
      Words4 words = {};
      if (there) words = from[i];
      LOCKSTEP_UNROLL
      for (int k = 0; k < 4; ++k) to.q[n][4 * i + k] = words.word[k];
    }
  }
}

// Two factors of rows g and g + 8.
struct RowPair {
  float low, high;
};
__device__ inline RowPair row_pair(const unsigned char* at, int g, bool wide) {
  const uint32_t both = reinterpret_cast<const uint32_t*>(at)[g];
  if (wide) {
    return {math::f32_from_bits(both << 16), math::f32_from_bits(both & 0xFFFF0000u)};
  }
  return {half_to_float(both & 0xFFFFu), half_to_float(both >> 16)};
}

// One segment of a tile, form q32: acc of the lane's results, from +0. `factors` are d_x, then
// d_sums of the segment's blocks, [8][columns].
template <Format kFormat, int kEights, bool kWhole>
__device__ inline void segment_q32(const ProductsArgs& args, const unsigned char* unit, int blocks,
                                   int lane, const Columns<kEights>& x, const float* factors,
                                   float (&acc)[kEights][4]) {
  constexpr FormatInfo kInfo = Unit<kFormat>::kInfo;
  constexpr BlockLayout kAt = Unit<kFormat>::kAt;
  constexpr int kShift = code_shift(kInfo.codes);
  const int g = lane / 4, t = lane % 4;
  LOCKSTEP_UNROLL
  for (int n = 0; n < kEights; ++n) {
    LOCKSTEP_UNROLL
    for (int c = 0; c < 4; ++c) acc[n][c] = 0.0f;
  }
  LOCKSTEP_UNROLL
  for (int b = 0; b < 8; ++b) {
    if (!kWhole && b >= blocks) break;
    const unsigned char* block = unit + b * kAt.bytes;
    uint32_t a[4];
    unpack_codes<kInfo.codes>(block, lane, args.table, a);
    const RowPair d = row_pair(block + kAt.d, g, kInfo.codes == Codes::table && args.wide_d);
    RowPair m = {};
    if constexpr (kInfo.mins > 0) m = row_pair(block + kAt.m, g, false);
    LOCKSTEP_UNROLL
    for (int n = 0; n < kEights; ++n) {
      int32_t isum[4] = {0, 0, 0, 0};
      mma_k32(isum, a, x.q[n][2 * b], x.q[n][2 * b + 1]);
      const float* d_x = factors + (b * kEights + n) * 8 + 2 * t;
      LOCKSTEP_UNROLL
      for (int c = 0; c < 4; ++c) {
        const float d_w = c / 2 ? d.high : d.low;
        acc[n][c] =
            math::fma_rn(static_cast<float>(isum[c] >> kShift), d_w * d_x[c % 2], acc[n][c]);
        if constexpr (kInfo.mins > 0) {
          acc[n][c] = math::fma_rn(c / 2 ? m.high : m.low, d_x[64 * kEights + c % 2], acc[n][c]);
        }
      }
    }
  }
}

__device__ inline int32_t signed_byte(uint32_t word, int i) {
  return static_cast<int8_t>(word >> (8 * i));
}

// The same of form q256. d_x of columns 2t and 2t + 1, and the fragments of the sums' digits.
template <int kEights>
struct SuperblockFactors {
  float d[kEights][2];
  uint32_t low[kEights], high[kEights];
};

template <Format kFormat, int kEights>
__device__ inline void segment_q256(const ProductsArgs& args, const unsigned char* unit, int lane,
                                    const Columns<kEights>& x,
                                    const SuperblockFactors<kEights>& factors,
                                    float (&acc)[kEights][4]) {
  constexpr FormatInfo kInfo = Unit<kFormat>::kInfo;
  constexpr BlockLayout kAt = Unit<kFormat>::kAt;
  constexpr int kShift = code_shift(kInfo.codes);
  const int g = lane / 4;
  int32_t sum[kEights][4];
  LOCKSTEP_UNROLL
  for (int n = 0; n < kEights; ++n) {
    LOCKSTEP_UNROLL
    for (int c = 0; c < 4; ++c) sum[n][c] = 0;
  }
  // Scales of rows g and g + 8, four at a time.
  const auto* scales = reinterpret_cast<const uint32_t*>(unit + kAt.scales + 2 * g * kInfo.scales);
  constexpr int kScaleWords = kInfo.scales / 4;  // of a row
  constexpr int kBlocksAWord = 8 / kScaleWords;
  uint32_t low_scales = 0, high_scales = 0;
  LOCKSTEP_UNROLL
  for (int b = 0; b < 8; ++b) {
    uint32_t a[4];
    unpack_codes<kInfo.codes>(unit + b * code_bytes(kInfo.codes), lane, args.table, a);
    if (b % kBlocksAWord == 0) {
      low_scales = scales[b / kBlocksAWord];
      high_scales = scales[kScaleWords + b / kBlocksAWord];
    }
    if constexpr (kInfo.scales == 8) {
      const int32_t low = signed_byte(low_scales, b % 4);
      const int32_t high = signed_byte(high_scales, b % 4);
      LOCKSTEP_UNROLL
      for (int n = 0; n < kEights; ++n) {
        int32_t isum[4] = {0, 0, 0, 0};
        mma_k32(isum, a, x.q[n][2 * b], x.q[n][2 * b + 1]);
        LOCKSTEP_UNROLL
        for (int c = 0; c < 4; ++c) sum[n][c] += (c / 2 ? high : low) * isum[c];
      }
    } else {
      LOCKSTEP_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int j = 2 * b + half;
        const int32_t low = signed_byte(low_scales, j % 4);
        const int32_t high = signed_byte(high_scales, j % 4);
        LOCKSTEP_UNROLL
        for (int n = 0; n < kEights; ++n) {
          int32_t isum[4] = {0, 0, 0, 0};
          mma_k16(isum, a[2 * half], a[2 * half + 1], x.q[n][j]);
          LOCKSTEP_UNROLL
          for (int c = 0; c < 4; ++c) sum[n][c] += (c / 2 ? high : low) * isum[c];
        }
      }
    }
  }
  const RowPair d = row_pair(unit + kAt.d, g, false);
  RowPair dmin = {};
  uint32_t min_low = 0, min_high = 0;  // minimums of rows g and g + 8, sums 4t … 4t + 3
  if constexpr (kInfo.mins > 0) {
    dmin = row_pair(unit + kAt.m, g, false);
    if constexpr (kInfo.mins == 16) {
      const Words2 words = *reinterpret_cast<const Words2*>(unit + kAt.mins + 8 * lane);
      min_low = words.word[0];
      min_high = words.word[1];
    } else {
      const uint32_t words = *reinterpret_cast<const uint32_t*>(unit + kAt.mins + 4 * lane);
      min_low = pick_bytes(words, 0, 0x1100u);
      min_high = pick_bytes(words, 0, 0x3322u);
    }
  }
  LOCKSTEP_UNROLL
  for (int n = 0; n < kEights; ++n) {
    int32_t u_low[4] = {0, 0, 0, 0}, u_high[4] = {0, 0, 0, 0};
    if constexpr (kInfo.mins > 0) {
      mma_k16(u_low, min_low, min_high, factors.low[n]);
      mma_k16(u_high, min_low, min_high, factors.high[n]);
    }
    LOCKSTEP_UNROLL
    for (int c = 0; c < 4; ++c) {
      const float d_x = factors.d[n][c % 2];
      acc[n][c] = static_cast<float>(sum[n][c] >> kShift) * ((c / 2 ? d.high : d.low) * d_x);
      if constexpr (kInfo.mins > 0) {
        const int32_t u = u_low[c] + 128 * u_high[c];
        acc[n][c] =
            math::fma_rn(-static_cast<float>(u), (c / 2 ? dmin.high : dmin.low) * d_x, acc[n][c]);
      }
    }
  }
}

// Where a tile of the launch's matrices is.
struct TilePlace {
  int out;
  int tile;
};
__device__ inline TilePlace place_of_tile(const ProductsArgs& args, int tile) {
  int out = 0;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kMostProducts - 1; ++i) {
    const int own = static_cast<int>((args.outs[i].n_out + kTileRows - 1) / kTileRows);
    if (out == i && tile >= own) {
      tile -= own;
      ++out;
    }
  }
  return {out, tile};
}
__device__ inline const ProductOut& out_of(const ProductsArgs& args, int out) {
  return out == 0 ? args.outs[0] : out == 1 ? args.outs[1] : args.outs[2];
}

inline int all_tiles(const ProductsArgs& args) {
  int64_t tiles = 0;
  for (const ProductOut& out : args.outs) tiles += (out.n_out + kTileRows - 1) / kTileRows;
  return static_cast<int>(tiles);
}

// The units of a warp in the order in which it computes them.
struct UnitCursor {
  int tile, segment, of_chunk;

  __device__ void next(int warp, int segments, int end) {
    const int chunk = end - tile < kTiles ? end - tile : kTiles;
    if (++of_chunk < chunk) return;
    of_chunk = 0;
    segment += kLawLanes;
    if (segment < segments) return;
    segment = warp;
    tile += kTiles;
  }
};

// One kernel has no room for its registers in half a multiprocessor.
template <Format kFormat, int kEights>
constexpr int kResident = kFormat == Format::iq4_xs&& kEights == 2 ? 1 : kBlocksTogether;

template <Format kFormat, int kEights>
__global__ void __launch_bounds__(kProductThreads, kResident<kFormat, kEights>)
    products_kernel(ProductsArgs args) {
  using Own = Unit<kFormat>;
  using Shared = ProductShared<kFormat, kEights>;
  constexpr bool kSuper = Own::kInfo.superblocks;
  constexpr int kColumns = 8 * kEights;
  LOCKSTEP_SHARED(shared);
  let_next_launch_start();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int segments = static_cast<int>(segments_of(args.n_in));
  const int blocks = static_cast<int>(args.n_in / (kSuper ? 256 : 32));  // of a row
  // Neighbours have the same tiles and other columns: they find the weights in the L2.
  const int groups = static_cast<int>((args.rows + kColumns - 1) / kColumns);
  const int share = static_cast<int>(blockIdx.x) / groups;
  const int shares = static_cast<int>(gridDim.x) / groups;
  const int64_t first_row =
      static_cast<int64_t>(blockIdx.x % static_cast<unsigned>(groups)) * kColumns;
  int tiles = 0;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kMostProducts; ++i) {
    tiles += static_cast<int>((args.outs[i].n_out + kTileRows - 1) / kTileRows);
  }
  const int begin = static_cast<int>(static_cast<int64_t>(tiles) * share / shares);
  const int end = static_cast<int>(static_cast<int64_t>(tiles) * (share + 1) / shares);

  unsigned char* ring = shared + warp * Own::kStages * Own::kBytes;
  float* factors = reinterpret_cast<float*>(shared + Shared::kRings + warp * Shared::kFactors);
  float* lanes_at =
      reinterpret_cast<float*>(shared + Shared::kRings + kLawLanes * Shared::kFactors);

  UnitCursor ahead{warp < segments ? begin : end, warp, 0};
  int fill = 0;  // the stage that is filled next
  const auto fetch_next = [&] {
    if (ahead.tile < end) {
      const TilePlace place = place_of_tile(args, ahead.tile + ahead.of_chunk);
      const int first = kSuper ? ahead.segment : 8 * ahead.segment;
      const std::byte* from = out_of(args, place.out).packed +
                              (static_cast<int64_t>(place.tile) * blocks + first) * Own::kAt.bytes;
      const int bytes =
          (kSuper || blocks - first >= 8 ? Own::kBytes : (blocks - first) * Own::kAt.bytes);
      unsigned char* to = ring + fill * Own::kBytes;
      LOCKSTEP_UNROLL
      for (int at = 0; at < Own::kBytes; at += 512) {
        if (at + 16 * lane < bytes) copy16_async(to + at + 16 * lane, from + at + 16 * lane);
      }
      ahead.next(warp, segments, end);
    }
    fill = fill + 1 == Own::kStages ? 0 : fill + 1;
  };
  for (int i = 0; i < Own::kStages - 1; ++i) {
    fetch_next();
    commit_copies();
  }
  wait_for_earlier_launches();

  int stage = 0;
  for (int tile = begin; tile < end; tile += kTiles) {
    const int chunk = end - tile < kTiles ? end - tile : kTiles;
    float lanes[kTiles][kEights][4];
    LOCKSTEP_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      LOCKSTEP_UNROLL
      for (int n = 0; n < kEights; ++n) {
        LOCKSTEP_UNROLL
        for (int c = 0; c < 4; ++c) lanes[i][n][c] = 0.0f;
      }
    }
    for (int segment = warp; segment < segments; segment += kLawLanes) {
      Columns<kEights> x;
      fetch_columns<kEights>(args, first_row, segments, segment, lane, x);
      SuperblockFactors<kEights> super;
      if constexpr (kSuper) {
        LOCKSTEP_UNROLL
        for (int n = 0; n < kEights; ++n) {
          LOCKSTEP_UNROLL
          for (int i = 0; i < 2; ++i) {
            const int64_t row = first_row + 8 * n + 2 * (lane % 4) + i;
            super.d[n][i] = row < args.rows ? args.x.d[row * segments + segment] : 0.0f;
          }
          const int64_t row = first_row + 8 * n + lane / 4;
          super.low[n] = super.high[n] = 0;
          if (Own::kInfo.mins > 0 && row < args.rows) {
            const auto* digits =
                reinterpret_cast<const uint32_t*>(args.x.digits + (row * segments + segment) * 32);
            super.low[n] = digits[lane % 4];
            super.high[n] = digits[4 + lane % 4];
          }
        }
      } else {
        LOCKSTEP_UNROLL
        for (int i = 0; i < 2 * kEights; ++i) {
          const int column = (32 * i + lane) / 8, b = lane % 8;
          const int64_t row = first_row + column;
          const int64_t at = (row * segments + segment) * 8 + b;
          factors[b * kColumns + column] = row < args.rows ? args.x.d[at] : 0.0f;
          if constexpr (Own::kInfo.mins > 0) {
            factors[(8 + b) * kColumns + column] = row < args.rows ? args.x.d_sums[at] : 0.0f;
          }
        }
        __syncwarp();
      }
      LOCKSTEP_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        if (i < chunk) {
          fetch_next();
          commit_copies();
          wait_copies<Own::kStages - 1>();
          __syncwarp();
          const unsigned char* unit = ring + stage * Own::kBytes;
          stage = stage + 1 == Own::kStages ? 0 : stage + 1;
          float acc[kEights][4];
          if constexpr (kSuper) {
            segment_q256<kFormat, kEights>(args, unit, lane, x, super, acc);
          } else {
            const int left = blocks - 8 * segment;
            if (left >= 8) {
              segment_q32<kFormat, kEights, true>(args, unit, 8, lane, x, factors, acc);
            } else {
              segment_q32<kFormat, kEights, false>(args, unit, left, lane, x, factors, acc);
            }
          }
          LOCKSTEP_UNROLL
          for (int n = 0; n < kEights; ++n) {
            LOCKSTEP_UNROLL
            for (int c = 0; c < 4; ++c) lanes[i][n][c] = lanes[i][n][c] + acc[n][c];
          }
          __syncwarp();  // all have read the unit, and the factors, before they are replaced
        }
      }
    }
    // The lanes of all warps, [warp][tile][eight][c][lane].
    __syncthreads();  // the last sums have been read
    LOCKSTEP_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      LOCKSTEP_UNROLL
      for (int n = 0; n < kEights; ++n) {
        LOCKSTEP_UNROLL
        for (int c = 0; c < 4; ++c) {
          lanes_at[((warp * kTiles + i) * kEights + n) * 128 + c * 32 + lane] = lanes[i][n][c];
        }
      }
    }
    __syncthreads();
    for (int item = static_cast<int>(threadIdx.x); item < chunk * kEights * 128;
         item += kProductThreads) {
      float l[kLawLanes];
      LOCKSTEP_UNROLL
      for (int w = 0; w < kLawLanes; ++w) {
        l[w] = lanes_at[w * kTiles * kEights * 128 + item];
      }
      float y = ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]));
      const int c = item / 32 % 4, n = item / 128 % kEights, i = item / 128 / kEights;
      const TilePlace place = place_of_tile(args, tile + i);
      const ProductOut& out = out_of(args, place.out);
      const int64_t column =
          static_cast<int64_t>(place.tile) * kTileRows + item % 32 / 4 + 8 * (c / 2);
      const int64_t row = first_row + 8 * n + 2 * (item % 4) + c % 2;
      if (column >= out.n_out || row >= args.rows) continue;
      if (out.bias != nullptr) y = y + out.bias[column];
      out.out[row * out.n_out + column] = y;
    }
  }
}

template <Format kFormat, int kEights>
void launch_products(const ProductsArgs& args, Stream stream) {
  const int64_t groups = (args.rows + 8 * kEights - 1) / (8 * kEights);
  const int tiles = all_tiles(args);
  const int64_t most = int64_t{kBlocksTogether} * args.processors;
  const int64_t shares = tiles < most ? tiles : most;
  LOCKSTEP_LAUNCH((products_kernel<kFormat, kEights>), static_cast<unsigned>(shares * groups),
                  kProductThreads, (ProductShared<kFormat, kEights>::kBytes), stream, args);
}

template <Format kFormat>
void launch_products(const ProductsArgs& args, Stream stream) {
  if (args.rows <= 8) {
    launch_products<kFormat, 1>(args, stream);
  } else {
    launch_products<kFormat, 2>(args, stream);
  }
}

}  // namespace
}  // namespace lockstep::kernels::cuda
