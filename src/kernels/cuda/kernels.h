// The kernels of a CUDA device, as a table: launches that a backend makes one after the other on
// the device's stream. Contracts and Orders are those of ops/*.h; what is here is how the arguments
// lie in device memory. Every pointer is a device pointer.
#pragma once

#include <cstdint>

#include "kernels/types.h"

namespace lockstep::kernels::cuda {

// Threads and blocks hold a head of at most this many elements (attention).
inline constexpr int64_t kMaxHeadDim = 512;

// Rows quantised to int8, row by row: q [rows][n]; d [rows][n ÷ block]; form q32: d_sums
// [rows][n ÷ 32] = d·float(Σ q); form q256: sums [rows][n ÷ 16] = Σ q.
struct DeviceActivations {
  int8_t* q = nullptr;
  float* d = nullptr;
  float* d_sums = nullptr;
  int16_t* sums = nullptr;
};

struct QuantizeArgs {
  const float* x = nullptr;
  int64_t rows = 0, n = 0;
  bool superblocks = false;  // form q256, else q32
  DeviceActivations out;
  uint8_t* faults = nullptr;
};

// A quantised matrix as packing.h lays it out.
struct DeviceMatrix {
  const int8_t* codes = nullptr;   // [n_out][n_in]
  const float* d = nullptr;        // [n_out][n_in ÷ block]
  const float* m = nullptr;        // as d: m_w of q32 types, dmin_w of q256 types; null: none
  const int8_t* scales = nullptr;  // q256: [n_out][n_in ÷ 16]
  const uint8_t* mins = nullptr;   // q256 with m: [n_out][n_in ÷ 16]
};

struct MatmulArgs {
  DeviceMatrix weight;
  int64_t n_in = 0, n_out = 0;
  const float* bias = nullptr;
  DeviceActivations x;
  int64_t rows = 0;
  float* out = nullptr;
  bool superblocks = false;
};

enum class FloatType : uint8_t { f32, f16, bf16 };

struct FloatMatmulArgs {
  const void* weight = nullptr;  // [n_out][n_in] as the file has it
  FloatType type = FloatType::f32;
  int64_t n_in = 0, n_out = 0;
  const float* bias = nullptr;
  const float* x = nullptr;
  int64_t rows = 0;
  float* out = nullptr;
};

struct RmsNormDeviceArgs {
  const float* x = nullptr;
  const float* weight = nullptr;
  float* y = nullptr;
  int64_t rows = 0, width = 0, group = 0;
  float eps = 0.0f;
  uint8_t* faults = nullptr;
};

struct RopeDeviceArgs {
  float* x = nullptr;
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t rows = 0, n_head = 0, head_dim = 0, n_rot = 0;
  bool halves = false;
};

// One layer of one sequence; the page lists are in device memory, and so are the pages.
struct DeviceKv {
  KvType k_type = KvType::f16, v_type = KvType::f16;
  int32_t n_head_kv = 0, head_dim = 0;
  std::byte* const* k_pages = nullptr;
  std::byte* const* v_pages = nullptr;
};

struct KvWriteDeviceArgs {
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t rows = 0, first_position = 0;
  DeviceKv kv;
  uint8_t* faults = nullptr;
};

struct AttentionDeviceArgs {
  const float* q = nullptr;
  float* out = nullptr;
  int64_t rows = 0, first_position = 0;
  int64_t n_head = 0, head_dim = 0;
  float scale = 1.0f, softcap = 0.0f;
  int64_t window = 0;
  DeviceKv kv;
  uint8_t* faults = nullptr;
};

struct AddDeviceArgs {
  const float* a = nullptr;
  const float* b = nullptr;
  float* out = nullptr;
  int64_t n = 0;  // rows·width
};

struct GatedActDeviceArgs {
  const float* gate = nullptr;
  const float* up = nullptr;
  float* out = nullptr;
  int64_t rows = 0, width = 0;
  bool gelu = false;
  uint8_t* faults = nullptr;
};

struct SoftcapDeviceArgs {
  float* x = nullptr;
  int64_t rows = 0, width = 0;
  float cap = 0.0f;
  uint8_t* faults = nullptr;
};

struct SelectRowsDeviceArgs {
  const float* in = nullptr;
  const int64_t* index = nullptr;
  float* out = nullptr;
  int64_t rows = 0, width = 0;
};

struct CheckLogitsDeviceArgs {
  const float* x = nullptr;
  int64_t rows = 0, width = 0;
  uint8_t* faults = nullptr;
};

// Reads n 16-byte words and leaves something that depends on all of them: for read bandwidth.
struct ReadArgs {
  const void* from = nullptr;
  int64_t words = 0;
  uint32_t* sink = nullptr;  // [1]
};

// A stream of the device: cudaStream_t.
using Stream = void*;

// None is called without rows.
struct DeviceKernels {
  void (*quantize)(const QuantizeArgs&, Stream);
  void (*matmul_quantized)(const MatmulArgs&, Stream);
  void (*matmul_float)(const FloatMatmulArgs&, Stream);
  void (*rms_norm)(const RmsNormDeviceArgs&, Stream);
  void (*rope)(const RopeDeviceArgs&, Stream);
  void (*kv_write)(const KvWriteDeviceArgs&, Stream);
  void (*attention)(const AttentionDeviceArgs&, Stream);
  void (*add)(const AddDeviceArgs&, Stream);
  void (*gated_act)(const GatedActDeviceArgs&, Stream);
  void (*softcap)(const SoftcapDeviceArgs&, Stream);
  void (*select_rows)(const SelectRowsDeviceArgs&, Stream);
  void (*check_logits)(const CheckLogitsDeviceArgs&, Stream);
  void (*read)(const ReadArgs&, Stream);
};

}  // namespace lockstep::kernels::cuda
