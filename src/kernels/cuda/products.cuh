// Products of int8 activations with quantised matrices, by int8 tensor cores.
//
// A block has a run of tiles of 16 matrix rows, and 1, 8 or 16 rows of activations (columns here).
// Its eight warps are the law's eight lanes: warp w has segments w, w + 8, …, and adds them in
// ascending order. Integer products are exact, so one mma takes 32 elements whatever its inner
// order; the factors are applied to its results one by one, as the law has it. At the end of some
// tiles the warps' lanes meet in shared memory.
#pragma once

#include "kernels/cuda/products_ring.cuh"
#include "kernels/cuda/products_row.cuh"
#include "kernels/cuda/products_wide.cuh"

namespace lockstep::kernels::cuda {
namespace {

constexpr int kProductThreads = 32 * kLawLanes;
// The arithmetic of a warp: kEights eights of columns, or one column alone.
constexpr int kOneColumn = 0;
template <Format kFormat, int kEights>
struct ArithmeticOf {
  using Type = WideProducts<kFormat, kEights>;
};
template <Format kFormat>
struct ArithmeticOf<kFormat, kOneColumn> {
  using Type = RowProducts<kFormat>;
};

// Blocks that a multiprocessor runs at a time, and what the rings of one take, at most, in bytes.
template <int kEights>
constexpr int kBlocksTogether = 2;
template <int kEights>
constexpr int kRingBytes = 76 << 10;

// Shared memory of a block: rings with their barriers, the activations' factors of each warp, the
// lanes at the end: those of a chunk and of the one before, where there is room for both.
template <Format kFormat, int kEights>
struct ProductShared {
  using Arithmetic = typename ArithmeticOf<kFormat, kEights>::Type;
  static constexpr int kUnitBytes = Unit<kFormat>::kBytes;
  static constexpr int kMost = kRingBytes<kEights> / (kLawLanes * kUnitBytes);
  static constexpr int kStages = kMost < 12 ? kMost : 12;
  static_assert(kStages >= 2);
  static constexpr int kRings = kLawLanes * kStages * kUnitBytes;
  static constexpr int kBarriers = kRings;
  static constexpr int kFactors = kBarriers + kLawLanes * kStages * 8;
  static constexpr int kLanes = kFactors + kLawLanes * Arithmetic::kFactorBytes;
  static constexpr int kLanesFloats = kLawLanes * kTiles * Arithmetic::kOutputs;
  static constexpr bool kTwice = kEights < 2;
  static constexpr int kBytes = kLanes + (kTwice ? 2 : 1) * kLanesFloats * 4;
  // A block may have 99 kB on sm_86 and sm_89. A multiprocessor has 228 from sm_90 on, of which a
  // block costs one.
  static_assert(kBytes <= 99 << 10);
  static_assert(kBlocksTogether<kEights> * (kBytes + 1024) <= 228 << 10);
};

// Registers of a thread. Two blocks must leave some of a multiprocessor's 65,536: launches between
// two products start beside the next one's blocks or hold them up. These are the fewest that keep
// all in registers (tests/kernels/cuda/sass_test.py).
template <Format kFormat, int kEights>
constexpr int kRegisters = kEights == 0                                            ? 120
                           : kEights == 1                                          ? 104
                           : kFormat == Format::q8_0 || kFormat == Format::table32 ? 120
                                                                                   : 112;

// The tiles of a share, of `shares`. Where all multiprocessors have as many blocks, blocks i,
// i + processors, … are expected on one, which then has its part of all tiles, to the tile.
struct Share {
  int begin, end;
};
__device__ inline Share share_of(int tiles, int share, int shares, int processors) {
  const auto part = [](int all, int i, int of) {
    return static_cast<int>((static_cast<int64_t>(all) * i + of - 1) / of);
  };
  if (shares % processors != 0) return {part(tiles, share, shares), part(tiles, share + 1, shares)};
  const int own = share % processors, turn = share / processors, turns = shares / processors;
  const int begin = part(tiles, own, processors);
  const int tiles_here = part(tiles, own + 1, processors) - begin;
  return {begin + part(tiles_here, turn, turns), begin + part(tiles_here, turn + 1, turns)};
}

template <Format kFormat, int kEights>
__global__ void __maxnreg__((kRegisters<kFormat, kEights>)) products_kernel(ProductsArgs args) {
  using Shared = ProductShared<kFormat, kEights>;
  using Arithmetic = typename Shared::Arithmetic;
  constexpr bool kSuper = Unit<kFormat>::kInfo.superblocks;
  constexpr int kOutputs = Arithmetic::kOutputs, kValues = Arithmetic::kValues;
  LOCKSTEP_SHARED(shared);
  let_next_launch_start();
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int segments = static_cast<int>(segments_of(args.n_in));
  const int blocks = static_cast<int>(args.n_in / (kSuper ? 256 : 32));  // of a row
  // Neighbours have the same tiles and other columns: they find the weights in the L2.
  const int groups =
      static_cast<int>((args.rows + Arithmetic::kColumns - 1) / Arithmetic::kColumns);
  const int share = static_cast<int>(blockIdx.x) / groups;
  const int64_t first_row =
      static_cast<int64_t>(static_cast<int>(blockIdx.x) % groups) * Arithmetic::kColumns;
  const TileCounts counts = tile_counts(args);
  const auto [begin, end] =
      share_of(all_tiles(counts), share, static_cast<int>(gridDim.x) / groups, args.processors);

  Ring<kFormat, Shared::kStages> ring(
      args, counts, shared + warp * Shared::kStages * Shared::kUnitBytes,
      reinterpret_cast<uint64_t*>(shared + Shared::kBarriers) + warp * Shared::kStages, blocks,
      begin, end);
  wait_for_earlier_launches();

  Arithmetic arithmetic(
      args, first_row, segments,
      reinterpret_cast<float*>(shared + Shared::kFactors + warp * Arithmetic::kFactorBytes));
  if (warp < segments) arithmetic.fetch(warp);
  float* lanes_at = reinterpret_cast<float*>(shared + Shared::kLanes);
  [[maybe_unused]] int other_lanes = Shared::kLanesFloats;
  for (int tile = begin; tile < end;) {
    const Chunk chunk = chunk_at(counts, tile, end);
    float lanes[kTiles][kValues] = {};
    for (int segment = warp; segment < segments; segment += kLawLanes) {
      // The next chunk begins anew.
      const int next = segment + kLawLanes < segments ? segment + kLawLanes : warp;
      arithmetic.begin_segment(segment, next);
      LOCKSTEP_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        if (i < chunk.tiles) {
          float acc[kValues];
          arithmetic.segment(ring.wait(), blocks - 8 * segment, i + 1 == chunk.tiles, next, acc);
          LOCKSTEP_UNROLL
          for (int v = 0; v < kValues; ++v) lanes[i][v] = lanes[i][v] + acc[v];
          ring.release();
        }
      }
    }
    // The lanes of all warps, [warp][tile][output]. All have read the last ones: where they are
    // kept twice, the barrier of the chunk between was after that.
    if constexpr (!Shared::kTwice) __syncthreads();
    LOCKSTEP_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      arithmetic.store(lanes[i], lanes_at + (warp * kTiles + i) * kOutputs);
    }
    __syncthreads();
    const ProductOut& out = out_of(args, chunk.out);
    for (int item = static_cast<int>(threadIdx.x); item < chunk.tiles * kOutputs;
         item += kProductThreads) {
      float l[kLawLanes];
      LOCKSTEP_UNROLL
      for (int w = 0; w < kLawLanes; ++w) l[w] = lanes_at[w * kTiles * kOutputs + item];
      float y = ((l[0] + l[1]) + (l[2] + l[3])) + ((l[4] + l[5]) + (l[6] + l[7]));
      const int of_tile = item % kOutputs;
      const int64_t column = static_cast<int64_t>(chunk.first + item / kOutputs) * kTileRows +
                             Arithmetic::tile_row(of_tile);
      const int64_t row = first_row + Arithmetic::column(of_tile);
      if (column >= out.n_out || row >= args.rows) continue;
      if (out.bias != nullptr) y = y + out.bias[column];
      out.out[row * out.n_out + column] = y;
    }
    if constexpr (Shared::kTwice) {
      lanes_at += other_lanes;
      other_lanes = -other_lanes;
    }
    tile += chunk.tiles;
  }
}

template <Format kFormat, int kEights>
void launch_products(const ProductsArgs& args, Stream stream) {
  constexpr int kColumns = ProductShared<kFormat, kEights>::Arithmetic::kColumns;
  const int64_t groups = (args.rows + kColumns - 1) / kColumns;
  const int tiles = all_tiles(tile_counts(args));
  const int64_t most = int64_t{kBlocksTogether<kEights>} * args.processors;
  const int64_t shares = tiles < most ? tiles : most;
  LOCKSTEP_LAUNCH((products_kernel<kFormat, kEights>), static_cast<unsigned>(shares * groups),
                  kProductThreads, (ProductShared<kFormat, kEights>::kBytes), stream, args);
}

template <Format kFormat>
void launch_products(const ProductsArgs& args, Stream stream) {
  if (args.rows == 1) {
    launch_products<kFormat, kOneColumn>(args, stream);
  } else if (args.rows <= 8) {
    launch_products<kFormat, 1>(args, stream);
  } else {
    launch_products<kFormat, 2>(args, stream);
  }
}

}  // namespace
}  // namespace lockstep::kernels::cuda
