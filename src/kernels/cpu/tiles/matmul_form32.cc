// Products of types with one scale for every 32 elements: sixteen output columns side by side, each
// in the law's own order, for up to kRows rows of the pass at a time.
#include "kernels/cpu/tiles/formats32.h"
#include "kernels/cpu/tiles/matmul_forms.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

template <typename Format, int R>
struct Form32 {
  static constexpr int kTiles = R == kRows ? Simd::kTiles : 1;
  // T tiles side by side, tile_bytes apart.
  template <int T>
  static void run(const std::byte* in, int64_t tile_bytes, const Rows<R>& x, int64_t n_in,
                  Lanes<R>* lanes) {
    const int64_t n_blocks = n_in / 32;
    for (int64_t b0 = 0; b0 < n_blocks; b0 += tiles::kBlocksPerSegment) {
      const int64_t count = smaller(tiles::kBlocksPerSegment, n_blocks - b0);
      const std::byte* codes = in + tiles::factor_bytes(count, Format::kFactorBytes);
      Float acc[T][R];
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) {
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) acc[t][r] = Simd::zero();
      }
      for (int64_t b = 0; b < count; ++b, codes += Format::kCodeBytes) {
        const int64_t at = (b0 + b) * x.rows;
        Int isum[T][R];
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const Int start = Format::start(x.starts + at + r);
#pragma GCC unroll 2
          for (int t = 0; t < T; ++t) isum[t][r] = start;
        }
        Format::template dots<R, T>(codes, tile_bytes, x.far, x.q + 32 * R * (b0 + b), isum);
#pragma GCC unroll 2
        for (int t = 0; t < T; ++t) {
          const Float d = Format::d(in + t * tile_bytes, b);
#pragma GCC unroll 8
          for (int r = 0; r < R; ++r) {
            acc[t][r] = Simd::fma(Simd::to_float(isum[t][r]),
                                  Simd::mul(d, Simd::broadcast(x.d + at + r)), acc[t][r]);
          }
          if constexpr (Format::kHasMin) {
            const Float m = Simd::load_f16(in + t * tile_bytes + 32 * (count + b));
#pragma GCC unroll 8
            for (int r = 0; r < R; ++r) {
              acc[t][r] = Simd::fma(m, Simd::broadcast(x.d_sums + at + r), acc[t][r]);
            }
          }
        }
      }
#pragma GCC unroll 2
      for (int t = 0; t < T; ++t) lanes[t].add(b0 / tiles::kBlocksPerSegment, acc[t]);
      in = codes;
    }
  }
};

}  // namespace

void matmul_form32(const MatmulQuantizedArgs& args, Range items) {
  switch (args.weight->type) {
    case TensorType::q4_0:
      return product<Form32, Q4_0>(args, items);
    case TensorType::q4_1:
      return product<Form32, Q4_1>(args, items);
    case TensorType::q5_0:
      return product<Form32, Q5_0>(args, items);
    case TensorType::q5_1:
      return product<Form32, Q5_1>(args, items);
    case TensorType::q8_0:
      return product<Form32, Q8_0>(args, items);
    case TensorType::iq4_nl:
      return product<Form32, IQ4_NL>(args, items);
    case TensorType::mxfp4:
      return product<Form32, MXFP4>(args, items);
    default:
      __builtin_trap();  // matmul_quantized.cc asks for these types alone
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
