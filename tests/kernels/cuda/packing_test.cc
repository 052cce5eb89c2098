// The device's form of quantised matrices: every code, scale and minimum where it belongs, whole or
// in pieces.
#include "kernels/cuda/packing.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "../harness.h"
#include "../plain_law.h"

namespace lockstep::kernels::cuda {
namespace {

using namespace kernels::test;  // NOLINT: the helpers of tests/kernels

// Element e of row `row` of a block's 16 × 32 codes, read back as formats.h says they lie.
int code_at(const uint8_t* codes, Codes kind, const CodeTable& table, int row, int e) {
  const int lane = 4 * (row % 8) + e % 16 / 4, r = row / 8 + 2 * (e / 16), i = e % 4;
  if (kind == Codes::bytes) return static_cast<int8_t>(codes[16 * lane + 4 * r + i]);
  const auto nibble = [&](int k) { return codes[8 * lane + k / 2] >> (4 * (k % 2)) & 15; };
  if (kind == Codes::table) {
    const int index = nibble(4 * r + i);
    return static_cast<int8_t>(table.words[index / 4] >> (8 * (index % 4)));
  }
  const int low = nibble(8 * (r / 2) + 2 * i + r % 2);
  const auto fifth = [&] { return codes[256 + 2 * lane + r / 2] >> (4 * (r % 2) + i) & 1; };
  switch (kind) {
    case Codes::nibbles:
      return low;
    case Codes::signed_nibbles:
      return low < 8 ? low : low - 16;
    case Codes::five:
      return low + 16 * fifth();
    case Codes::signed_five:
      return low - 16 * fifth();
    default: {
      const int high = codes[256 + 4 * lane + i] >> (2 * r) & 3;
      const int six = low + 16 * high;
      return six < 32 ? six : six - 64;
    }
  }
}

TEST(CudaPacking, HoldsTheBlocksOfEveryType) {
  Random random(1);
  for (const TensorType type : kQuantTypes) {
    Tally tally("cuda packing " + std::string(gguf::type_info(type).name));
    Control moved("cuda packing read one row off");
    const Format format = format_of(type);
    const FormatInfo info = format_info(format);
    const BlockLayout at = block_layout(format);
    for (int trial = 0; trial < 20; ++trial) {
      const int64_t n_in = 256 * random.between(1, 4), n_out = random.between(1, 40);
      const OwnedWeight w = random_weight(random, type, n_in, n_out);
      const int64_t tiles = tiles_of(n_out);
      const auto bytes = static_cast<size_t>(tiles * tile_bytes(format, n_in));
      std::vector<std::byte> packed(bytes, std::byte{0xEE});
      pack_tiles(w.weight, 0, tiles, packed.data());
      const CodeTable table = code_table(type);
      const auto block_of = [&](int64_t n, size_t b) {
        return reinterpret_cast<const uint8_t*>(packed.data()) +
               n / kTileRows * tile_bytes(format, n_in) + static_cast<int64_t>(b) * at.bytes;
      };
      const auto factor = [&](const uint8_t* from, int64_t row) {
        uint16_t bits;
        std::memcpy(&bits, from + 4 * (row % 8) + 2 * (row / 8), 2);
        return has_wide_d(type) ? std::bit_cast<float>(uint32_t{bits} << 16) : f16_to_f32(bits);
      };
      for (int64_t n = 0; n < n_out; ++n) {
        const auto blocks = plain_weight_row(w.weight, n);
        const auto row = static_cast<int>(n % kTileRows);
        for (size_t b = 0; b < blocks.size(); ++b) {
          const PlainBlock& block = blocks[b];
          const uint8_t* own = block_of(n, b);
          const float d = factor(own + at.d, row);
          ASSERT_TRUE(same_bits(&d, &block.d, 1));
          ASSERT_EQ(info.mins > 0, block.has_min);
          if (block.has_min) {
            const float m = factor(own + at.m, row);
            ASSERT_TRUE(same_bits(&m, &block.m, 1));
          }
          bool all = true;
          for (int i = 0; i < block.n; ++i) {
            const uint8_t* codes = own + i / 32 * code_bytes(info.codes);
            ASSERT_EQ(code_at(codes, info.codes, table, row, i % 32),
                      block.code[static_cast<size_t>(i)]);
            all &= code_at(codes, info.codes, table, (row + 1) % kTileRows, i % 32) ==
                   block.code[static_cast<size_t>(i)];
          }
          moved.trial(!all);
          for (int j = 0; info.superblocks && j < 16; ++j) {
            const auto sub = static_cast<size_t>(16 * j / block.sub);
            const int own_j = info.scales == 8 ? j / 2 : j;
            ASSERT_EQ(
                static_cast<int8_t>(own[at.scales + (row % 8 * 2 + row / 8) * info.scales + own_j]),
                block.scale[sub]);
            if (!block.has_min) continue;
            const int min_j = info.mins == 8 ? j / 2 : j, each = info.mins / 4;
            ASSERT_EQ(
                own[at.mins + ((row % 8 * 4 + min_j / each) * 2 + row / 8) * each + min_j % each],
                block.min[sub]);
          }
          tally.count(block.n);
        }
      }
      // Rows that only fill the last tile up.
      for (int64_t n = n_out; n < tiles * kTileRows; ++n) {
        for (size_t b = 0; b < static_cast<size_t>(n_in / (info.superblocks ? 256 : 32)); ++b) {
          EXPECT_EQ(factor(block_of(n, b) + at.d, n % kTileRows), 0.0f);
        }
      }
    }
    EXPECT_TRUE(moved.seen(0.5));
  }
}

TEST(CudaPacking, APieceIsThoseTilesOfTheWhole) {
  Random random(2);
  for (const TensorType type : kQuantTypes) {
    const int64_t n_in = 512, n_out = 150;
    const OwnedWeight w = random_weight(random, type, n_in, n_out);
    const int64_t bytes = tile_bytes(format_of(type), n_in), tiles = tiles_of(n_out);
    std::vector<std::byte> all(static_cast<size_t>(tiles * bytes));
    pack_tiles(w.weight, 0, tiles, all.data());
    const int64_t begin = random.below(tiles), some = random.between(1, tiles - begin);
    std::vector<std::byte> piece(static_cast<size_t>(some * bytes));
    pack_tiles(w.weight, begin, some, piece.data());
    EXPECT_TRUE(same_bits(all.data() + begin * bytes, piece.data(), some * bytes));
  }
}

TEST(CudaPacking, EveryElementOfASegmentHasItsPlace) {
  constexpr int64_t kRows = 11, kSegments = 2;
  std::vector<int> seen(static_cast<size_t>(activation_bytes(kRows, kSegments)));
  ASSERT_EQ(seen.size(), 16u * 512u);
  for (int64_t row = 0; row < 16; ++row) {
    for (int64_t k = 0; k < 256 * kSegments; ++k) {
      ++seen[static_cast<size_t>(activation_place(row, k, kSegments))];
    }
  }
  for (const int times : seen) EXPECT_EQ(times, 1);
  const auto place = [](int row, int k) { return activation_place(row, k, 2); };
  EXPECT_EQ(place(0, 0), 0);
  EXPECT_EQ(place(0, 16), 4);    // the second register of the same lane
  EXPECT_EQ(place(0, 32), 8);    // the next block
  EXPECT_EQ(place(0, 4), 16);    // the next lane
  EXPECT_EQ(place(1, 0), 64);    // the next row
  EXPECT_EQ(place(0, 64), 512);  // the next two blocks
  EXPECT_EQ(place(0, 256 + 5), 2048 + 17);
  EXPECT_EQ(place(8, 0), 4096);
}

}  // namespace
}  // namespace lockstep::kernels::cuda
