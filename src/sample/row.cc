#include "sample/row.h"

#include <algorithm>
#include <bit>

namespace lockstep::sample {
namespace {

// Eight lanes, which the compiler keeps in vector registers: the whole vocabulary passes here once
// for every sampled row.
constexpr int kLanes = 8;

}  // namespace

bool scan_row(const float* x, int64_t n, std::vector<float>& block_max) {
  block_max.resize(static_cast<size_t>(block_count(n)));
  // Adding one to the exponent carries into the sign bit exactly when all exponent bits are set.
  uint32_t carry[kLanes] = {};
  const int64_t whole = n / kBlock;
  for (int64_t b = 0; b < whole; ++b) {
    const float* p = x + b * kBlock;
    float m[kLanes];
    for (int j = 0; j < kLanes; ++j) m[j] = p[j];
    for (int64_t i = 0; i < kBlock; i += kLanes) {
      for (int j = 0; j < kLanes; ++j) {
        carry[j] |= (std::bit_cast<uint32_t>(p[i + j]) & 0x7F800000u) + 0x00800000u;
        m[j] = p[i + j] > m[j] ? p[i + j] : m[j];
      }
    }
    float greatest = m[0];
    for (int j = 1; j < kLanes; ++j) greatest = m[j] > greatest ? m[j] : greatest;
    block_max[static_cast<size_t>(b)] = greatest;
  }
  for (int64_t i = whole * kBlock; i < n; ++i) {
    carry[0] |= (std::bit_cast<uint32_t>(x[i]) & 0x7F800000u) + 0x00800000u;
  }
  if (whole < block_count(n)) block_max.back() = block_maximum(x, n, whole);
  uint32_t any = 0;
  for (const uint32_t c : carry) any |= c;
  return (any & 0x80000000u) == 0;
}

float block_maximum(const float* x, int64_t n, int64_t block) {
  const int64_t begin = block * kBlock, end = std::min(n, begin + kBlock);
  float greatest = x[begin];
  for (int64_t i = begin + 1; i < end; ++i) greatest = x[i] > greatest ? x[i] : greatest;
  return greatest;
}

}  // namespace lockstep::sample
