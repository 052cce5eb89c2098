#include "state/kv_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/error.h"

namespace lockstep::state {
namespace {

using kernels::kPagePositions;

KvSpec one_layer(int64_t window = 0, int64_t context = 1000) {
  KvSpec spec;
  spec.layers = {{2, 32, window}};
  spec.k_type = spec.v_type = KvType::f16;
  spec.context = context;
  return spec;
}
constexpr int64_t kPageBytes = 2 * 64 * 32 * 2;  // of one_layer(): K or V

void fill(std::span<const KvLayerView> views, int64_t first, int64_t rows, uint8_t value) {
  for (int64_t p = first; p < first + rows; ++p) {
    for (std::byte* const* pages : {views[0].k_pages, views[0].v_pages}) {
      for (int64_t head = 0; head < 2; ++head) {
        std::memset(pages[p / kPagePositions] + (head * kPagePositions + p % kPagePositions) * 64,
                    value, 64);
      }
    }
  }
}

void add(KvCache& cache, int64_t rows, uint8_t value) {
  const int64_t first = cache.size();
  fill(cache.append(rows), first, rows, value);
  cache.commit(rows);
}

TEST(KvCache, ViewsSayWhatTheLayerHolds) {
  KvSpec spec = one_layer();
  spec.v_type = KvType::q8_0;
  KvCache cache(spec, nullptr);
  EXPECT_EQ(bytes_per_position(spec), 2 * (64 + 34));
  const auto views = cache.append(65);
  ASSERT_EQ(views.size(), 1u);
  EXPECT_EQ(views[0].n_pages, 2);
  EXPECT_EQ(views[0].n_head_kv, 2);
  EXPECT_EQ(views[0].head_dim, 32);
  EXPECT_EQ(views[0].k_type, KvType::f16);
  EXPECT_EQ(views[0].v_type, KvType::q8_0);
  EXPECT_EQ(cache.pages_in_use(), 4);
  EXPECT_EQ(cache.bytes_in_use(), 2 * 2 * 64 * (64 + 34));
  EXPECT_EQ(cache.size(), 0);
  EXPECT_EQ(cache.pending(), 65);
  cache.commit(1);
  EXPECT_EQ(cache.size(), 1);
  EXPECT_EQ(cache.pages_in_use(), 2);
}

TEST(KvCache, BytesOfAPositionByType) {
  KvSpec spec = one_layer();  // two heads of 32
  const std::pair<KvType, int64_t> bytes[] = {
      {KvType::f32, 128}, {KvType::f16, 64}, {KvType::q8_0, 34}, {KvType::q4_0, 18}};
  for (const auto& [k, k_bytes] : bytes) {
    for (const auto& [v, v_bytes] : bytes) {
      spec.k_type = k;
      spec.v_type = v;
      EXPECT_EQ(bytes_per_position(spec), 2 * (k_bytes + v_bytes));
    }
  }
}

TEST(KvCache, UnwrittenAndForgottenRowsHoldThePoison) {
  KvCache cache(one_layer(), nullptr);
  fill(cache.append(10), 0, 10, 0x11);
  cache.commit(4);
  const auto views = cache.append(1);
  const std::byte* k = views[0].k_pages[0];
  for (int64_t row = 0; row < kPagePositions; ++row) {
    const auto expected = static_cast<std::byte>(row < 4 ? 0x11 : kPoison);
    EXPECT_EQ(k[row * 64], expected) << row;
    EXPECT_EQ(k[(kPagePositions + row) * 64 + 63], expected) << row;
  }
}

TEST(KvCache, HandedOutPagesAreCleanAgain) {
  const auto pool = make_page_pool(0);
  {
    KvCache first(one_layer(), pool);
    add(first, 64, 0x22);
  }
  EXPECT_EQ(pool->pages_in_use(), 0);
  EXPECT_EQ(pool->bytes_free(), 2 * kPageBytes);
  KvCache second(one_layer(), pool);
  const auto views = second.append(1);
  EXPECT_EQ(pool->bytes_free(), 0);
  for (int64_t i = 0; i < kPageBytes; ++i) ASSERT_EQ(views[0].k_pages[0][i], std::byte{kPoison});
}

TEST(KvCache, SlidingLayerKeepsTheWindowAndThePass) {
  KvCache cache(one_layer(100, 100000), nullptr);
  for (int i = 0; i < 1000; ++i) {
    add(cache, 7, static_cast<uint8_t>(i));
    // 100 positions, a pass of 7, and the pages' unused ends.
    EXPECT_LE(cache.pages_in_use(), 2 * 3);
  }
  EXPECT_EQ(cache.reusable(7000), 7000);
  EXPECT_EQ(cache.reusable(6990), 6990);  // sees 6891, page 107 starts at 6848
  EXPECT_EQ(cache.reusable(6946), 0);     // sees 6847
  EXPECT_THROW(cache.truncate(6946), std::logic_error);
  cache.truncate(0);
  EXPECT_EQ(cache.pages_in_use(), 0);
  add(cache, 3, 1);
  EXPECT_EQ(cache.reusable(2), 2);
}

TEST(KvCache, SnapshotsShareUntilWritten) {
  const auto pool = make_page_pool(0);
  KvCache cache(one_layer(), pool);
  add(cache, 70, 0x33);
  const Digest before = cache.hash();
  const auto snapshot = cache.snapshot();
  EXPECT_EQ(pool->pages_in_use(), 4);
  add(cache, 1, 0x44);
  EXPECT_EQ(pool->pages_in_use(), 6);  // the page being written was copied, the full one was not
  EXPECT_NE(cache.hash(), before);
  cache.restore(snapshot);
  EXPECT_EQ(cache.hash(), before);
  EXPECT_EQ(cache.pages_reused(), 4);
  EXPECT_EQ(pool->pages_in_use(), 4);
}

TEST(KvCache, SnapshotOutlivesCacheAndPoolHandle) {
  std::shared_ptr<const KvCache::Snapshot> snapshot;
  {
    KvCache cache(one_layer(), make_page_pool(0));
    add(cache, 5, 0x10);
    snapshot = cache.snapshot();
  }
  snapshot.reset();  // the sanitizer builds watch this
}

TEST(KvCache, LimitLeavesEverythingAsItWas) {
  const auto pool = make_page_pool(4 * kPageBytes);
  KvCache cache(one_layer(), pool);
  add(cache, 100, 0x55);
  const Digest before = cache.hash();
  try {
    cache.append(29);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::resource);
  }
  EXPECT_EQ(cache.pending(), 0);
  EXPECT_EQ(cache.hash(), before);
  EXPECT_EQ(cache.pages_in_use(), 4);
  EXPECT_EQ(pool->bytes_in_use(), 4 * kPageBytes);
  add(cache, 28, 0x56);
  const auto snapshot = cache.snapshot();
  cache.truncate(120);
  EXPECT_THROW(cache.append(1), Error);  // the copy would pass the limit
  EXPECT_EQ(cache.size(), 120);
}

TEST(KvCache, FreePagesOfAnotherSizeMakeRoom) {
  const auto pool = make_page_pool(2 * kPageBytes);
  {
    KvCache cache(one_layer(), pool);
    add(cache, 1, 1);
  }
  EXPECT_EQ(pool->bytes_free(), 2 * kPageBytes);
  KvSpec smaller = one_layer();
  smaller.layers[0].n_head_kv = 1;
  KvCache other(smaller, pool);
  other.append(1);
  EXPECT_LE(pool->bytes_free() + pool->bytes_in_use(), 2 * kPageBytes);
}

TEST(KvCache, ContextIsTheEnd) {
  KvCache cache(one_layer(0, 10), nullptr);
  add(cache, 9, 1);
  try {
    cache.append(2);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::bad_use);
    EXPECT_STREQ(error.what(), "position 10 is past the context of 10; raise it with -c");
  }
  add(cache, 1, 1);
  EXPECT_EQ(cache.size(), 10);
}

