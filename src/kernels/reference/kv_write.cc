#include "kernels/ops/kv_write.h"

#include "kernels/math/half.h"
#include "kernels/reference/block_int8.h"
#include "kernels/reference/reference.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

// One head's row into the cache; true on a fault.
bool write_row(KvType type, const float* x, int64_t head_dim, std::byte* out) {
  bool fault = false;
  switch (type) {
    case KvType::f32:
      for (int64_t i = 0; i < head_dim; ++i) {
        const bool bad = is_non_finite(x[i]);
        fault |= bad;
        const float value = bad ? 0.0f : x[i];
        __builtin_memcpy(out + 4 * i, &value, 4);
      }
      break;
    case KvType::f16:
      for (int64_t begin = 0; begin < head_dim; begin += 64) {
        const int64_t n = smaller<int64_t>(64, head_dim - begin);
        uint16_t h[64], bad = 0;
        for (int64_t i = 0; i < n; ++i) h[i] = math::f32_to_f16(x[begin + i]);
        for (int64_t i = 0; i < n; ++i)
          bad |= (h[i] & 0x7C00u) == 0x7C00u ? uint16_t{1} : uint16_t{0};
        if (bad) {
          fault = true;
          for (int64_t i = 0; i < n; ++i) h[i] = (h[i] & 0x7C00u) == 0x7C00u ? uint16_t{0} : h[i];
        }
        __builtin_memcpy(out + 2 * begin, h, static_cast<size_t>(2 * n));
      }
      break;
    case KvType::q8_0:
      for (int64_t i = 0; i < head_dim; i += 32, out += 34) {
        const float a = max_magnitude(x + i, 32);
        uint16_t d =
            math::f32_to_f16(quantize_int8(x + i, 32, a, reinterpret_cast<int8_t*>(out + 2)));
        if (is_non_finite(a) || (d & 0x7C00u) == 0x7C00u) {
          fault = true;
          d = 0;
          for (int j = 2; j < 34; ++j) out[j] = std::byte{0};
        }
        __builtin_memcpy(out, &d, 2);
      }
      break;
  }
  return fault;
}

}  // namespace

void kv_write(const KvWriteArgs& args, Range items) {
  const KvLayerView& kv = *args.kv;
  const int64_t k_bytes = kv_row_bytes(kv.k_type, kv.head_dim);
  const int64_t v_bytes = kv_row_bytes(kv.v_type, kv.head_dim);
  for (int64_t item = items.begin; item < items.end; ++item) {
    const int64_t row = item / kv.n_head_kv, head = item % kv.n_head_kv;
    const int64_t position = args.first_position + row;
    const int64_t page = position / kPagePositions;
    const int64_t place = head * kPagePositions + position % kPagePositions;
    const int64_t at = item * kv.head_dim;
    const bool bad_k =
        write_row(kv.k_type, args.k + at, kv.head_dim, kv.k_pages[page] + place * k_bytes);
    const bool bad_v =
        write_row(kv.v_type, args.v + at, kv.head_dim, kv.v_pages[page] + place * v_bytes);
    if (bad_k || bad_v) set_fault(args.faults, row);
  }
}

}  // namespace lockstep::kernels::LOCKSTEP_ISA_NS
