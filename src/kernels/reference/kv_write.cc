#include "kernels/ops/kv_write.h"

#include "kernels/math/half.h"
#include "kernels/reference/block_int8.h"
#include "kernels/reference/reference.h"

namespace lockstep::kernels::LOCKSTEP_ISA_NS {
namespace {

// A block of q4_0: 16 bytes of codes after the factor. True on a fault: d = 0, every value 0.
bool write_q4_0(const float* x, std::byte* out) {
  int32_t most = 0;
  float v = 0.0f;  // the first element of greatest magnitude, with its sign
  for (int i = 0; i < 32; ++i) {
    const int32_t magnitude = load<int32_t>(x + i) & 0x7FFFFFFF;
    if (magnitude > most) {
      most = magnitude;
      v = x[i];
    }
  }
  const float greatest = __builtin_bit_cast(float, most);
  const float d = v / -8.0f;
  uint16_t stored = math::f32_to_f16(d);
  const bool fault = is_non_finite(greatest) || (stored & 0x7C00u) == 0x7C00u;
  if (fault || greatest < 0x1p-100f) {
    stored = 0;
    for (int i = 0; i < 16; ++i) out[2 + i] = std::byte{0x88};
  } else {
    const float r = 1.0f / d;
    const auto code = [r](float value) {
      return smaller(15, static_cast<int32_t>(value * r + 8.5f));
    };
    for (int i = 0; i < 16; ++i) {
      out[2 + i] = static_cast<std::byte>(code(x[i]) | code(x[i + 16]) << 4);
    }
  }
  __builtin_memcpy(out, &stored, 2);
  return fault;
}

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
    case KvType::q4_0:
      for (int64_t i = 0; i < head_dim; i += 32, out += 18) fault |= write_q4_0(x + i, out);
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
