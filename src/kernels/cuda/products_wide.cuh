// Products with 8 or 16 rows of activations, columns here.
#pragma once

#include "kernels/cuda/products_parts.cuh"

namespace lockstep::kernels::cuda {
namespace {

template <Format kFormat, int kEights>
class WideProducts {
  using Own = Unit<kFormat>;
  static constexpr FormatInfo kInfo = Own::kInfo;
  static constexpr BlockLayout kAt = Own::kAt;
  static constexpr bool kSuper = kInfo.superblocks;
  static constexpr int kSegmentWords = kSegmentBytes / 16, kTwoBlocksWords = kTwoBlocksBytes / 16;

 public:
  static constexpr int kColumns = 8 * kEights;
  // Form q32: d_x, then d_sums where there are minimums, of a segment's blocks, [8][columns].
  static constexpr int kKinds = kSuper ? 0 : kInfo.mins > 0 ? 2 : 1;
  static constexpr int kFactorBytes = kKinds * 8 * kColumns * 4;
  static constexpr int kOutputs = 128 * kEights;
  static constexpr int kValues = 4 * kEights;
  // Whether a segment's activations are loaded while the one before it is computed: two eights of
  // them have no registers to spare for it.
  static constexpr bool kAhead = kEights == 1;

  __device__ WideProducts(const ProductsArgs& args, int64_t first_row, int segments, float* factors)
      : args_(args),
        lane_(static_cast<int>(threadIdx.x) % 32),
        segments_(segments),
        left_(static_cast<int>(args.rows - first_row)),
        first_(static_cast<int>(first_row) * segments),
        factors_(factors) {
    LOCKSTEP_UNROLL
    for (int n = 0; n < kEights; ++n) {
      q_[n] = reinterpret_cast<const Words4*>(args.x.q) +
              (first_row / kActivationRows + n) * segments * kSegmentWords + lane_;
    }
  }

  // Starts to load the activations of the warp's first segment.
  __device__ void fetch(int segment) {
    if constexpr (kAhead) fetch_fragments(segment);
    if constexpr (!kSuper) fetch_factors(segment);
  }

  // Form q32: factors go to shared memory, whence a lane gets those of its columns; the next are
  // fetched meanwhile.
  __device__ void begin_segment(int segment, int next) {
    if constexpr (!kAhead) fetch_fragments(segment);
    if constexpr (!kSuper) {
      LOCKSTEP_UNROLL
      for (int kind = 0; kind < kKinds; ++kind) {
        LOCKSTEP_UNROLL
        for (int i = 0; i < 2 * kEights; ++i) {
          const int column = 4 * i + lane_ / 8, b = lane_ % 8;
          factors_[(8 * kind + b) * kColumns + column] = next_[kind][i];
        }
      }
      __syncwarp();
      fetch_factors(next);
    }
  }

  // acc of a tile's segment, of which `blocks` are there. With the segment's last tile, what the
  // lane has of the activations is replaced by segment `next`'s as soon as it was used.
  __device__ void segment(const unsigned char* unit, int blocks, bool last, int next,
                          float (&acc)[kValues]) {
    if constexpr (!kAhead) last = false;
    if constexpr (kSuper) {
      superblock(unit, last, next, acc);
    } else if (blocks >= 8) {
      eight_blocks<true>(unit, 8, last, next, acc);
    } else {
      eight_blocks<false>(unit, blocks, last, next, acc);
    }
  }

  // A tile's lanes of the warp, [eight][c][lane].
  __device__ void store(const float (&lanes)[kValues], float* at) const {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kValues; ++i) at[32 * i + lane_] = lanes[i];
  }
  // Where output `item` of a tile belongs: a row of the tile, a column.
  __device__ static int tile_row(int item) { return item % 32 / 4 + 8 * (item / 64 % 2); }
  __device__ static int column(int item) {
    return 8 * (item / 128) + 2 * (item % 4) + item / 32 % 2;
  }

