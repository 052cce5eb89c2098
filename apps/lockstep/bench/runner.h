// Times the passes of tests, each repetition between two readings of the memory bandwidth.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/memory_bandwidth.h"
#include "bench/plan.h"
#include "bench/profile.h"
#include "draft/lane.h"

namespace lockstep::app {

// Of 1e9 bytes a second throughout.
struct BenchRow {
  BenchTest test;
  int threads = 1;
  int64_t passes = 0;            // of one repetition
  kernels::OpBytes bytes;        // of one repetition: weights and kv have to come from memory
  std::vector<double> ms;        // of a pass, one for each repetition
  std::vector<double> readings;  // GB/s; ms[i] lies between readings[i] and readings[i + 1]
  std::optional<OpProfile> profile;

  double ms_median() const;
  double tokens_per_second() const;
  int64_t bytes_per_pass() const;  // weights and kv; of several passes the mean
  double gb_s() const;
  double read_gb_s() const;  // the median reading
  // Median over the repetitions of GB/s ÷ the mean of the two readings beside it.
  double fraction() const;
};

class BenchRunner {
 public:
  static constexpr uint64_t kSeed = 1;  // of the tokens

  // spec.context bounds the tests' positions.
  BenchRunner(std::shared_ptr<const model::Model> model, std::shared_ptr<kernels::Backend> backend,
              const state::KvSpec& spec);

  // Of main memory; none where the backend measures its device itself.
  const std::optional<BandwidthMeter>& meter() const { return meter_; }

  using ShowProgress = std::function<void(const std::string& what)>;
  // One warm-up (the first pass of the test) that is not counted, then the repetitions. Throws
  // Error(check_failed) where the arithmetic faults.
  BenchRow measure(const BenchTest& test, int64_t repetitions, const ShowProgress& progress);
  // As many repetitions again, watched op by op; trace, where not null, gets the first passes of
  // the first.
  OpProfile profile(const BenchTest& test, int64_t repetitions, OpTrace* trace,
                    const ShowProgress& progress);

 private:
  void go_to(int64_t depth);
  std::vector<int32_t> draw_tokens(int64_t count);
  // Runs one pass and keeps its rows, except those of a width test.
  void run_pass(const BenchTest& test, const kernels::PassShape& shape,
                std::span<const int32_t> tokens);
  double read_bandwidth();
  double run_repetition(const BenchTest& test, const std::vector<kernels::PassShape>& passes);

  std::shared_ptr<kernels::Backend> backend_;
  draft::Lane lane_;
  std::optional<BandwidthMeter> meter_;
  std::mt19937_64 random_{kSeed};
};

}  // namespace lockstep::app
