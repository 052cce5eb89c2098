#include "bench/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli.h"

namespace lockstep::app {

std::string_view BenchTest::kind_name() const {
  static constexpr std::string_view kNames[] = {"pp", "tg", "w"};
  return kNames[static_cast<size_t>(kind)];
}

std::string BenchTest::name() const {
  std::string out = fmt::format("{}{}", kind_name(), tokens);
  if (depth > 0) out += fmt::format(" @ d{}", depth);
  return out;
}

int64_t BenchTest::width() const {
  return kind == BenchKind::generation ? 1
         : kind == BenchKind::width    ? tokens
                                       : std::min(tokens, batch);
}

std::vector<kernels::PassShape> BenchTest::passes(kernels::KvType k_type,
                                                  kernels::KvType v_type) const {
  std::vector<kernels::PassShape> passes;
  for (int64_t done = 0; done < tokens;) {
    const int64_t rows = std::min(width(), tokens - done);
    const bool last = done + rows == tokens;
    passes.push_back(
        {.rows = rows,
         .depth = depth + done,
         .logits_rows = kind == BenchKind::prompt ? (last ? int64_t{1} : int64_t{0}) : rows,
         .k_type = k_type,
         .v_type = v_type});
    done += rows;
  }
  return passes;
}

std::vector<BenchTest> make_bench_tests(const BenchLists& lists, int64_t context) {
  std::vector<BenchTest> tests;
  for (const int64_t depth : lists.depths) {
    const auto add = [&](BenchKind kind, char flag, const std::vector<int64_t>& list) {
      for (const int64_t tokens : list) {
        if (tokens == 0) continue;
        if (depth + tokens > context) {
          bad_use(
              fmt::format("-d {} -{} {}: {} positions, the model has {}; make one of them smaller",
                          depth, flag, tokens, depth + tokens, context));
        }
        tests.push_back({kind, tokens, depth, lists.batch});
      }
    };
    add(BenchKind::prompt, 'p', lists.prompts);
    add(BenchKind::generation, 'n', lists.generations);
    add(BenchKind::width, 'w', lists.widths);
  }
  if (tests.empty()) bad_use("-p, -n and -w all say none: nothing to measure; give one of them");
  return tests;
}

}  // namespace lockstep::app
