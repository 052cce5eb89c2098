// Keys and values in their pages: written, and read element by element.
#pragma once

#include "kernels/cuda/device_code.cuh"

namespace lockstep::kernels::cuda {
namespace {

__device__ inline int64_t row_bytes_of(KvType type, int64_t head_dim) {
  switch (type) {
    case KvType::f32:
      return 4 * head_dim;
    case KvType::f16:
      return 2 * head_dim;
    case KvType::q8_0:
      return 34 * (head_dim / 32);
    default:
      return 18 * (head_dim / 32);
  }
}

// 32 elements of q8_0 at out (even address); true on a fault: the block is zero then.
__device__ inline bool write_q8_0(const float* x, std::byte* out) {
  int32_t most = 0;
  for (int i = 0; i < 32; ++i) {
    const auto magnitude = static_cast<int32_t>(math::bits_of(x[i]) & 0x7FFFFFFFu);
    most = magnitude > most ? magnitude : most;
  }
  const float a = math::f32_from_bits(static_cast<uint32_t>(most));
  const bool bad = is_non_finite(a);
  const bool zero = bad || a < 0x1p-100f;
  const uint16_t stored = zero ? uint16_t{0} : math::f32_to_f16(a / 127.0f);
  const bool fault = bad || (stored & 0x7C00u) == 0x7C00u;
  const float r = zero ? 0.0f : 127.0f / a;
  *reinterpret_cast<uint16_t*>(out) = fault ? uint16_t{0} : stored;
  auto* q = reinterpret_cast<int8_t*>(out + 2);
  for (int i = 0; i < 32; ++i) q[i] = zero || fault ? int8_t{0} : math::round_even_i8(x[i] * r);
  return fault;
}

// 32 elements of q4_0, as write_q8_0.
__device__ inline bool write_q4_0(const float* x, std::byte* out) {
  int32_t most = 0;
  float v = 0.0f;  // the first element of greatest magnitude, with its sign
  for (int i = 0; i < 32; ++i) {
    const auto magnitude = static_cast<int32_t>(math::bits_of(x[i]) & 0x7FFFFFFFu);
    if (magnitude > most) {
      most = magnitude;
      v = x[i];
    }
  }
  const float greatest = math::f32_from_bits(static_cast<uint32_t>(most));
  const float d = v / -8.0f;
  const uint16_t stored = math::f32_to_f16(d);
  const bool fault = is_non_finite(greatest) || (stored & 0x7C00u) == 0x7C00u;
  const bool zero = fault || greatest < 0x1p-100f;
  *reinterpret_cast<uint16_t*>(out) = zero ? uint16_t{0} : stored;
  const float r = zero ? 0.0f : 1.0f / d;
  for (int i = 0; i < 16; ++i) {
    int32_t low = 8, high = 8;
    if (!zero) {
      low = static_cast<int32_t>(x[i] * r + 8.5f);
      high = static_cast<int32_t>(x[i + 16] * r + 8.5f);
      low = low < 15 ? low : 15;
      high = high < 15 ? high : 15;
    }
    out[2 + i] = static_cast<std::byte>(low | high << 4);
  }
  return fault;
}

// Elements [i, i + 32) of a row, or i alone in a type without blocks.
__device__ inline bool write_unit(KvType type, const float* x, int64_t i, std::byte* row) {
  switch (type) {
    case KvType::f32: {
      const bool bad = is_non_finite(x[i]);
      reinterpret_cast<float*>(row)[i] = bad ? 0.0f : x[i];
      return bad;
    }
    case KvType::f16: {
      const uint16_t h = math::f32_to_f16(x[i]);
      const bool bad = (h & 0x7C00u) == 0x7C00u;
      reinterpret_cast<uint16_t*>(row)[i] = bad ? uint16_t{0} : h;
      return bad;
    }
    case KvType::q8_0:
      return write_q8_0(x + i, row + i / 32 * 34);
    default:
      return write_q4_0(x + i, row + i / 32 * 18);
  }
}

__device__ inline int64_t unit_elements(KvType type) {
  return type == KvType::q8_0 || type == KvType::q4_0 ? 32 : 1;
}

// A thread has every element at which a unit of K or of V begins.
__global__ void kv_write_kernel(KvWriteDeviceArgs args) {
  after_earlier_launches();
  const DeviceKv& kv = args.kv;
  const int64_t width = static_cast<int64_t>(kv.n_head_kv) * kv.head_dim;
  const int64_t item = thread_of_grid();
  if (item >= args.rows * width) return;
  const int64_t row = item / width, head = item % width / kv.head_dim, i = item % kv.head_dim;
  const int64_t position = args.place->first_position + row;
  const int64_t page = position / kPagePositions;
  const int64_t place = head * kPagePositions + position % kPagePositions;
  const int64_t at = row * width + head * kv.head_dim;
  bool fault = false;
  if (i % unit_elements(kv.k_type) == 0) {
    std::byte* out = kv.k_pages[page] + place * row_bytes_of(kv.k_type, kv.head_dim);
    fault |= write_unit(kv.k_type, args.k + at, i, out);
  }
  if (i % unit_elements(kv.v_type) == 0) {
    std::byte* out = kv.v_pages[page] + place * row_bytes_of(kv.v_type, kv.head_dim);
    fault |= write_unit(kv.v_type, args.v + at, i, out);
  }
  if (fault) set_fault(args.faults, row);
}

void kv_write(const KvWriteDeviceArgs& args, Stream stream) {
  const int64_t items = args.rows * args.kv.n_head_kv * args.kv.head_dim;
  LOCKSTEP_LAUNCH(kv_write_kernel, blocks_for(items, kElementThreads), kElementThreads, 0, stream,
                  args);
}

__device__ inline float kv_value(KvType type, const std::byte* row, int64_t i) {
  switch (type) {
    case KvType::f32:
      return reinterpret_cast<const float*>(row)[i];
    case KvType::f16:
      return half_to_float(reinterpret_cast<const uint16_t*>(row)[i]);
    case KvType::q8_0: {
      const std::byte* block = row + i / 32 * 34;
      const float d = half_to_float(*reinterpret_cast<const uint16_t*>(block));
      return static_cast<float>(reinterpret_cast<const int8_t*>(block + 2)[i % 32]) * d;
    }
    default: {
      const std::byte* block = row + i / 32 * 18;
      const float d = half_to_float(*reinterpret_cast<const uint16_t*>(block));
      const auto byte = static_cast<int>(block[2 + i % 16]);
      const int code = (i % 32 < 16 ? byte & 15 : byte >> 4) - 8;
      return static_cast<float>(code) * d;
    }
  }
}

}  // namespace
}  // namespace lockstep::kernels::cuda
