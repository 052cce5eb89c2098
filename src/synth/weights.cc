#include "synth/weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "quant/blocks.h"

namespace lockstep::synth {
namespace {

using gguf::TensorType;
using namespace quant;

constexpr int kLanes = 8;

// Eight counters at once, in a shape that compilers turn into vector instructions; the same words
// as philox4x32_10 (base/philox.h) gives one by one.
void philox_lanes(uint64_t seed, uint64_t stream, uint64_t first_counter,
                  uint32_t (&words)[4 * kLanes]) {
  constexpr uint32_t kM0 = 0xD2511F53u, kM1 = 0xCD9E8D57u, kW0 = 0x9E3779B9u, kW1 = 0xBB67AE85u;
  uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) {
    const uint64_t counter = first_counter + i;
    c0[i] = static_cast<uint32_t>(counter);
    c1[i] = static_cast<uint32_t>(counter >> 32);
    c2[i] = static_cast<uint32_t>(stream);
    c3[i] = static_cast<uint32_t>(stream >> 32);
  }
  auto k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    for (int i = 0; i < kLanes; ++i) {
      const uint64_t p0 = uint64_t{kM0} * c0[i], p1 = uint64_t{kM1} * c2[i];
      c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c1[i] = static_cast<uint32_t>(p1);
      c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c3[i] = static_cast<uint32_t>(p0);
    }
    k0 += kW0;
    k1 += kW1;
  }
  for (int i = 0; i < kLanes; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

// 0.75 to 1.25, in 2^16 steps.
float jitter(uint32_t word) {
  return 0.75f + static_cast<float>(word & 0xFFFF) * (0.5f / 65536.0f);
}

// Never 0: a block without a scale would be a hole in the matrix.
uint16_t scale_bits(float scale) {
  const uint16_t bits = f32_to_f16(scale);
  return (bits & 0x7FFF) == 0 ? static_cast<uint16_t>(bits | 1) : bits;
}

// Codes that span −8…7 and the like have mean −1/2; a scale of either sign evens that out over the
// blocks of a row.
float sign(uint32_t word) {
  return word & 0x10000 ? -1.0f : 1.0f;
}

// Root mean square of codes spread evenly over 16, 32, 64 and 255 values around their middle, and
// of sub-scales spread over 32…63 and ±(64…127).
constexpr float kRms16 = 4.61f, kRms32 = 9.23f, kRms64 = 18.47f, kRms255 = 73.6f;
constexpr float kRmsScale6 = 48.4f, kRmsScale8 = 97.3f;
// The same of 4 codes around their middle, of -4…3, of the two tables, and of sub-scales spread
// over 8…15 and ±(16…31).
constexpr float kRms4 = 1.118f, kRms8 = 2.345f, kRmsIQ4 = 67.44f, kRmsMXFP4 = 5.852f;
constexpr float kRmsScale4 = 11.73f, kRmsScaleSigned6 = 23.95f;

// One overload per format: a block from its own random words (kWords of them).
template <typename Block>
constexpr int kWords = 0;
template <>
constexpr int kWords<BlockQ4_0> = 5;
template <>
constexpr int kWords<BlockQ4_1> = 5;
template <>
constexpr int kWords<BlockQ5_0> = 6;
template <>
constexpr int kWords<BlockQ5_1> = 6;
template <>
constexpr int kWords<BlockQ8_0> = 9;
template <>
constexpr int kWords<BlockIQ4_NL> = 5;
template <>
constexpr int kWords<BlockMXFP4> = 5;
template <>
constexpr int kWords<BlockQ2_K> = 21;
template <>
constexpr int kWords<BlockQ3_K> = 29;
template <>
constexpr int kWords<BlockQ4_K> = 35;
template <>
constexpr int kWords<BlockQ5_K> = 43;
template <>
constexpr int kWords<BlockQ6_K> = 53;
template <>
constexpr int kWords<BlockIQ4_XS> = 35;

void make(const uint32_t* w, float spread, BlockQ4_0& b) {
  b.d = scale_bits(sign(w[4]) * jitter(w[4]) * (spread / kRms16));
  std::memcpy(b.qs, w, 16);
}
void make(const uint32_t* w, float spread, BlockQ4_1& b) {
  const float d = jitter(w[4]) * (spread / kRms16);
  b.d = scale_bits(d);
  b.m = scale_bits(-7.5f * d);
  std::memcpy(b.qs, w, 16);
}
void make(const uint32_t* w, float spread, BlockQ5_0& b) {
  b.d = scale_bits(sign(w[5]) * jitter(w[5]) * (spread / kRms32));
  std::memcpy(b.qs, w, 16);
  std::memcpy(b.qh, w + 4, 4);
}
void make(const uint32_t* w, float spread, BlockQ5_1& b) {
  const float d = jitter(w[5]) * (spread / kRms32);
  b.d = scale_bits(d);
  b.m = scale_bits(-15.5f * d);
  std::memcpy(b.qs, w, 16);
  std::memcpy(b.qh, w + 4, 4);
}
void make(const uint32_t* w, float spread, BlockQ8_0& b) {
  b.d = scale_bits(jitter(w[8]) * (spread / kRms255));
  std::memcpy(b.qs, w, 32);
  // No quantiser writes −128.
  for (int8_t& q : b.qs) q = q == -128 ? int8_t{0} : q;
}

void make(const uint32_t* w, float spread, BlockIQ4_NL& b) {
  b.d = scale_bits(sign(w[4]) * jitter(w[4]) * (spread / kRmsIQ4));
  std::memcpy(b.qs, w, 16);
}
void make(const uint32_t* w, float spread, BlockMXFP4& b) {
  // The wanted scale lies between two powers of two; each is drawn as often as gives its square.
  int above = 0;
  const float part = std::frexp(spread / kRmsMXFP4, &above);  // 1/2 … 1 of 2^above
  const auto half_share = static_cast<double>((1.0f - part * part) / 0.75f);
  const bool half = static_cast<double>(w[4]) * 0x1p-32 < half_share;
  b.e = static_cast<uint8_t>(std::clamp(above - static_cast<int>(half) + 128, 0, 254));
  std::memcpy(b.qs, w, 16);
}

// Sub-scales ±(16…31), of eight random bits each.
template <typename Block>
void make_signed_scales(const uint32_t* w, int n, Block& b) {
  std::memset(&b, 0, sizeof(Block));
  for (int j = 0; j < n; ++j) {
    const uint32_t random = w[j / 4] >> (j % 4 * 8);
    const int magnitude = 16 + static_cast<int>(random & 15);
    set_sub_scale(b, j, random & 16 ? -magnitude : magnitude);
  }
}
void make(const uint32_t* w, float spread, BlockQ3_K& b) {
  make_signed_scales(w + 24, 16, b);
  std::memcpy(b.hmask, w, 32);
  std::memcpy(b.qs, w + 8, 64);
  b.d = scale_bits(jitter(w[28]) * (spread / (kRmsScaleSigned6 * kRms8)));
}
void make(const uint32_t* w, float spread, BlockIQ4_XS& b) {
  make_signed_scales(w + 32, 8, b);
  std::memcpy(b.qs, w, 128);
  b.d = scale_bits(jitter(w[34]) * (spread / (kRmsScaleSigned6 * kRmsIQ4)));
}

void make(const uint32_t* w, float spread, BlockQ2_K& b) {
  const float d = jitter(w[20]) * (spread / (kRmsScale4 * kRms4));
  for (int j = 0; j < 16; ++j) {  // minimums as those of Q4_K below
    const uint32_t random = w[16 + j / 4] >> (j % 4 * 8);
    const int scale = 8 + static_cast<int>(random & 7);
    const int step = static_cast<int>(random >> 3 & 7) % 3 - 1;
    b.scales[j] = static_cast<uint8_t>(scale | std::min(15, scale + step) << 4);
  }
  std::memcpy(b.qs, w, 64);
  b.d = scale_bits(d);
  b.dmin = scale_bits(1.5f * d);
}

// Minimums follow the scales, so that each sub-block is centred on 0, give or take one step.
template <typename Block>
void make_scales(const uint32_t* w, float d, float middle, Block& b) {
  ScaleMin pairs[8];
  for (int j = 0; j < 8; ++j) {
    const uint32_t random = w[j / 4] >> (j % 4 * 8);
    const int scale = 32 + static_cast<int>(random & 31);
    const int step = static_cast<int>(random >> 5 & 7) % 3 - 1;
    pairs[j] = {static_cast<uint8_t>(scale), static_cast<uint8_t>(std::min(63, scale + step))};
  }
  const auto packed = pack_scale_min_k(pairs);
  std::memcpy(b.scales, packed.data(), packed.size());
  b.d = scale_bits(d);
  b.dmin = scale_bits(middle * d);
}
void make(const uint32_t* w, float spread, BlockQ4_K& b) {
  make_scales(w + 32, jitter(w[34]) * (spread / (kRmsScale6 * kRms16)), 7.5f, b);
  std::memcpy(b.qs, w, 128);
}
void make(const uint32_t* w, float spread, BlockQ5_K& b) {
  make_scales(w + 40, jitter(w[42]) * (spread / (kRmsScale6 * kRms32)), 15.5f, b);
  std::memcpy(b.qs, w, 128);
  std::memcpy(b.qh, w + 32, 32);
}
void make(const uint32_t* w, float spread, BlockQ6_K& b) {
  std::memcpy(b.ql, w, 128);
  std::memcpy(b.qh, w + 32, 64);
  for (int j = 0; j < 16; ++j) {
    const uint32_t random = w[48 + j / 4] >> (j % 4 * 8);
    const int magnitude = 64 + static_cast<int>(random & 63);
    b.scales[j] = static_cast<int8_t>(random & 64 ? -magnitude : magnitude);
  }
  b.d = scale_bits(jitter(w[52]) * (spread / (kRmsScale8 * kRms64)));
}

// A uniform of variance 1 has the half-width sqrt(3).
float uniform(uint32_t word, float spread) {
  return static_cast<float>(static_cast<int32_t>(word)) * (0x1p-31f * 1.7320508f * spread);
}

template <typename Block>
void fill_blocks(uint64_t seed, uint64_t stream, float spread, std::span<std::byte> out) {
  // Blocks go by chunks of 64, so that every chunk begins at a whole counter.
  constexpr size_t kChunk = 64;
  std::array<uint32_t, kChunk * kWords<Block>> words;
  const size_t n = out.size() / sizeof(Block);
  for (size_t first = 0; first < n; first += kChunk) {
    random_words(seed, stream, first * kWords<Block> / 4, words);
    const size_t end = std::min(n, first + kChunk);
    for (size_t i = first; i < end; ++i) {
      Block block;
      make(words.data() + (i - first) * kWords<Block>, spread, block);
      std::memcpy(out.data() + i * sizeof(Block), &block, sizeof(Block));
    }
  }
}

template <typename Make>
void fill_floats(uint64_t seed, uint64_t stream, std::span<std::byte> out, Make make_float) {
  constexpr size_t kChunk = 1024;
  std::array<uint32_t, kChunk> words;
  const size_t n = out.size() / sizeof(float);
  for (size_t first = 0; first < n; first += kChunk) {
    random_words(seed, stream, first / 4, words);
    const size_t end = std::min(n, first + kChunk);
    for (size_t i = first; i < end; ++i) {
      const float value = make_float(words[i - first]);
      std::memcpy(out.data() + i * sizeof(float), &value, sizeof(float));
    }
  }
}

// 16-bit elements, two from a word, by a table of all 65536: rounding each would take longer than
// drawing it.
template <typename Round>
void fill_halves(uint64_t seed, uint64_t stream, float spread, std::span<std::byte> out,
                 Round round) {
  std::vector<uint16_t> table(65536);
  for (uint32_t i = 0; i < 65536; ++i) table[i] = round(uniform(i << 16 | 0x8000, spread));
  constexpr size_t kChunk = 2048;
  std::array<uint32_t, kChunk / 2> words;
  const size_t n = out.size() / 2;
  for (size_t first = 0; first < n; first += kChunk) {
    random_words(seed, stream, first / 8, words);
    const size_t end = std::min(n, first + kChunk);
    for (size_t i = first; i < end; ++i) {
      const uint16_t value = table[words[(i - first) / 2] >> (i % 2 * 16) & 0xFFFF];
      std::memcpy(out.data() + i * 2, &value, 2);
    }
  }
}

}  // namespace

void random_words(uint64_t seed, uint64_t stream, uint64_t first_counter,
                  std::span<uint32_t> words) {
  uint32_t lanes[4 * kLanes];
  for (size_t done = 0; done < words.size(); done += 4 * kLanes) {
    philox_lanes(seed, stream, first_counter + done / 4, lanes);
    const size_t count = std::min<size_t>(4 * kLanes, words.size() - done);
    std::memcpy(words.data() + done, lanes, count * sizeof(uint32_t));
  }
}

uint64_t stream_of(std::string_view tensor_name) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (const char letter : tensor_name) {
    hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001B3u;
  }
  return hash;
}

