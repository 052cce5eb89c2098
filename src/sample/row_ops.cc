// Compiled more than once with other -m flags: nothing here may have weak linkage, so no templates
// and no inline functions from std (see kernels/math/portable.h).
#include "sample/row_ops.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "kernels/math/elementary.h"

namespace lockstep::sample {
namespace {

uint32_t carry_of(float x) {
  // Adding one to the exponent carries into the sign bit exactly when all exponent bits are set.
  return (math::bits_of(x) & 0x7F800000u) + 0x00800000u;
}

#ifdef __AVX2__

// Of one whole block: its maximum; the carries are or-ed into `carry`.
struct Carries {
  __m256i lanes = _mm256_setzero_si256();
  bool any() const { return _mm256_movemask_ps(_mm256_castsi256_ps(lanes)) != 0; }
};

float scan_block(const float* p, Carries& carries) {
  const __m256i exponent = _mm256_set1_epi32(0x7F800000), one = _mm256_set1_epi32(0x00800000);
  __m256 m = _mm256_loadu_ps(p);
  for (int i = 0; i < kBlock; i += 8) {
    const __m256 v = _mm256_loadu_ps(p + i);
    const __m256i e = _mm256_and_si256(_mm256_castps_si256(v), exponent);
    carries.lanes = _mm256_or_si256(carries.lanes, _mm256_add_epi32(e, one));
    m = _mm256_max_ps(v, m);
  }
  __m128 h = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
  h = _mm_max_ps(h, _mm_movehl_ps(h, h));
  h = _mm_max_ss(h, _mm_movehdup_ps(h));
  return _mm_cvtss_f32(h);
}

#else

constexpr int kLanes = 8;

struct Carries {
  uint32_t lanes[kLanes] = {};
  bool any() const {
    uint32_t all = 0;
    for (int j = 0; j < kLanes; ++j) all |= lanes[j];
    return (all & 0x80000000u) != 0;
  }
};

float scan_block(const float* p, Carries& carries) {
  float m[kLanes];
  for (int j = 0; j < kLanes; ++j) m[j] = p[j];
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) carries.lanes[j] |= carry_of(p[i + j]);
    for (int j = 0; j < kLanes; ++j) m[j] = p[i + j] > m[j] ? p[i + j] : m[j];
  }
  for (int j = 1; j < kLanes; ++j) m[0] = m[j] > m[0] ? m[j] : m[0];
  return m[0];
}

#endif

bool scan(const float* x, int64_t n, float* block_max) {
  Carries carries;
  uint32_t rest = 0;
  const int64_t whole = n / kBlock;
  for (int64_t b = 0; b < whole; ++b) block_max[b] = scan_block(x + b * kBlock, carries);
  if (whole * kBlock < n) {
    float m = x[whole * kBlock];
    for (int64_t i = whole * kBlock; i < n; ++i) {
      rest |= carry_of(x[i]);
      m = x[i] > m ? x[i] : m;
    }
    block_max[whole] = m;
  }
  return !carries.any() && (rest & 0x80000000u) == 0;
}

// roundeven(exp(s)·2^40): the addition of 2^52 leaves the nearest integer in the low bits.
uint64_t weight(float s) {
  const double e = static_cast<double>(math::exp_nonpos(s));
  return math::bits_of(e * 0x1p40 + 0x1p52) & 0x000FFFFFFFFFFFFFull;
}

void weights(const float* x, int64_t n, float x_max, double t, uint64_t* out) {
  if (t == 1.0) {  // d / 1 is d
    for (int64_t i = 0; i < n; ++i) out[i] = weight(x[i] - x_max);
  } else {
    for (int64_t i = 0; i < n; ++i) {
      out[i] = weight(static_cast<float>(static_cast<double>(x[i] - x_max) / t));
    }
  }
}

// base/philox.h gives the function itself; here 16 counters run side by side.
constexpr int kGroups = 16;
constexpr uint32_t kM0 = 0xD2511F53u, kM1 = 0xCD9E8D57u, kW0 = 0x9E3779B9u, kW1 = 0xBB67AE85u;

#ifdef __AVX2__

