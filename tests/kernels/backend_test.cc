// Contract E1 on whole passes: whatever the width, the neighbours, the threads and the instruction
// set, the logits and the state are the same bits.
#include <gtest/gtest.h>

#include <cstdio>

#include "base/error.h"
#include "test_model.h"

namespace lockstep::kernels::test {
namespace {

struct Result {
  std::vector<float> logits;  // of every position
  std::vector<std::byte> state;
};

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

std::vector<int32_t> random_tokens(const ModelShape& shape, int64_t n, uint64_t seed) {
  Random random(seed);
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<int32_t>(random.below(shape.n_vocab)));
  return tokens;
}

// All tokens in passes of the given widths (repeated), every row wanting logits.
Result decode(Backend& backend, const TestModel& model, const std::vector<int32_t>& tokens,
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
    EXPECT_TRUE(pass.faults.empty()) << "op " << pass.faults[0].op;
    at += rows;
  }
  result.state = state.contents();
  return result;
}

TEST(Backend, RunsAPass) {
  const TestModel model({}, 1);
  const auto backend = make_cpu_backend("", 1);
  const auto tokens = random_tokens(model.shape(), 70, 2);
  const Result a = decode(*backend, model, tokens, {1}, KvType::f16, KvType::f16);
  const Result b = decode(*backend, model, tokens, {70}, KvType::f16, KvType::f16);
  EXPECT_TRUE(same_bits(a.logits, b.logits));
  EXPECT_EQ(a.state, b.state);
  float most = 0;
  for (const float x : a.logits) most = std::max(most, std::abs(x));
  EXPECT_GT(most, 1e-3f);
}

}  // namespace
}  // namespace lockstep::kernels::test