void fill_weights(TensorType type, uint64_t seed, uint64_t stream, float spread,
                  std::span<std::byte> out) {
  switch (type) {
    case TensorType::f32:
      return fill_floats(seed, stream, out, [&](uint32_t word) { return uniform(word, spread); });
    case TensorType::f16:
      return fill_halves(seed, stream, spread, out, [](float value) { return f32_to_f16(value); });
    case TensorType::bf16:
      return fill_halves(seed, stream, spread, out, [](float value) { return f32_to_bf16(value); });
    case TensorType::q4_0:
      return fill_blocks<BlockQ4_0>(seed, stream, spread, out);
    case TensorType::q4_1:
      return fill_blocks<BlockQ4_1>(seed, stream, spread, out);
    case TensorType::q5_0:
      return fill_blocks<BlockQ5_0>(seed, stream, spread, out);
    case TensorType::q5_1:
      return fill_blocks<BlockQ5_1>(seed, stream, spread, out);
    case TensorType::q8_0:
      return fill_blocks<BlockQ8_0>(seed, stream, spread, out);
    case TensorType::q2_k:
      return fill_blocks<BlockQ2_K>(seed, stream, spread, out);
    case TensorType::q3_k:
      return fill_blocks<BlockQ3_K>(seed, stream, spread, out);
    case TensorType::q4_k:
      return fill_blocks<BlockQ4_K>(seed, stream, spread, out);
    case TensorType::q5_k:
      return fill_blocks<BlockQ5_K>(seed, stream, spread, out);
    case TensorType::q6_k:
      return fill_blocks<BlockQ6_K>(seed, stream, spread, out);
    case TensorType::iq4_nl:
      return fill_blocks<BlockIQ4_NL>(seed, stream, spread, out);
    case TensorType::iq4_xs:
      return fill_blocks<BlockIQ4_XS>(seed, stream, spread, out);
    case TensorType::mxfp4:
      return fill_blocks<BlockMXFP4>(seed, stream, spread, out);
    default:
      return;
  }
}

void fill_norm(uint64_t seed, uint64_t stream, float mean, std::span<std::byte> out) {
  fill_floats(seed, stream, out, [mean](uint32_t word) {
    return mean * (1.0f + static_cast<float>(static_cast<int32_t>(word)) * (0x1p-31f * 0.1f));
  });
}

}  // namespace lockstep::synth
