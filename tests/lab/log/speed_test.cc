// What bench_lab_log_speed measures, at a size for the suite: that figures over many requests are
// right, and that neither time nor memory runs away. The bound is loose, so that it holds in
// sanitizer builds.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <ctime>

#include "generated_log.h"
#include "lab/log/analysis.h"

namespace lockstep::lab::log {
namespace {

TEST(Speed, ManyRequests) {
  constexpr int64_t kRequests = 55'000;  // more than are kept
  std::string text;
  for (int64_t i = 0; i < kRequests; ++i) append_request(text, i);
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  const std::clock_t start = std::clock();
  const Analysis a = read_log_text(text);
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  EXPECT_EQ(a.request_count, kRequests);
  EXPECT_EQ(a.requests.size(), Analysis::kKept);
  EXPECT_EQ(a.totals.requests, kRequests) << "those not kept are in the figures";
  EXPECT_EQ(a.contradiction_count, 0) << a.contradictions[0].text;
  EXPECT_EQ(a.totals.drafted, a.totals.verify_low * 5);
  EXPECT_EQ(a.totals.verify_low, a.totals.verify_high);
  EXPECT_NEAR(*a.depths.step_ms().slope(), 0.0002, 1e-5);
  EXPECT_EQ(a.lives.at(0).draft_length, 5);
  EXPECT_GT(static_cast<double>(text.size()) / 1e6 / seconds, 10);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 400'000) << "kB";
}

}  // namespace
}  // namespace lockstep::lab::log
