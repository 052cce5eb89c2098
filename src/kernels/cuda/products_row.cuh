// Products with one row of activations, the shape of a single sequence's token.
//
// An mma multiplies with eight columns, and there is one. So the eight blocks of a segment take a
// column each: block b's mma has zeros in all columns but b, and eight of them into one accumulator
// leave block b's integer sums in column b. A lane then has four of the tile's 128 sums, and the
// factors' arithmetic is done once for each, instead of by all lanes for columns that are not
// there.
#pragma once

#include "kernels/cuda/products_parts.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <Format kFormat>
class RowProducts {
  using Own = Unit<kFormat>;
  static constexpr FormatInfo kInfo = Own::kInfo;
  static constexpr BlockLayout kAt = Own::kAt;
  static constexpr bool kSuper = kInfo.superblocks;

 public:
  static constexpr int kColumns = 1;
  static constexpr int kFactorBytes = 0;          // of a warp's shared memory
  static constexpr int kOutputs = kTileRows;      // of a tile
  static constexpr int kValues = kSuper ? 1 : 2;  // of a tile that a lane has

  __device__ RowProducts(const ProductsArgs& args, int64_t /*first_row*/, int /*segments*/,
                         float* /*factors*/)
      : args_(args),
        g_(static_cast<int>(threadIdx.x) % 32 / 4),
        t_(static_cast<int>(threadIdx.x) % 4) {}

  // Starts to load the activations of a segment.
  __device__ void fetch(int segment) {
    next_.words = *reinterpret_cast<const Words2*>(args_.x.q + segment * kSegmentBytes +
                                                   g_ / 2 * kTwoBlocksBytes + t_ * 16 + g_ % 2 * 8);
    if constexpr (kSuper) {
      next_.d[0] = args_.x.d[segment];
      if constexpr (kInfo.mins > 0) {
        next_.digits =
            reinterpret_cast<const uint32_t*>(args_.x.digits + segment * 32)[g_ % 2 * 4 + t_];
      }
    } else {
      LOCKSTEP_UNROLL
      for (int i = 0; i < 2; ++i) {
        next_.d[i] = args_.x.d[segment * 8 + 2 * t_ + i];
        if constexpr (kInfo.mins > 0) next_.sums[i] = args_.x.d_sums[segment * 8 + 2 * t_ + i];
      }
    }
  }

  // What was fetched is now the segment's; `next` is fetched meanwhile.
  __device__ void begin_segment(int /*segment*/, int next) {
    x_ = next_;
    LOCKSTEP_UNROLL
    for (int b = 0; b < 8; ++b) {
      LOCKSTEP_UNROLL
      for (int i = 0; i < 2; ++i) column_[b][i] = g_ == b ? x_.words.word[i] : 0;
    }
    fetch(next);
  }

  // acc of a tile's segment, of which `blocks` are there.
  __device__ void segment(const unsigned char* unit, int blocks, bool /*last*/, int /*next*/,
                          float (&acc)[kValues]) {
    if constexpr (kSuper) {
      superblock(unit, acc);
    } else if (blocks >= 8) {
      eight_blocks<true>(unit, 8, acc);
    } else {
      eight_blocks<false>(unit, blocks, acc);
    }
  }

  // A tile's lanes of the warp, by rows.
  __device__ void store(const float (&lanes)[kValues], float* at) const {
    if constexpr (kSuper) {
      if (t_ < 2) at[g_ + 8 * t_] = lanes[0];
    } else if (t_ == 3) {
      at[g_] = lanes[0];
      at[g_ + 8] = lanes[1];
    }
  }
  // Where output `item` of a tile belongs: a row of the tile, a column.
  __device__ static int tile_row(int item) { return item; }
  __device__ static int column(int /*item*/) { return 0; }

