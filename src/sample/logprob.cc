// Reported log-probabilities: of the raw row, before bias, penalties and temperature.
#include <algorithm>
#include <limits>

#include "kernels/cpu/float_mode.h"
#include "kernels/math/elementary64.h"
#include "sample/sampler.h"

namespace lockstep::sample {
namespace {

struct RowSum {
  bool finite = false;
  float x_max = 0;
  double log_total = 0;  // log(W·2^-40)
};

// Not inlined, for the sake of the callers' float mode.
[[gnu::noinline]] RowSum sum_row(std::span<const float> row, std::vector<float>& block_max) {
  RowSum sum;
  const auto n = static_cast<int64_t>(row.size());
  block_max.resize(static_cast<size_t>(block_count(n)));
  if (n == 0 || !row_ops().scan(row.data(), n, block_max.data())) return sum;
  sum.finite = true;
  sum.x_max = *std::max_element(block_max.begin(), block_max.end());
  uint64_t weights[kBlock];
  uint64_t total = 0;
  for (size_t block = 0; block < block_max.size(); ++block) {
    if (static_cast<double>(block_max[block] - sum.x_max) < kWeightZeroBelow) continue;
    const int64_t begin = static_cast<int64_t>(block) * kBlock;
    const int64_t length = std::min(kBlock, n - begin);
    row_ops().weights(row.data() + begin, length, sum.x_max, 1.0, weights);
    for (int64_t i = 0; i < length; ++i) total += weights[i];
  }
  sum.log_total = math::log(static_cast<double>(total) * 0x1p-40);
  return sum;
}

[[gnu::noinline]] double logprob(const RowSum& sum, float x) {
  return static_cast<double>(x - sum.x_max) - sum.log_total;
}

}  // namespace

double logprob_of(std::span<const float> logits, int32_t id) {
  const kernels::CanonicalFloatMode mode;
  std::vector<float> block_max;
  const RowSum sum = sum_row(logits, block_max);
  if (!sum.finite) return std::numeric_limits<double>::quiet_NaN();
  return logprob(sum, logits[static_cast<size_t>(id)]);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n) {
  const kernels::CanonicalFloatMode mode;
  std::vector<float> block_max;
  const RowSum sum = sum_row(logits, block_max);
  const size_t wanted = std::min(static_cast<size_t>(std::max(n, 0)), logits.size());
  std::vector<TokenLogprob> top;
  if (!sum.finite || wanted == 0) return top;
  // As in Sampler::keep_top_k: the wanted-th greatest block maximum bounds what can be among them.
  float least = -std::numeric_limits<float>::infinity();
  if (wanted <= block_max.size()) {
    const auto at = block_max.begin() + static_cast<ptrdiff_t>(wanted - 1);
    std::nth_element(block_max.begin(), at, block_max.end(), std::greater<float>());
    least = *at;
  }
  std::vector<Candidate> list;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] >= least) list.push_back({logits[i], static_cast<int32_t>(i)});
  }
  const auto end = list.begin() + static_cast<ptrdiff_t>(wanted);
  std::partial_sort(list.begin(), end, list.end(), before);
  for (auto c = list.begin(); c != end; ++c) top.push_back({c->id, logprob(sum, c->x)});
  return top;
}

}  // namespace lockstep::sample
