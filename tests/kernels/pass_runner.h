// Tokens through a backend in passes of given widths.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "test_model.h"

namespace lockstep::kernels::test {

struct Result {
  std::vector<float> logits;  // of every position
  std::vector<std::byte> state;
};

inline std::vector<int32_t> random_tokens(const ModelShape& shape, int64_t n, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<int32_t>(random.below(shape.n_vocab)));
  return tokens;
}

// All tokens in passes of the given widths (repeated), every row wanting logits.
inline Result decode(Backend& backend, const TestModel& model, const std::vector<int32_t>& tokens,
                     const std::vector<int64_t>& widths, KvType k_type, KvType v_type) {
  const auto n = static_cast<int64_t>(tokens.size());
  const int64_t n_vocab = model.graph().n_vocab;
  TestState state(model.shape(), n, k_type, v_type);
  Result result;
  result.logits.resize(static_cast<size_t>(n * n_vocab));
  size_t turn = 0;
  for (int64_t at = 0; at < n; ++turn) {
    const int64_t rows = std::min(widths[turn % widths.size()], n - at);
    Pass pass;
    pass.segments.push_back(
        {std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(rows)), at,
         state.views(), 0});
    pass.logits =
        std::span(result.logits)
            .subspan(static_cast<size_t>(at * n_vocab), static_cast<size_t>(rows * n_vocab));
    backend.run(model.graph(), pass);
    EXPECT_TRUE(pass.faults.empty())
        << model.graph().ops[static_cast<size_t>(pass.faults[0].op)].name;
    at += rows;
  }
  result.state = state.contents();
  return result;
}

}  // namespace lockstep::kernels::test
