#include "bench/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/error.h"
#include "sample/sampler.h"

namespace lockstep::app {
namespace {

constexpr double kReadingMs = 30;
constexpr size_t kTracedPasses = 64;  // of a test: a trace of thousands says no more

// Not empty.
double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

double BenchRow::ms_median() const {
  return median(ms);
}
double BenchRow::tokens_per_second() const {
  return static_cast<double>(test.tokens) * 1e3 / (ms_median() * static_cast<double>(passes));
}
int64_t BenchRow::bytes_per_pass() const {
  return (bytes.weights + bytes.kv) / passes;
}
double BenchRow::gb_s() const {
  return static_cast<double>(bytes_per_pass()) / (ms_median() * 1e6);
}
double BenchRow::read_gb_s() const {
  return median(readings);
}
double BenchRow::fraction() const {
  std::vector<double> fractions;
  for (size_t i = 0; i < ms.size(); ++i) {
    fractions.push_back(static_cast<double>(bytes_per_pass()) / (ms[i] * 1e6) /
                        ((readings[i] + readings[i + 1]) / 2));
  }
  return median(fractions);
}

BenchRunner::BenchRunner(std::shared_ptr<const model::Model> model,
                         std::shared_ptr<kernels::Backend> backend, const state::KvSpec& spec)
    : backend_(std::move(backend)), lane_(std::move(model), backend_, spec) {
  if (backend_->info().device == "cpu") meter_.emplace(backend_->info().threads);
}

double BenchRunner::read_bandwidth() {
  return meter_ ? meter_->read(kReadingMs).gb_s : backend_->read_gb_s();
}

// Always new ones, so that no pass finds the embedding rows of the last in a cache.
std::vector<int32_t> BenchRunner::draw_tokens(int64_t count) {
  std::uniform_int_distribution<int32_t> token(0, static_cast<int32_t>(lane_.n_vocab()) - 1);
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& id : tokens) id = token(random_);
  return tokens;
}

void BenchRunner::go_to(int64_t depth) {
  constexpr int64_t kRows = 512;
  state::KvCache& kv = lane_.kv();
  if (kv.size() > depth) kv.truncate(kv.reusable(depth));
  while (kv.size() < depth) {
    const int64_t rows = std::min(kRows, depth - kv.size());
    lane_.run(draw_tokens(rows), rows);
    lane_.commit(rows);
  }
}

void BenchRunner::run_pass(const BenchTest& test, const kernels::PassShape& shape,
                           std::span<const int32_t> tokens) {
  // Of the logits what choices by default need, as in `run`.
  const auto outcome =
      lane_.run(tokens, shape.rows - shape.logits_rows, nullptr, sample::Parameters{}.top_k);
  if (outcome.good_rows < shape.rows) {
    throw Error(
        ExitCode::check_failed,
        fmt::format("{}: {} on random tokens; the model's arithmetic overflows, so its "
                    "speed says nothing",
                    test.name(),
                    lane_.describe_fault(outcome.fault_op, shape.depth + outcome.good_rows)));
  }
  lane_.commit(test.kind == BenchKind::width ? 0 : shape.rows);
}

double BenchRunner::run_repetition(const BenchTest& test,
                                   const std::vector<kernels::PassShape>& passes) {
  const std::vector<int32_t> tokens = draw_tokens(test.tokens);
  size_t done = 0;
  const auto start = std::chrono::steady_clock::now();
  for (const kernels::PassShape& shape : passes) {
    const auto rows = static_cast<size_t>(shape.rows);
    run_pass(test, shape, std::span(tokens).subspan(done, rows));
    done += rows;
  }
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

BenchRow BenchRunner::measure(const BenchTest& test, int64_t repetitions,
                              const ShowProgress& progress) {
  const state::KvSpec& spec = lane_.kv().spec();
  const std::vector<kernels::PassShape> passes = test.passes(spec.k_type, spec.v_type);
  BenchRow row;
  row.test = test;
  row.threads = backend_->info().threads;
  row.passes = static_cast<int64_t>(passes.size());
  for (const kernels::PassShape& shape : passes) {
    row.bytes += kernels::pass_bytes(lane_.model().graph(), shape);
  }
  if (lane_.kv().size() != test.depth) progress(fmt::format("{}: filling the cache", test.name()));
  go_to(test.depth);
  // A width pass is never kept; the others are undone by going back to this, which shares pages and
  // works for sliding windows too.
  const auto start = test.kind == BenchKind::width ? nullptr : lane_.kv().snapshot();
  const auto undo = [&] {
    if (start) lane_.kv().restore(start);
  };
  progress(fmt::format("{}: warm-up", test.name()));
  run_pass(test, passes.front(), draw_tokens(passes.front().rows));
  undo();
  row.readings.push_back(read_bandwidth());
  for (int64_t i = 0; i < repetitions; ++i) {
    progress(fmt::format("{}: repetition {}/{}", test.name(), i + 1, repetitions));
    row.ms.push_back(run_repetition(test, passes) / static_cast<double>(passes.size()));
    row.readings.push_back(read_bandwidth());
    undo();
  }
  return row;
}

OpProfile BenchRunner::profile(const BenchTest& test, int64_t repetitions, OpTrace* trace,
                               const ShowProgress& progress) {
  const state::KvSpec& spec = lane_.kv().spec();
  const std::vector<kernels::PassShape> passes = test.passes(spec.k_type, spec.v_type);
  OpRecorder recorder(lane_.model().graph());
  go_to(test.depth);
  const auto start = test.kind == BenchKind::width ? nullptr : lane_.kv().snapshot();
  for (int64_t i = 0; i < repetitions; ++i) {
    progress(fmt::format("{}: ops, repetition {}/{}", test.name(), i + 1, repetitions));
    read_bandwidth();  // leaves the caches as before a timed repetition
    backend_->set_observer(&recorder);
    for (size_t pass = 0; pass < passes.size(); ++pass) {
      const std::vector<int32_t> tokens = draw_tokens(passes[pass].rows);
      recorder.begin_pass();
      try {
        run_pass(test, passes[pass], tokens);
      } catch (...) {
        backend_->set_observer(nullptr);
        throw;
      }
      recorder.end_pass(test, backend_->info().threads, passes[pass],
                        i == 0 && pass < kTracedPasses ? trace : nullptr);
    }
    backend_->set_observer(nullptr);
    if (start) lane_.kv().restore(start);
  }
  return recorder.profile();
}

}  // namespace lockstep::app
