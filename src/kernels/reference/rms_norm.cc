#include "kernels/ops/rms_norm.h"

#include "kernels/math/portable.h"
#include "kernels/reference/reference.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

inline float sum_of_squares(const float* x, int64_t n) {
  alignas(64) float lane[256] = {};
  for (int64_t i = 0; i < n; i += 256) {
    const int64_t count = smaller<int64_t>(256, n - i);
    for (int64_t j = 0; j < count; ++j) lane[j] = math::fma_rn(x[i + j], x[i + j], lane[j]);
  }
  for (int h = 128; h >= 1; h /= 2) {
    for (int i = 0; i < h; ++i) lane[i] = lane[i] + lane[i + h];
  }
  return lane[0];
}

}  // namespace

void rms_norm(const RmsNormArgs& args, Range items) {
  const int64_t groups = args.width / args.group;
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t row = item / groups;
    const int64_t at = row * args.width + item % groups * args.group;
    const float* x = args.x + at;
    float* y = args.y + at;
    const float ss = sum_of_squares(x, args.group);
    if (is_non_finite(ss)) set_fault(args.faults, row);
    const float r = 1.0f / __builtin_sqrtf(ss / static_cast<float>(args.group) + args.eps);
    for (int64_t i = 0; i < args.group; ++i) y[i] = (x[i] * r) * args.weight[i];
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
