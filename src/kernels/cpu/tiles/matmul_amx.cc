// Products of many rows with AMX: integer dots of sixteen rows by sixteen columns in one
// instruction, from the same packed tiles and in the law's order of additions. What is left to
// AVX-512 is scaling the sums. Passes of few rows, where memory is slower than arithmetic, go to
// the AVX-512 kernels.
#include "kernels/cpu/tiles/amx_codes.h"
#include "kernels/cpu/tiles/amx_table.h"

namespace lockstep::kernels {

namespace avx512 {
void matmul_quantized(const MatmulQuantizedArgs& args, Range items);
}

namespace LOCKSTEP_ISA_NS {
namespace {

// Tile registers' shapes (Intel SDM, LDTILECFG).
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
constexpr int kSums = 0, kMoreSums = 1, kRowsTile = 2, kCodesTile = 3, kMoreCodes = 4;

// Around every call: a process that leaves tiles in use pays for them at every switch. (No object
// with a destructor: these files must not need the exception handling that all files share.)
inline void use_tiles(const TileConfig& config) {
  asm volatile("ldtilecfg %0" ::"m"(config) : "memory");
}
inline void leave_tiles() {
  asm volatile("tilerelease" ::: "memory");
}

// The compilers' own functions take literal register numbers alone, and GCC's don't say that they
// read and write memory.
template <int tile>
inline void load_tile(const void* rows, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(rows), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline void store_tile_rows(void* rows, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(rows), "r"(stride), "i"(tile) : "memory");
}
template <int tile>
inline void clear_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(tile));
}
// sums += rows · codes, signed bytes
template <int sums, int rows, int codes>
inline void dot_tile() {
  asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(sums), "i"(rows), "i"(codes));
}

constexpr int R = 16;  // rows of a group: one tile register of sums is 16 rows by 16 columns

// Depth: elements of K in one product.
TileConfig config_of(int64_t depth) {
  TileConfig c;
  for (const int i : {kSums, kMoreSums, kRowsTile, kCodesTile, kMoreCodes}) {
    c.rows[i] = R;
    c.row_bytes[i] = 64;
  }
  c.row_bytes[kRowsTile] = static_cast<uint16_t>(depth);
  c.rows[kCodesTile] = c.rows[kMoreCodes] = static_cast<uint8_t>(depth / 4);
  return c;
}

// Lanes of the law for groups of rows, in memory: [group][lane][row of the group][column]. A
// quarter of a megabyte, of the megabytes of L2 that cores with AMX have.
constexpr int kLanesOfLaw = 8;
constexpr int64_t kMaxRows = 512;
constexpr int64_t kLaneBytes = kMaxRows * kLanesOfLaw * 64;

struct LaneStore {
  float* lanes;  // kLaneBytes

  float* at(int64_t group, int64_t lane) const {
    return lanes + (group * kLanesOfLaw + lane) * R * 16;
  }
  // The first segment of a lane is added to +0.
  void add(int64_t group, int64_t segment, const Float* acc) const {
    float* to = at(group, segment % kLanesOfLaw);
    const bool first = segment < kLanesOfLaw;
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
      const Float had = first ? Simd::zero() : Simd::load_floats(to + 16 * r);
      Simd::store(to + 16 * r, Simd::add(had, acc[r]));
    }
  }
  Float sum(int64_t group, int r, int64_t segments) const {
    const auto lane = [&](int i) {
      return i < segments ? Simd::load_floats(at(group, i) + 16 * r) : Simd::zero();
    };
    const auto pair = [&](int i) { return Simd::add(lane(i), lane(i + 1)); };
    return Simd::add(Simd::add(pair(0), pair(2)), Simd::add(pair(4), pair(6)));
  }
};

// Rows in groups of R. The last group ends with the last row; rows that it shares with the group
// before come out twice, with the same bits.
struct Groups {
  Range rows;
  int64_t count() const { return (rows.end - rows.begin + R - 1) / R; }
  int64_t first(int64_t group) const { return smaller(rows.begin + group * R, rows.end - R); }
};

void store_rows(const MatmulQuantizedArgs& args, int64_t tile, int64_t first_row,
                const LaneStore& lanes, int64_t group, int64_t segments) {
  const int64_t n = tile * tiles::kColumns, n_out = args.weight->n_out;
  const int64_t columns = smaller(tiles::kColumns, n_out - n);
  float* out = args.out + first_row * n_out + n;
  for (int r = 0; r < R; ++r, out += n_out) {
    Float y = lanes.sum(group, r, segments);
    if (args.bias) y = Simd::add(y, Simd::load_columns(args.bias + n, columns));
    Simd::store_columns(out, y, columns);
  }
}

// Form 32. The sums of a block have to be scaled before the next block's are added, so a product is
// 32 elements deep, and costs as much for eight rows as for sixteen: most of it is the way out of
// the tile register.
template <typename Format>
struct AmxForm32 {
  static constexpr int64_t kDepth = 32;