uint32_t noise_words(uint32_t key0, uint32_t key1, uint32_t position, uint32_t group,
                     uint32_t choice, uint32_t* words) {
  // Four counters a register, one in each 64-bit lane; what is above the low 32 bits is noise that
  // the multiplication does not see.
  constexpr int kSets = kGroups / 4;
  const __m256i m0 = _mm256_set1_epi64x(kM0), m1 = _mm256_set1_epi64x(kM1);
  const __m256i low = _mm256_set1_epi64x(0xFFFFFFFF);
  __m256i c0[kSets], c1[kSets], c2[kSets], c3[kSets];
  for (int s = 0; s < kSets; ++s) {
    c0[s] = _mm256_set1_epi64x(position);
    c1[s] = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<int64_t>(group) + 4 * s),
                             _mm256_setr_epi64x(0, 1, 2, 3));
    c2[s] = _mm256_set1_epi64x(choice);
    c3[s] = _mm256_setzero_si256();
  }
  for (int round = 0; round < 10; ++round) {
    const __m256i k0 = _mm256_set1_epi64x(key0), k1 = _mm256_set1_epi64x(key1);
    for (int s = 0; s < kSets; ++s) {
      const __m256i p0 = _mm256_mul_epu32(m0, c0[s]), p1 = _mm256_mul_epu32(m1, c2[s]);
      c0[s] = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(c1[s], k0));
      c1[s] = p1;
      c2[s] = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(c3[s], k1));
      c3[s] = p0;
    }
    key0 += kW0;
    key1 += kW1;
  }
  __m256i most = _mm256_setzero_si256();
  for (int s = 0; s < kSets; ++s) {
    const __m256i a = _mm256_or_si256(_mm256_and_si256(c0[s], low), _mm256_slli_epi64(c1[s], 32));
    const __m256i b = _mm256_or_si256(_mm256_and_si256(c2[s], low), _mm256_slli_epi64(c3[s], 32));
    most = _mm256_max_epu32(most, _mm256_max_epu32(a, b));
    const __m256i even = _mm256_unpacklo_epi64(a, b), odd = _mm256_unpackhi_epi64(a, b);
    __m256i* out = reinterpret_cast<__m256i*>(words + 16 * s);
    _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
  __m128i h = _mm_max_epu32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0x4E));
  h = _mm_max_epu32(h, _mm_shuffle_epi32(h, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(h));
}

#else

uint32_t noise_words(uint32_t key0, uint32_t key1, uint32_t position, uint32_t group,
                     uint32_t choice, uint32_t* words) {
  uint32_t c0[kGroups], c1[kGroups], c2[kGroups], c3[kGroups];
  for (int j = 0; j < kGroups; ++j) {
    c0[j] = position;
    c1[j] = group + static_cast<uint32_t>(j);
    c2[j] = choice;
    c3[j] = 0;
  }
  for (int round = 0; round < 10; ++round) {
    for (int j = 0; j < kGroups; ++j) {
      const uint64_t p0 = uint64_t{kM0} * c0[j];
      const uint64_t p1 = uint64_t{kM1} * c2[j];
      c0[j] = static_cast<uint32_t>(p1 >> 32) ^ c1[j] ^ key0;
      c1[j] = static_cast<uint32_t>(p1);
      c2[j] = static_cast<uint32_t>(p0 >> 32) ^ c3[j] ^ key1;
      c3[j] = static_cast<uint32_t>(p0);
    }
    key0 += kW0;
    key1 += kW1;
  }
  for (int j = 0; j < kGroups; ++j) {
    words[4 * j] = c0[j];
    words[4 * j + 1] = c1[j];
    words[4 * j + 2] = c2[j];
    words[4 * j + 3] = c3[j];
  }
  uint32_t most = 0;
  for (int i = 0; i < 4 * kGroups; ++i) most = words[i] > most ? words[i] : most;
  return most;
}

#endif

}  // namespace

#ifdef LOCKSTEP_ROW_OPS_V3
extern const RowOps kRowOpsV3;
const RowOps kRowOpsV3 = {scan, weights, noise_words};
#else
const RowOps kRowOpsPortable = {scan, weights, noise_words};
#endif

}  // namespace lockstep::sample