 private:
  __device__ int g() const { return lane_ / 4; }
  __device__ int t() const { return lane_ % 4; }
  __device__ bool there(int column) const { return column < left_; }

  __device__ void fetch_two_blocks(int segment, int i) {
    LOCKSTEP_UNROLL
    for (int n = 0; n < kEights; ++n) {
      if (!there(8 * n + g())) continue;
      const Words4 words = q_[n][segment * kSegmentWords + i * kTwoBlocksWords];
      LOCKSTEP_UNROLL
      for (int k = 0; k < 4; ++k) x_[n][4 * i + k] = words.word[k];
    }
  }
  __device__ void fetch_fragments(int segment) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < 4; ++i) fetch_two_blocks(segment, i);
    if constexpr (kSuper) fetch_super(segment);
  }
  __device__ void fetch_super(int segment) {
    LOCKSTEP_UNROLL
    for (int n = 0; n < kEights; ++n) {
      LOCKSTEP_UNROLL
      for (int i = 0; i < 2; ++i) {
        const int column = 8 * n + 2 * t() + i;
        if (there(column)) d_[n][i] = args_.x.d[first_ + column * segments_ + segment];
      }
      const int column = 8 * n + g();
      if (kInfo.mins > 0 && there(column)) {
        const auto* digits = reinterpret_cast<const uint32_t*>(args_.x.digits) +
                             8 * (first_ + column * segments_ + segment);
        low_[n] = digits[t()];
        high_[n] = digits[4 + t()];
      }
    }
  }
  __device__ void fetch_factors(int segment) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < 2 * kEights; ++i) {
      const int column = 4 * i + lane_ / 8;
      const int at = (first_ + column * segments_ + segment) * 8 + lane_ % 8;
      if (there(column)) next_[0][i] = args_.x.d[at];
      if (kInfo.mins > 0 && there(column)) next_[kKinds - 1][i] = args_.x.d_sums[at];
    }
  }

  template <bool kWhole>
  __device__ void eight_blocks(const unsigned char* unit, int blocks, bool last, int next,
                               float (&acc)[kValues]) {
    LOCKSTEP_UNROLL
    for (int i = 0; i < kValues; ++i) acc[i] = 0.0f;
    LOCKSTEP_UNROLL
    for (int b = 0; b < 8; ++b) {
      if (!kWhole && b >= blocks) break;
      const unsigned char* block = unit + b * kAt.bytes;
      uint32_t a[4];
      unpack_codes<kInfo.codes>(block, lane_, args_.table, a);
      const RowPair d = row_pair(block + kAt.d, g(), kInfo.codes == Codes::table && args_.wide_d);
      RowPair m = {};
      if constexpr (kInfo.mins > 0) m = row_pair(block + kAt.m, g(), false);
      LOCKSTEP_UNROLL
      for (int n = 0; n < kEights; ++n) {
        int32_t isum[4] = {0, 0, 0, 0};
        mma_k32<Own::kUnsigned>(isum, a, x_[n][2 * b], x_[n][2 * b + 1]);
        const float* d_x = factors_ + (b * kEights + n) * 8 + 2 * t();
        LOCKSTEP_UNROLL
        for (int c = 0; c < 4; ++c) {
          float& to = acc[4 * n + c];
          const float d_w = c / 2 ? d.high : d.low;
          const int32_t sum = isum[c] >> (c / 2 ? Own::kShift.high : Own::kShift.low);
          to = math::fma_rn(static_cast<float>(sum), d_w * d_x[c % 2], to);
          if constexpr (kInfo.mins > 0) {
            to = math::fma_rn(c / 2 ? m.high : m.low, d_x[8 * kColumns + c % 2], to);
          }
        }
      }
      if (kWhole && b % 2 != 0 && last) fetch_two_blocks(next, b / 2);
    }
    if (!kWhole && last) {
      LOCKSTEP_UNROLL
      for (int i = 0; i < 4; ++i) fetch_two_blocks(next, i);
    }
  }

  __device__ void superblock(const unsigned char* unit, bool last, int next,
                             float (&acc)[kValues]) {
    int32_t sum[kValues];
    LOCKSTEP_UNROLL
    for (int i = 0; i < kValues; ++i) sum[i] = 0;
    // Scales of rows g and g + 8, four at a time.
    const auto* scales =
        reinterpret_cast<const uint32_t*>(unit + kAt.scales + 2 * g() * kInfo.scales);
    constexpr int kScaleWords = kInfo.scales / 4;  // of a row
    constexpr int kParts = kInfo.scales / 8;       // of a block
    uint32_t low_scales = 0, high_scales = 0;
    LOCKSTEP_UNROLL
    for (int b = 0; b < 8; ++b) {
      uint32_t a[4];
      unpack_codes<kInfo.codes>(unit + b * code_bytes(kInfo.codes), lane_, args_.table, a);
      LOCKSTEP_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const int j = kParts * b + part;
        if (j % 4 == 0) {
          low_scales = scales[j / 4];
          high_scales = scales[kScaleWords + j / 4];
        }
        const int32_t low = signed_byte(low_scales, j % 4);
        const int32_t high = signed_byte(high_scales, j % 4);
        LOCKSTEP_UNROLL
        for (int n = 0; n < kEights; ++n) {
          int32_t isum[4] = {0, 0, 0, 0};
          if constexpr (kParts == 1) {
            mma_k32<Own::kUnsigned>(isum, a, x_[n][2 * b], x_[n][2 * b + 1]);
          } else {
            mma_k16<Own::kUnsigned>(isum, a[2 * part], a[2 * part + 1], x_[n][j]);
          }
          LOCKSTEP_UNROLL
          for (int c = 0; c < 4; ++c) sum[4 * n + c] += (c / 2 ? high : low) * isum[c];
        }
      }
      if (b % 2 != 0 && last) fetch_two_blocks(next, b / 2);
    }
    const RowPair d = row_pair(unit + kAt.d, g(), false);
    RowPair dmin = {};
    uint32_t min_low = 0, min_high = 0;
    if constexpr (kInfo.mins > 0) {
      dmin = row_pair(unit + kAt.m, g(), false);
      fetch_minimums<kFormat>(unit, lane_, min_low, min_high);
    }
    LOCKSTEP_UNROLL
    for (int n = 0; n < kEights; ++n) {
      int32_t u_low[4] = {0, 0, 0, 0}, u_high[4] = {0, 0, 0, 0};
      if constexpr (kInfo.mins > 0) {
        mma_k16<false>(u_low, min_low, min_high, low_[n]);
        mma_k16<false>(u_high, min_low, min_high, high_[n]);
      }
      LOCKSTEP_UNROLL
      for (int c = 0; c < 4; ++c) {
        float& to = acc[4 * n + c];
        const int32_t all = sum[4 * n + c] >> (c / 2 ? Own::kShift.high : Own::kShift.low);
        to = static_cast<float>(all) * ((c / 2 ? d.high : d.low) * d_[n][c % 2]);
        if constexpr (kInfo.mins > 0) {
          const int32_t u = u_low[c] + 128 * u_high[c];
          to = math::fma_rn(-static_cast<float>(u), (c / 2 ? dmin.high : dmin.low) * d_[n][c % 2],
                            to);
        }
      }
    }
    if (last) fetch_super(next);
  }

  const ProductsArgs& args_;
  int lane_, segments_;
  int left_;   // rows from the first on
  int first_;  // segments before it
  float* factors_;
  const Words4* q_[kEights];
  // Fragments of a segment's eight blocks, for each eight columns: +0 for columns that are not
  // there, as are their factors.
  uint32_t x_[kEights][16] = {};
  // Form q256: d_x of columns 2t and 2t + 1, and the fragments of the sums' digits.
  float d_[kEights][2] = {};
  uint32_t low_[kEights] = {}, high_[kEights] = {};
  // Form q32: the next segment's factors.
  float next_[kKinds > 0 ? kKinds : 1][2 * kEights] = {};
};

}  // namespace
}  // namespace lockstep::kernels::cuda
