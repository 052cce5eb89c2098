#include "kernels/ops/matmul_float.h"

#include "kernels/math/half.h"
#include "kernels/reference/lanes16.h"
#include "kernels/reference/reference.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

constexpr int64_t kRowsTogether = 16;
constexpr int64_t kDecoded = 512;  // elements converted at a time; a multiple of the 16 lanes

struct F32 {
  static constexpr int64_t kBytes = 4;
  static float value(const std::byte* p) { return load<float>(p); }
};
struct F16 {
  static constexpr int64_t kBytes = 2;
  static float value(const std::byte* p) { return math::f16_to_f32(load<uint16_t>(p)); }
};
struct BF16 {
  static constexpr int64_t kBytes = 2;
  static float value(const std::byte* p) { return math::bf16_to_f32(load<uint16_t>(p)); }
};

template <typename Format>
void product(const MatmulFloatArgs& args, Range items) {
  const Weight& w = *args.weight;
  for (int64_t n = 16 * items.begin; n < smaller(16 * items.end, w.n_out); ++n) {
    const std::byte* weight_row = w.data + n * w.row_bytes;
    for (int64_t first = 0; first < args.rows; first += kRowsTogether) {
      const int64_t rows = smaller(kRowsTogether, args.rows - first);
      float lanes[kRowsTogether][16] = {};
      for (int64_t k0 = 0; k0 < w.n_in; k0 += kDecoded) {
        const int64_t count = smaller(kDecoded, w.n_in - k0);
        alignas(64) float value[kDecoded];
        for (int64_t k = 0; k < count; ++k) {
          value[k] = Format::value(weight_row + (k0 + k) * Format::kBytes);
        }
        for (int64_t r = 0; r < rows; ++r) {
          const float* x = args.x + (first + r) * w.n_in + k0;
          const int64_t whole = count / 16 * 16;
          fma16(value, x, whole, lanes[r]);
          for (int64_t k = whole; k < count; ++k) {
            lanes[r][k % 16] = math::fma_rn(value[k], x[k], lanes[r][k % 16]);
          }
        }
      }
      for (int64_t r = 0; r < rows; ++r) {
        float y = tree16(lanes[r]);
        if (args.bias) y = y + args.bias[n];
        args.out[(first + r) * w.n_out + n] = y;
      }
    }
  }
}

}  // namespace

void matmul_float(const MatmulFloatArgs& args, Range items) {
  switch (args.weight->type) {
    case TensorType::f32:
      return product<F32>(args, items);
    case TensorType::f16:
      return product<F16>(args, items);
    case TensorType::bf16:
      return product<BF16>(args, items);
    default:
      __builtin_trap();  // the executor asks activation_form first
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
