// How a launch's tiles are shared out, and the ring in shared memory through which a warp gets its
// units of them. Only that warp fills and reads it: copies of the next units go on while it
// computes, and no barrier of the block is between.
#pragma once

#include "kernels/cuda/products_parts.cuh"

namespace lockstep::kernels::cuda {
namespace {

// Tiles whose lanes are in registers together: what a segment's activations need is done once for
// them.
constexpr int kTiles = 2;

// The tiles of a launch are those of its matrices, one after the other.
struct TileCounts {
  int of[kMostProducts];
};
__host__ __device__ inline TileCounts tile_counts(const ProductsArgs& args) {
  const auto tiles = [&](int out) {
    return static_cast<int>((args.outs[out].n_out + kTileRows - 1) / kTileRows);
  };
  return {{tiles(0), tiles(1), tiles(2)}};
}
__host__ __device__ inline int all_tiles(const TileCounts& counts) {
  return counts.of[0] + counts.of[1] + counts.of[2];
}
__device__ inline const ProductOut& out_of(const ProductsArgs& args, int out) {
  return out == 0 ? args.outs[0] : out == 1 ? args.outs[1] : args.outs[2];
}

// Up to kTiles tiles of one matrix.
struct Chunk {
  int out, first, tiles;
};
// The next of a block whose tiles end at `end`.
__device__ inline Chunk chunk_at(const TileCounts& counts, int tile, int end) {
  int out = 0, first = tile;
  LOCKSTEP_UNROLL
  for (int i = 0; i < kMostProducts - 1; ++i) {
    if (out == i && first >= counts.of[i]) {
      first -= counts.of[i];
      ++out;
    }
  }
  const int own = (out == 0 ? counts.of[0] : out == 1 ? counts.of[1] : counts.of[2]) - first;
  const int left = end - tile < own ? end - tile : own;
  return {out, first, left < kTiles ? left : kTiles};
}

template <Format kFormat, int kStages>
class Ring {
 public:
  using Own = Unit<kFormat>;

  // The warp's part of shared memory: its stages, and a barrier for each. `blocks` of a row.
  __device__ Ring(const ProductsArgs& args, const TileCounts& counts, unsigned char* stages,
                  uint64_t* barriers, int blocks, int begin, int end)
      : args_(args),
        counts_(counts),
        stages_(stages),
        barriers_(barriers),
        warp_(static_cast<int>(threadIdx.x) / 32),
        lane_(static_cast<int>(threadIdx.x) % 32),
        blocks_(blocks),
        tile_bytes_(blocks * Own::kAt.bytes),
        tile_(begin),
        end_(warp_ * kUnitBlocks < blocks ? end : begin) {
    begin_chunk();
#ifdef LOCKSTEP_BULK_COPIES
    if (lane_ == 0) {
      LOCKSTEP_UNROLL
      for (int i = 0; i < kStages; ++i) start_barrier(barriers_ + i);
      barriers_started();
    }
    __syncwarp();
#endif
    for (int i = 0; i < kStages; ++i) fetch(i);
  }

  // The warp's next unit; all of it is there.
  __device__ const unsigned char* wait() {
#ifdef LOCKSTEP_BULK_COPIES
    wait_barrier(barriers_ + stage_, parity_);
#else
    wait_copies<kStages - 1>();
    __syncwarp();
#endif
    return stages_ + stage_ * Own::kBytes;
  }

  // The unit has been read, by this lane.
  __device__ void release() {
    __syncwarp();
    fetch(stage_);
    if (++stage_ == kStages) {
      stage_ = 0;
      parity_ ^= 1u;
    }
  }

 private:
  static constexpr int kUnitBlocks = Own::kInfo.superblocks ? 1 : 8;

  __device__ void begin_chunk() {
    if (tile_ >= end_) return;
    const Chunk chunk = chunk_at(counts_, tile_, end_);
    chunk_ = chunk.tiles;
    of_chunk_ = 0;
    block_ = warp_ * kUnitBlocks;
    from_ = out_of(args_, chunk.out).packed + static_cast<int64_t>(chunk.first) * tile_bytes_ +
            block_ * Own::kAt.bytes;
  }

  // Starts the copy of the next unit, in the order in which the warp computes them.
  __device__ void fetch(int stage) {
    if (tile_ < end_) {
      unsigned char* to = stages_ + stage * Own::kBytes;
      int bytes = Own::kBytes;
      if (kUnitBlocks > 1 && blocks_ - block_ < kUnitBlocks) {
        bytes = (blocks_ - block_) * Own::kAt.bytes;
      }
#ifdef LOCKSTEP_BULK_COPIES
      if (lane_ == 0) copy_bulk(to, from_, bytes, barriers_ + stage);
#else
      LOCKSTEP_UNROLL
      for (int at = 0; at < Own::kBytes; at += 512) {
        if (at + 16 * lane_ < bytes) copy16_async(to + at + 16 * lane_, from_ + at + 16 * lane_);
      }
#endif
      from_ += tile_bytes_;
      if (++of_chunk_ == chunk_) {
        of_chunk_ = 0;
        block_ += kLawLanes * kUnitBlocks;
        from_ += kLawLanes * Own::kBytes - chunk_ * tile_bytes_;
        if (block_ >= blocks_) {
          tile_ += chunk_;
          begin_chunk();
        }
      }
    }
#ifndef LOCKSTEP_BULK_COPIES
    commit_copies();
#endif
  }

  const ProductsArgs& args_;
  const TileCounts& counts_;
  unsigned char* stages_;
  uint64_t* barriers_;
  int warp_, lane_, blocks_, tile_bytes_;
  // The unit that is copied next: tile of_chunk_ of the chunk that begins at tile_, from block_ on.
  int tile_, end_, chunk_ = 0, of_chunk_ = 0, block_ = 0;
  const std::byte* from_ = nullptr;
  // The unit that is computed next.
  int stage_ = 0;
  uint32_t parity_ = 0;
};

}  // namespace
}  // namespace lockstep::kernels::cuda
