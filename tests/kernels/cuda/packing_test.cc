// The device's form of quantised matrices: every code, scale and minimum where it belongs, whole or
// in pieces.
#include "kernels/cuda/packing.h"

#include <gtest/gtest.h>

#include "../harness.h"
#include "../plain_law.h"

namespace lockstep::kernels::cuda {
namespace {

using namespace kernels::test;  // NOLINT: the helpers of tests/kernels

TEST(CudaPacking, HoldsTheBlocksOfEveryType) {
  Random random(1);
  for (const TensorType type : kQuantTypes) {
    Tally tally("cuda packing " + std::string(gguf::type_info(type).name));
    for (int trial = 0; trial < 20; ++trial) {
      const int64_t n_in = 256 * random.between(1, 4), n_out = random.between(1, 9);
      const OwnedWeight w = random_weight(random, type, n_in, n_out);
      const PackedLayout layout = packed_layout(type, n_in, n_out);
      std::vector<std::byte> packed(static_cast<size_t>(layout.bytes), std::byte{0xEE});
      pack_rows(w.weight, 0, n_out, packed.data());
      const auto* codes = reinterpret_cast<const int8_t*>(packed.data() + layout.codes);
      const auto* d = reinterpret_cast<const float*>(packed.data() + layout.d);
      for (int64_t n = 0; n < n_out; ++n) {
        const auto blocks = plain_weight_row(w.weight, n);
        for (size_t b = 0; b < blocks.size(); ++b) {
          const PlainBlock& block = blocks[b];
          const auto index = n * static_cast<int64_t>(blocks.size()) + static_cast<int64_t>(b);
          ASSERT_TRUE(same_bits(d + index, &block.d, 1));
          ASSERT_EQ(layout.m >= 0, block.has_min);
          if (block.has_min) {
            const auto* m = reinterpret_cast<const float*>(packed.data() + layout.m);
            ASSERT_TRUE(same_bits(m + index, &block.m, 1));
          }
          for (int i = 0; i < block.n; ++i) {
            ASSERT_EQ(codes[index * block.n + i], block.code[static_cast<size_t>(i)]);
          }
          for (int j = 0; layout.superblocks && j < 16; ++j) {
            const auto sub = static_cast<size_t>(16 * j / block.sub);
            ASSERT_EQ(
                reinterpret_cast<const int8_t*>(packed.data() + layout.scales)[16 * index + j],
                block.scale[sub]);
            if (!block.has_min) continue;
            ASSERT_EQ(reinterpret_cast<const uint8_t*>(packed.data() + layout.mins)[16 * index + j],
                      block.min[sub]);
          }
          tally.count(block.n);
        }
      }
    }
  }
}

TEST(CudaPacking, APieceIsThoseRowsOfTheWhole) {
  Random random(2);
  for (const TensorType type : kQuantTypes) {
    const int64_t n_in = 512, n_out = 11;
    const OwnedWeight w = random_weight(random, type, n_in, n_out);
    const PackedLayout whole = packed_layout(type, n_in, n_out);
    std::vector<std::byte> all(static_cast<size_t>(whole.bytes));
    pack_rows(w.weight, 0, n_out, all.data());
    const int64_t begin = random.below(n_out), rows = random.between(1, n_out - begin);
    const PackedLayout part = packed_layout(type, n_in, rows);
    std::vector<std::byte> piece(static_cast<size_t>(part.bytes));
    pack_rows(w.weight, begin, rows, piece.data());
    const int64_t block = whole.superblocks ? 256 : 32;
    const auto same = [&](int64_t whole_at, int64_t part_at, int64_t bytes) {
      ASSERT_EQ(whole_at < 0, part_at < 0);
      if (whole_at < 0) return;
      EXPECT_TRUE(
          same_bits(all.data() + whole_at + begin * bytes, piece.data() + part_at, rows * bytes));
    };
    same(whole.codes, part.codes, n_in);
    same(whole.d, part.d, n_in / block * 4);
    same(whole.m, part.m, n_in / block * 4);
    same(whole.scales, part.scales, n_in / 16);
    same(whole.mins, part.mins, n_in / 16);
  }
}

}  // namespace
}  // namespace lockstep::kernels::cuda