  // Sums of block b are on their way while those of the blocks before are scaled.
  static constexpr int kAheadBlocks = 2, kRing = 4;

  static void dots(const int8_t* q, int64_t stride, const std::byte* codes, int32_t* sums) {
    load_tile<kRowsTile>(q, stride);
    load_tile<kCodesTile>(codes, 64);
    clear_tile<kSums>();
    dot_tile<kSums, kRowsTile, kCodesTile>();
    store_tile_rows<kSums>(sums, 64);
  }

  static void run(const MatmulQuantizedArgs& args, int64_t tile, int64_t tile_bytes,
                  const Groups& groups, const LaneStore& lanes) {
    const int64_t n_in = args.weight->n_in, n_blocks = n_in / 32;
    const std::byte* in = args.packed + tile * tile_bytes;
    alignas(64) std::byte codes[tiles::kBlocksPerSegment * tiles::kCodes8];
    alignas(64) int32_t sums[kRing][R * 16];
    for (int64_t b0 = 0; b0 < n_blocks; b0 += tiles::kBlocksPerSegment) {
      const int64_t count = smaller(tiles::kBlocksPerSegment, n_blocks - b0);
      const std::byte* packed_codes = in + tiles::factor_bytes(count, Format::kFactorBytes);
      for (int64_t b = 0; b < count; ++b) {
        Block<Format>::unpack(packed_codes + b * Format::kCodeBytes, codes + 512 * b);
      }
      // Blocks of all groups in one line, so that the lead is kept from group to group.
      const int64_t all = groups.count() * count;
      int64_t asked = 0, asked_group = 0, asked_block = 0;
      const auto ask = [&] {
        if (asked == all) return;
        dots(args.x.q + groups.first(asked_group) * n_in + 32 * (b0 + asked_block), n_in,
             codes + 512 * asked_block, sums[asked % kRing]);
        ++asked;
        if (++asked_block == count) asked_block = 0, ++asked_group;
      };
      for (int i = 0; i < kAheadBlocks; ++i) ask();
      int64_t done = 0;
      for (int64_t group = 0; group < groups.count(); ++group) {
        const int64_t row = groups.first(group);
        Float acc[R];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) acc[r] = Simd::zero();
        for (int64_t b = 0; b < count; ++b, ++done) {
          ask();
          const int32_t* s = sums[done % kRing];
          const float* dx = args.x.d + (b0 + b) * args.rows + row;
          const float* d_sums = args.x.d_sums + (b0 + b) * args.rows + row;
          const Float d = Format::d(in, b);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            const Float sum = Simd::to_float(_mm512_load_si512(s + 16 * r));
            acc[r] = Simd::fma(sum, Simd::mul(d, Simd::broadcast(dx + r)), acc[r]);
          }
          if constexpr (Format::kHasMin) {
            const Float m = Simd::load_f16(in + 32 * (count + b));
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
              acc[r] = Simd::fma(m, Simd::broadcast(d_sums + r), acc[r]);
            }
          }
        }
        lanes.add(group, b0 / tiles::kBlocksPerSegment, acc);
      }
      in = packed_codes + count * Format::kCodeBytes;
    }
  }
};

// Form 256. The scales are in the codes (amx_codes.h), so that a superblock is one sum of each
// digit.
template <typename Format>
struct AmxForm256 {
  static constexpr int64_t kDepth = 64;
  static constexpr int kDigits = Superblock<Format>::kDigits;