TEST(KvCache, RefusesHeadsThatAreNotWholeBlocks) {
  for (const KvType type : {KvType::q8_0, KvType::q4_0}) {
    KvSpec spec = one_layer();
    spec.layers[0].head_dim = 48;
    spec.k_type = type;
    EXPECT_THROW(KvCache(spec, nullptr), Error);
    spec.k_type = KvType::f16;
    spec.v_type = type;
    EXPECT_THROW(KvCache(spec, nullptr), Error);
  }
}

TEST(KvCache, MisuseIsALogicError) {
  const auto pool = make_page_pool(0);
  KvCache cache(one_layer(), pool);
  EXPECT_THROW(cache.append(0), std::logic_error);
  EXPECT_THROW(cache.commit(1), std::logic_error);
  EXPECT_THROW(cache.truncate(1), std::logic_error);
  cache.append(2);
  EXPECT_THROW(cache.append(1), std::logic_error);
  EXPECT_THROW(cache.snapshot(), std::logic_error);
  cache.commit(0);
  KvCache of_another_pool(one_layer(), nullptr);
  EXPECT_THROW(of_another_pool.restore(cache.snapshot()), std::logic_error);
  KvCache of_another_window(one_layer(9), pool);
  EXPECT_THROW(of_another_window.restore(cache.snapshot()), std::logic_error);
}

TEST(KvCache, Moves) {
  KvCache cache(one_layer(), nullptr);
  add(cache, 3, 7);
  const Digest before = cache.hash();
  KvCache moved = std::move(cache);
  EXPECT_EQ(moved.hash(), before);
}

}  // namespace
}  // namespace lockstep::state
