// Timing on a machine that others use too: only what cannot fail there is asserted.
#include "base/memory_bandwidth.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kSmall = 8 << 20;

TEST(BandwidthMeter, ReadsAPlausibleAmountInAPlausibleTime) {
  BandwidthMeter meter(2, kSmall);
  for (int i = 0; i < 5; ++i) {
    const BandwidthMeter::Reading reading = meter.read(2);
    EXPECT_GE(reading.ms, 2.0);
    EXPECT_GT(reading.bytes, 0);
    EXPECT_EQ(reading.bytes % (1 << 20), 0);
    EXPECT_GT(reading.gb_s, 0.001);
    EXPECT_LT(reading.gb_s, 100000);
    EXPECT_NEAR(reading.gb_s, static_cast<double>(reading.bytes) / 1e6 / reading.ms,
                1e-6 * reading.gb_s);
  }
}

// Had the compiler dropped the loads, a reading would be a thousand times what caches give.
TEST(BandwidthMeter, TheLoadsAreThere) {
  BandwidthMeter meter(1, kSmall);
  double least = 1e12;
  for (int i = 0; i < 5; ++i) least = std::min(least, meter.read(5).gb_s);
  EXPECT_LT(least, 2000);  // of one core's L1, 64 to 128 bytes a cycle are some 600
}

TEST(BandwidthMeter, HasTheThreadsAskedFor) {
  for (const int threads : {1, 2, 3}) EXPECT_EQ(BandwidthMeter(threads, kSmall).threads(), threads);
}

TEST(BandwidthMeter, ReadsEvenWithoutTime) {
  EXPECT_GE(BandwidthMeter(2, kSmall).read(0).bytes, 2 << 20);
}

TEST(BandwidthMeter, WholePiecesAndAShareOfHugePages) {
  const BandwidthMeter meter(1, (3 << 20) + 1);
  EXPECT_EQ(meter.buffer_bytes(), 4 << 20);
  EXPECT_LE(meter.huge_page_share(), 1.0);
  EXPECT_GE(BandwidthMeter::default_buffer_bytes(), 256 << 20);
}

TEST(BandwidthMeter, MemoryThatIsNotThereIsAnErrorOfOneLine) {
  try {
    const BandwidthMeter meter(1, int64_t{1} << 52);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::resource);
  }
}

}  // namespace
}  // namespace lockstep
