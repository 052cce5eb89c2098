// Products of types with superblocks of 256 elements: sixteen output columns side by side, each in
// the law's own order, for up to kRows rows of the pass at a time.
#include "kernels/cpu/tiles/formats256.h"
#include "kernels/cpu/tiles/matmul_forms.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

template <typename Format, int R>
struct Form256 {
  static constexpr int kTiles = 1;
  template <int T>
  static void run(const std::byte* in, int64_t, const Rows<R>& x, int64_t n_in, Lanes<R>* lanes) {
    static_assert(T == 1);
    for (int64_t s = 0; s < n_in / 256; ++s, in += Format::kBytes) {
      Int t[R], minus_u[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) t[r] = minus_u[r] = Simd::zero_int();
      Format::template sums<R>(in, x, s, t, minus_u);
      const Float d = Format::d(in), dmin = Format::dmin(in);
      Float acc[R];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const Float dx = Simd::broadcast(x.d + s * x.rows + r);
        acc[r] = Simd::mul(Simd::to_float(t[r]), Simd::mul(d, dx));
        if constexpr (Format::kHasMin) {
          acc[r] = Simd::fma(Simd::to_float(minus_u[r]), Simd::mul(dmin, dx), acc[r]);
        }
      }
      lanes->add(s, acc);
    }
  }
};

}  // namespace

void matmul_form256(const MatmulQuantizedArgs& args, Range items) {
  switch (args.weight->type) {
    case TensorType::q2_k:
      return product<Form256, Q2_K>(args, items);
    case TensorType::q3_k:
      return product<Form256, Q3_K>(args, items);
    case TensorType::q4_k:
      return product<Form256, Q45_K<false>>(args, items);
    case TensorType::q5_k:
      return product<Form256, Q45_K<true>>(args, items);
    case TensorType::q6_k:
      return product<Form256, Q6_K>(args, items);
    case TensorType::iq4_xs:
      return product<Form256, IQ4_XS>(args, items);
    default:
      __builtin_trap();  // matmul_quantized.cc asks for these types alone
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