  static void dots(const int8_t* q, int64_t stride, const Digits& digits, int32_t* sums) {
    clear_tile<kSums>();
    clear_tile<kMoreSums>();
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      load_tile<kRowsTile>(q + 64 * i, stride);
      load_tile<kCodesTile>(digits.low + 1024 * i, 64);
      dot_tile<kSums, kRowsTile, kCodesTile>();
      if constexpr (kDigits == 2) {
        load_tile<kMoreCodes>(digits.high + 1024 * i, 64);
        dot_tile<kMoreSums, kRowsTile, kMoreCodes>();
      }
    }
    store_tile_rows<kSums>(sums, 64);
    if constexpr (kDigits == 2) store_tile_rows<kMoreSums>(sums + 16 * R, 64);
  }

  static void run(const MatmulQuantizedArgs& args, int64_t tile, int64_t tile_bytes,
                  const Groups& groups, const LaneStore& lanes) {
    const int64_t n_in = args.weight->n_in;
    const std::byte* in = args.packed + tile * tile_bytes;
    Digits digits;
    alignas(64) int32_t sums[2][2 * R * 16];
    for (int64_t s = 0; s < n_in / 256; ++s, in += Format::kBytes) {
      Int mins[8];
      Superblock<Format>::unpack(in, digits, mins);
      const Float d = Format::d(in), dmin = Format::dmin(in);
      const int8_t* q = args.x.q + 256 * s;
      dots(q + groups.first(0) * n_in, n_in, digits, sums[0]);
      for (int64_t group = 0; group < groups.count(); ++group) {
        // The next group's dots are on their way while this one's are scaled.
        if (group + 1 < groups.count()) {
          dots(q + groups.first(group + 1) * n_in, n_in, digits, sums[(group + 1) % 2]);
        }
        const int32_t* low = sums[group % 2];
        const int64_t row = groups.first(group);
        Float acc[R];
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          Int t = _mm512_load_si512(low + 16 * r);
          if constexpr (kDigits == 2) {
            const Int high = _mm512_load_si512(low + 16 * (R + r));
            t = Simd::add_int(t, Simd::shift_left<7>(high));
          }
          const Float dx = Simd::broadcast(args.x.d + s * args.rows + row + r);
          acc[r] = Simd::mul(Simd::to_float(t), Simd::mul(d, dx));
          if constexpr (Format::kHasMin) {
            Int minus_u = Simd::zero_int();
#pragma GCC unroll 8
            for (int j = 0; j < 8; ++j) {
              minus_u = Simd::dot_pairs(minus_u, mins[j],
                                        args.x.sums + 2 * ((8 * s + j) * args.rows + row + r));
            }
            acc[r] = Simd::fma(Simd::to_float(minus_u), Simd::mul(dmin, dx), acc[r]);
          }
        }
        lanes.add(group, s, acc);
      }
    }
  }
};

template <typename Form>
void product_amx(const MatmulQuantizedArgs& args, Range items) {
  const int64_t tile_bytes = tiles::packed_bytes(*args.weight) / args.items();
  const int64_t segments = (args.weight->n_in + 255) / 256;
  alignas(64) float memory[kLaneBytes / sizeof(float)];
  const LaneStore lanes{memory};
  const TileConfig config = config_of(Form::kDepth);
  use_tiles(config);
  for (int64_t tile = items.begin; tile < items.end; ++tile) {
    for (int64_t first = 0; first < args.rows; first += kMaxRows) {
      // A remainder too short for a group takes rows of the one before along.
      const Groups groups{{smaller(first, args.rows - R), smaller(args.rows, first + kMaxRows)}};
      Form::run(args, tile, tile_bytes, groups, lanes);
      for (int64_t group = 0; group < groups.count(); ++group) {
        store_rows(args, tile, groups.first(group), lanes, group, segments);
      }
    }
  }
  leave_tiles();
}

// From how many rows on: below, unpacking costs more than it brings.
constexpr int64_t kFewestRows32 = 16, kFewestRows256 = 48;

bool many(ActivationForm form, int64_t rows) {
  return rows >= (form == ActivationForm::q32 ? kFewestRows32 : kFewestRows256);
}

}  // namespace

int64_t rows_together(ActivationForm form, int64_t rows) {
  return many(form, rows) ? 1 : LOCKSTEP_ROWS_TOGETHER;
}

void matmul_quantized(const MatmulQuantizedArgs& args, Range items) {
  if (!many(activation_form(args.weight->type), args.rows)) {
    return avx512::matmul_quantized(args, items);
  }
  switch (args.weight->type) {
    case TensorType::q4_0:
      return product_amx<AmxForm32<Q4_0>>(args, items);
    case TensorType::q4_1:
      return product_amx<AmxForm32<Q4_1>>(args, items);
    case TensorType::q5_0:
      return product_amx<AmxForm32<Q5_0>>(args, items);
    case TensorType::q5_1:
      return product_amx<AmxForm32<Q5_1>>(args, items);
    case TensorType::q8_0:
      return product_amx<AmxForm32<Q8_0>>(args, items);
    case TensorType::iq4_nl:
      return product_amx<AmxForm32<IQ4_NL>>(args, items);
    case TensorType::mxfp4:
      return product_amx<AmxForm32<MXFP4>>(args, items);
    case TensorType::q2_k:
      return product_amx<AmxForm256<Q2_K>>(args, items);
    case TensorType::q3_k:
      return product_amx<AmxForm256<Q3_K>>(args, items);
    case TensorType::q4_k:
      return product_amx<AmxForm256<Q45_K<false>>>(args, items);
    case TensorType::q5_k:
      return product_amx<AmxForm256<Q45_K<true>>>(args, items);
    case TensorType::q6_k:
      return product_amx<AmxForm256<Q6_K>>(args, items);
    case TensorType::iq4_xs:
      return product_amx<AmxForm256<IQ4_XS>>(args, items);
    default:
      __builtin_trap();  // the executor asks activation_form first
  }
}

}  // namespace LOCKSTEP_ISA_NS
}  // namespace lockstep::kernels
