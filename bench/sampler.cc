// Time of one choice over a whole vocabulary of 262,144 ids. Usage: bench_sampler [repeats]
#include "sample/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <numeric>

#include "base/philox.h"

using namespace lockstep;

namespace {

constexpr int64_t kVocab = 262144;
constexpr int kRows = 16;

// Normal noise of the given deviation over a few peaks: a language model's row is far from flat.
std::vector<float> make_row(uint32_t seed, double deviation, int peaks) {
  std::vector<float> row(kVocab);
  for (int64_t i = 0; i < kVocab; ++i) {
    const auto w = philox4x32_10({static_cast<uint32_t>(i), 0, 0, 0}, {seed, 0});
    const double u = (w[0] + 0.5) * 0x1p-32, v = w[1] * 0x1p-32;
    row[static_cast<size_t>(i)] = static_cast<float>(deviation * std::sqrt(-2.0 * std::log(u)) *
                                                     std::cos(6.283185307179586 * v));
  }
  for (int k = 0; k < peaks; ++k) {
    row[(seed * 7919u + static_cast<uint32_t>(k) * 104729u) % kVocab] +=
        20.0f - 0.3f * static_cast<float>(k);
  }
  return row;
}

double median_us(const std::vector<std::vector<float>>& rows, const sample::Parameters& parameters,
                 int repeats, const std::vector<int32_t>& history) {
  sample::Sampler sampler(parameters, kVocab);
  std::vector<double> times;
  int64_t position = 1000;
  for (int r = 0; r < repeats; ++r) {
    for (const auto& row : rows) {
      const auto start = std::chrono::steady_clock::now();
      const auto choice = sampler.choose(row, history, position++);
      const auto end = std::chrono::steady_clock::now();
      if (choice.fault) std::exit(1);
      times.push_back(std::chrono::duration<double, std::micro>(end - start).count());
    }
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  const int repeats = argc > 1 ? std::atoi(argv[1]) : 20;
  std::vector<int32_t> history(512);
  std::iota(history.begin(), history.end(), 100);
  struct Case {
    const char* name;
    sample::Parameters parameters;
  };
  sample::Parameters base;
  base.seed = 42;
  std::vector<Case> cases;
  cases.push_back({"greedy", base});
  cases.back().parameters.temperature = 0.0f;
  cases.push_back({"default (top-k 40, top-p, min-p, T 0.8)", base});
  cases.push_back({"default + penalties", base});
  cases.back().parameters.repeat_penalty = 1.1f;
  cases.push_back({"T 1, all ids", base});
  cases.back().parameters.temperature = 1.0f;
  cases.back().parameters.stages = {sample::Stage::temperature};
  cases.push_back({"T 1, min-p 0.05", base});
  cases.back().parameters.temperature = 1.0f;
  cases.back().parameters.stages = {sample::Stage::min_p, sample::Stage::temperature};
  cases.push_back({"T 1, top-p 0.95", base});
  cases.back().parameters.temperature = 1.0f;
  cases.back().parameters.stages = {sample::Stage::top_p, sample::Stage::temperature};
  struct Shape {
    const char* name;
    double deviation;
    int peaks;
  };
  for (const Shape& shape : {Shape{"peaked (sd 2.5, 40 peaks)", 2.5, 40},
                             Shape{"flat (sd 1)", 1.0, 0}, Shape{"constant", 0.0, 0}}) {
    std::vector<std::vector<float>> rows;
    for (uint32_t seed = 1; seed <= kRows; ++seed)
      rows.push_back(make_row(seed, shape.deviation, shape.peaks));
    fmt::print("{}\n", shape.name);
    for (const Case& c : cases) {
      fmt::print("  {:42} {:9.1f} us\n", c.name, median_us(rows, c.parameters, repeats, history));
    }
    std::vector<double> times;
    for (const auto& row : rows) {
      const auto start = std::chrono::steady_clock::now();
      const double lp = sample::logprob_of(row, 5);
      times.push_back(
          std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
              .count());
      if (lp > 0.0) return 1;
    }
    std::sort(times.begin(), times.end());
    fmt::print("  {:42} {:9.1f} us\n", "log-probability of one id", times[times.size() / 2]);
  }
  return 0;
}
