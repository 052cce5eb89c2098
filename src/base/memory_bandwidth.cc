#include "base/memory_bandwidth.h"

#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/error.h"

namespace lockstep {
namespace {

constexpr int64_t kPiece = 1 << 20;

// Each reads `bytes` bytes (a multiple of 512) from 64-byte aligned `p` and returns a word that
// depends on all of them, so that no load can be left out. Eight independent accumulators keep the
// loads from waiting for each other.
uint64_t read_sse2(const std::byte* p, int64_t bytes) {
  __m128i sum[8] = {};
  for (int64_t i = 0; i < bytes; i += 128) {
    for (int k = 0; k < 8; ++k) {
      sum[k] =
          _mm_xor_si128(sum[k], _mm_load_si128(reinterpret_cast<const __m128i*>(p + i + 16 * k)));
    }
  }
  for (int k = 1; k < 8; ++k) sum[0] = _mm_xor_si128(sum[0], sum[k]);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(sum[0])) ^
         static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_unpackhi_epi64(sum[0], sum[0])));
}

__attribute__((target("avx2"))) uint64_t read_avx2(const std::byte* p, int64_t bytes) {
  __m256i sum[8] = {};
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int k = 0; k < 8; ++k) {
      sum[k] = _mm256_xor_si256(
          sum[k], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i + 32 * k)));
    }
  }
  for (int k = 1; k < 8; ++k) sum[0] = _mm256_xor_si256(sum[0], sum[k]);
  alignas(32) uint64_t words[4];
  _mm256_store_si256(reinterpret_cast<__m256i*>(words), sum[0]);
  return words[0] ^ words[1] ^ words[2] ^ words[3];
}

__attribute__((target("avx512f"))) uint64_t read_avx512(const std::byte* p, int64_t bytes) {
  __m512i sum[8] = {};
  for (int64_t i = 0; i < bytes; i += 512) {
    for (int k = 0; k < 8; ++k) {
      sum[k] = _mm512_xor_si512(sum[k], _mm512_load_si512(p + i + 64 * k));
    }
  }
  for (int k = 1; k < 8; ++k) sum[0] = _mm512_xor_si512(sum[0], sum[k]);
  alignas(64) uint64_t words[8];
  _mm512_store_si512(words, sum[0]);
  uint64_t all = 0;
  for (const uint64_t word : words) all ^= word;
  return all;
}

using Reader = uint64_t (*)(const std::byte*, int64_t);

Reader best_reader() {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f")) return read_avx512;
  if (__builtin_cpu_supports("avx2")) return read_avx2;
  return read_sse2;
}

std::string first_line(const std::filesystem::path& path) {
  std::string line;
  std::getline(std::ifstream(path) >> std::ws, line);
  return line;
}

// All caches of the last level together, as the kernel lists them; 0 where it does not. (sysconf's
// answer is of the host in some virtual machines.)
int64_t last_level_cache_bytes() {
  std::map<int, std::map<std::string, int64_t>> levels;  // level, CPUs that share it, bytes
  std::error_code error;
  for (const auto& cpu : std::filesystem::directory_iterator("/sys/devices/system/cpu", error)) {
    for (const auto& cache : std::filesystem::directory_iterator(cpu.path() / "cache", error)) {
      int level = 0;
      long long kib = 0;
      if (std::sscanf(first_line(cache.path() / "level").c_str(), "%d", &level) != 1) continue;
      if (std::sscanf(first_line(cache.path() / "size").c_str(), "%lldK", &kib) != 1) continue;
      levels[level][first_line(cache.path() / "shared_cpu_list")] = kib << 10;
    }
  }
  int64_t bytes = 0;
  if (!levels.empty()) {
    for (const auto& [cpus, size] : levels.rbegin()->second) bytes += size;
  }
  return bytes;
}

}  // namespace

int64_t BandwidthMeter::default_buffer_bytes() {
  constexpr int64_t kLeast = 256LL << 20, kMost = 4LL << 30;
  return std::clamp(4 * last_level_cache_bytes(), kLeast, kMost);
}

BandwidthMeter::BandwidthMeter(int threads, int64_t bytes)
    : team_(threads),
      bytes_(std::max<int64_t>(1, (bytes + kPiece - 1) / kPiece) * kPiece),
      memory_(bytes_, "the measurement of the read bandwidth") {
  // Every page its own memory: a page that was never written is one page of zeros for all.
  team_.run(team_.size(), [&](int part) {
    const Range own = part_of(bytes_ / 8, part, team_.size());
    auto* words = reinterpret_cast<uint64_t*>(memory_.data());
    for (int64_t i = own.begin; i < own.end; ++i) {
      words[i] = (static_cast<uint64_t>(i) + 1) * 0x9E3779B97F4A7C15ull;
    }
  });
  huge_page_share_ =
      static_cast<double>(memory_.huge_bytes()) / static_cast<double>(memory_.size());
  settle();
}

// Memory that a hypervisor has just handed out reads at a tenth of its speed for some hundred
// milliseconds after it was written.
void BandwidthMeter::settle() {
  constexpr int kAgreeing = 4, kMost = 40;
  std::deque<double> last;
  for (int i = 0; i < kMost; ++i) {
    last.push_back(read(20).gb_s);
    if (last.size() < kAgreeing) continue;
    const auto [least, greatest] = std::minmax_element(last.begin(), last.end());
    if (*greatest < 1.25 * *least) return;
    last.pop_front();
  }
}

BandwidthMeter::Reading BandwidthMeter::read(double milliseconds) {
  using Clock = std::chrono::steady_clock;
  static const Reader reader = best_reader();
  const int64_t pieces = bytes_ / kPiece, first = next_piece_.load();
  const auto start = Clock::now();
  const auto until = start + std::chrono::duration_cast<Clock::duration>(
                                 std::chrono::duration<double, std::milli>(milliseconds));
  std::atomic<int64_t> read_pieces{0};
  team_.run(team_.size(), [&](int) {
    uint64_t sum = 0;
    int64_t count = 0;
    do {
      const int64_t piece = next_piece_.fetch_add(1, std::memory_order_relaxed) % pieces;
      sum ^= reader(memory_.data() + piece * kPiece, kPiece);
      ++count;
    } while (Clock::now() < until);
    sink_.fetch_xor(sum, std::memory_order_relaxed);
    read_pieces.fetch_add(count, std::memory_order_relaxed);
  });
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  next_piece_.store((first + read_pieces.load()) % pieces);
  const int64_t bytes = read_pieces.load() * kPiece;
  return {static_cast<double>(bytes) / (ms * 1e6), ms, bytes};
}

}  // namespace lockstep
