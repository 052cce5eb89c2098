// What the law's order of additions costs: the AVX-512 products as they are, against the same code
// that adds every segment to one running sum and so needs no lanes in memory (its bits differ).
// Usage: bench_order_cost [threads] [pairs]
//
// Matrices of a 1.2B shape, more than any cache holds, streamed once a pass by all threads; the two
// take turns A B B A. Prints the median ratio of the pairs.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../tests/kernels/quantized.h"
#include "base/huge_memory.h"
#include "base/philox.h"
#include "base/thread_team.h"
#include "gguf/types.h"
#include "kernels/cpu/kernels.h"

// src/kernels/CMakeLists.txt: lockstep_kernels_avx512_free.
namespace lockstep::kernels::avx512_free {
void matmul_quantized(const MatmulQuantizedArgs& args, Range items);
}

using namespace lockstep;
using namespace lockstep::kernels;

namespace {

constexpr int64_t kIn = 2048, kOut = 8192, kMatrices = 24;
constexpr int32_t kTilesAtOnce = 32;

using Product = void (*)(const MatmulQuantizedArgs&, Range);

double milliseconds(ThreadTeam& team, Product product, std::vector<MatmulQuantizedArgs>& passes) {
  const auto start = std::chrono::steady_clock::now();
  for (MatmulQuantizedArgs& args : passes) {
    const int64_t tiles = args.items();
    team.run(static_cast<int32_t>(tiles / kTilesAtOnce), [&](int chunk) {
      product(args, {chunk * kTilesAtOnce, (chunk + 1) * kTilesAtOnce});
    });
  }
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

void compare(ThreadTeam& team, const CpuKernels& kernels, TensorType type, int64_t rows,
             int pairs) {
  const gguf::TypeInfo& info = gguf::type_info(type);
  const int64_t row_bytes = kIn / info.block_elements * info.block_bytes;
  // Random bytes with the exponents of all factors held small: finite, and nothing is zero.
  std::vector<std::byte> data(static_cast<size_t>(kOut * row_bytes));
  for (size_t i = 0; i + 16 <= data.size(); i += 16) {
    const auto words = philox4x32_10({static_cast<uint32_t>(i), 1, 2, 3}, {7, 7});
    for (size_t j = 0; j < 4; ++j) {
      const uint32_t masked = words[j] & 0x3F3F3F3Fu;
      std::memcpy(data.data() + i + 4 * j, &masked, 4);
    }
  }
  const Weight weight{"w", type, kIn, kOut, data.data(), row_bytes};
  const int64_t bytes = (kernels.packing->bytes(weight) + 63) / 64 * 64;
  const HugeMemory memory(bytes * kMatrices, "the matrices");
  for (int64_t m = 0; m < kMatrices; ++m) {
    kernels.packing->pack(weight, {0, kOut / 16}, memory.data() + m * bytes);
  }
  std::vector<float> x(static_cast<size_t>(rows * kIn)), out(static_cast<size_t>(rows * kOut));
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i * 7919 % 1000) * 0.002f - 1.0f;
  test::Quantized q(kernels, activation_form(type), rows, kIn);
  const QuantizeActivationsArgs quantise{
      x.data(), rows, kIn, activation_form(type), q.view(), {q.fault.data()}};
  kernels.quantize_activations(quantise, {0, quantise.items()});
  std::vector<MatmulQuantizedArgs> passes;
  for (int64_t m = 0; m < kMatrices; ++m) {
    passes.push_back({&weight, memory.data() + m * bytes, nullptr, q.view(), rows, out.data()});
  }

  milliseconds(team, kernels.matmul_quantized, passes);
  milliseconds(team, avx512_free::matmul_quantized, passes);
  std::vector<double> ratios, law_ms, free_ms;
  for (int i = 0; i < pairs; ++i) {
    double law = 0, free = 0;
    if (i % 2 == 0) law = milliseconds(team, kernels.matmul_quantized, passes);
    free = milliseconds(team, avx512_free::matmul_quantized, passes);
    if (i % 2 != 0) law = milliseconds(team, kernels.matmul_quantized, passes);
    ratios.push_back(law / free);
    law_ms.push_back(law);
    free_ms.push_back(free);
  }
  const auto median = [](std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  };
  fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.3f} |\n", info.name, rows, median(law_ms),
             median(free_ms), median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2, pairs = argc > 2 ? std::atoi(argv[2]) : 41;
  const CpuKernels& kernels = select_cpu_kernels("avx512");
  ThreadTeam team(threads);
  fmt::print("| type | width | law ms | free ms | law ÷ free |\n|---|---|---|---|---|\n");
  for (const TensorType type : {TensorType::q8_0, TensorType::q4_k}) {
    for (const int64_t rows : {1, 8, 16}) compare(team, kernels, type, rows, pairs);
  }
}