 private:
  // Form q32. The lane's sums are of blocks 2t and 2t + 1, rows g and g + 8. acc goes through the
  // four lanes of a row in turn, so that blocks are added in ascending order: all four do all
  // turns, and what the last has after the fourth is right.
  template <bool kWhole>
  __device__ void eight_blocks(const unsigned char* unit, int blocks, float (&acc)[kValues]) {
    const int lane = 4 * g_ + t_;
    // Columns 2t of the even blocks, 2t + 1 of the odd: two chains of mma in place of one.
    int32_t sums[2][4] = {};
    LOCKSTEP_UNROLL
    for (int b = 0; b < 8; ++b) {
      if (!kWhole && b >= blocks) break;
      uint32_t a[4];
      unpack_codes<kInfo.codes>(unit + b * kAt.bytes, lane, args_.table, a);
      mma_k32<Own::kUnsigned>(sums[b % 2], a, column_[b][0], column_[b][1]);
    }
    float sum[2][2], factor[2][2];  // [block][row]
    RowPair minimum[2] = {};
    LOCKSTEP_UNROLL
    for (int i = 0; i < 2; ++i) {
      const unsigned char* block = unit + (2 * t_ + i) * kAt.bytes;
      const RowPair d = row_pair(block + kAt.d, g_, kInfo.codes == Codes::table && args_.wide_d);
      if constexpr (kInfo.mins > 0) minimum[i] = row_pair(block + kAt.m, g_, false);
      sum[i][0] = static_cast<float>(sums[i][i] >> Own::kShift.low);
      sum[i][1] = static_cast<float>(sums[i][2 + i] >> Own::kShift.high);
      factor[i][0] = d.low * x_.d[i];
      factor[i][1] = d.high * x_.d[i];
    }
    acc[0] = acc[1] = 0.0f;
    LOCKSTEP_UNROLL
    for (int turn = 0; turn < 4; ++turn) {
      LOCKSTEP_UNROLL
      for (int row = 0; row < 2; ++row) {
        if (turn > 0) acc[row] = __shfl_up_sync(kAllLanes, acc[row], 1);
        LOCKSTEP_UNROLL
        for (int i = 0; i < 2; ++i) {
          float with = math::fma_rn(sum[i][row], factor[i][row], acc[row]);
          if constexpr (kInfo.mins > 0) {
            with = math::fma_rn(row ? minimum[i].high : minimum[i].low, x_.sums[i], with);
          }
          // Blocks that are missing are not added as zeros.
          if (kWhole || 2 * t_ + i < blocks) acc[row] = with;
        }
      }
    }
  }

  // Form q256: integers until the end, so lanes of a row add theirs in any order. Lane t has row
  // g + 8·(t mod 2) then.
  __device__ void superblock(const unsigned char* unit, float (&acc)[kValues]) {
    const int lane = 4 * g_ + t_;
    const bool upper = t_ % 2 != 0;
    constexpr bool kSixteenths = kInfo.scales == 16;
    // Of scales for 32 elements: as above. Of scales for 16: the halves of all blocks.
    int32_t sums[2][4] = {};
    LOCKSTEP_UNROLL
    for (int b = 0; b < 8; ++b) {
      uint32_t a[4];
      unpack_codes<kInfo.codes>(unit + b * code_bytes(kInfo.codes), lane, args_.table, a);
      if constexpr (kSixteenths) {
        mma_k16<Own::kUnsigned>(sums[0], a[0], a[1], column_[b][0]);
        mma_k16<Own::kUnsigned>(sums[1], a[2], a[3], column_[b][1]);
      } else {
        mma_k32<Own::kUnsigned>(sums[b % 2], a, column_[b][0], column_[b][1]);
      }
    }
    int32_t total[2];  // rows g and g + 8
    LOCKSTEP_UNROLL
    for (int row = 0; row < 2; ++row) {
      const unsigned char* scales = unit + kAt.scales + (2 * g_ + row) * kInfo.scales;
      const int32_t* own[2] = {sums[0] + 2 * row, sums[1] + 2 * row};
      if constexpr (kSixteenths) {
        const uint32_t four = *reinterpret_cast<const uint32_t*>(scales + 4 * t_);
        total[row] = signed_byte(four, 0) * own[0][0] + signed_byte(four, 1) * own[1][0] +
                     signed_byte(four, 2) * own[0][1] + signed_byte(four, 3) * own[1][1];
      } else {
        const uint32_t two = *reinterpret_cast<const uint16_t*>(scales + 2 * t_);
        total[row] = signed_byte(two, 0) * own[0][0] + signed_byte(two, 1) * own[1][1];
      }
      total[row] >>= row ? Own::kShift.high : Own::kShift.low;
    }
    int32_t sum = upper ? total[1] : total[0];
    sum += __shfl_xor_sync(kAllLanes, upper ? total[0] : total[1], 1);
    sum += __shfl_xor_sync(kAllLanes, sum, 2);
    const int half = 4 * g_ + (upper ? 2 : 0);
    const auto factor = [&](int at) {
      return half_to_float(*reinterpret_cast<const uint16_t*>(unit + at + half)) * x_.d[0];
    };
    acc[0] = static_cast<float>(sum) * factor(kAt.d);
    if constexpr (kInfo.mins > 0) {
      // The low digits are in the even columns, the high ones in the odd.
      uint32_t low, high;
      fetch_minimums<kFormat>(unit, lane, low, high);
      int32_t u[4] = {0, 0, 0, 0};
      mma_k16<false>(u, low, high, x_.digits);
      const int32_t all = upper ? u[2] + 128 * u[3] : u[0] + 128 * u[1];
      acc[0] = math::fma_rn(-static_cast<float>(all), factor(kAt.m), acc[0]);
    }
  }

  // What a lane needs of a segment: the words of block g; factors of blocks 2t and 2t + 1, or of
  // the superblock, with its column of the sums' digits.
  struct Activations {
    Words2 words;
    float d[2], sums[2];
    uint32_t digits;
  };

  const ProductsArgs& args_;
  int g_, t_;
  Activations x_ = {}, next_ = {};
  uint32_t column_[8][2];
};

}  // namespace
}  // namespace lockstep::kernels::cuda
