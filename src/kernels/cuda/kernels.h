// The kernels of a CUDA device, as a table: launches that a backend makes one after the other on
// the device's stream. Contracts and Orders are those of ops/*.h; what is here is how the arguments
// lie in device memory. Every pointer is a device pointer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/candidate.h"
#include "kernels/cuda/formats.h"
#include "kernels/types.h"

namespace lockstep::kernels::cuda {

// Threads and blocks hold a head of at most this many elements (attention).
inline constexpr int64_t kMaxHeadDim = 512;

// Rows quantised to int8, each with room for whole segments of 256 elements.
struct DeviceActivations {
  int8_t* q = nullptr;       // activation_bytes, where activation_place says (formats.h)
  float* d = nullptr;        // form q32: [rows][8·segments]; q256: [rows][segments]
  float* d_sums = nullptr;   // q32, as d: d·float(Σ q)
  int8_t* digits = nullptr;  // q256: [rows][segments][2][16]: Σ q of each 16 elements as
                             // low + 128·high, the low ones first
  int64_t first_row = 0;     // a launch that quantises: where its rows begin
};

struct QuantizeArgs {
  const float* x = nullptr;
  int64_t rows = 0, n = 0;
  bool superblocks = false;  // form q256, else q32
  DeviceActivations out;
  uint8_t* faults = nullptr;
};

// Products of one input with up to three quantised matrices of one format, as packing.h packs them.
struct ProductOut {
  const std::byte* packed = nullptr;
  int64_t n_out = 0;
  const float* bias = nullptr;  // null: none
  float* out = nullptr;         // [rows][n_out]
};
inline constexpr int kMostProducts = 3;
struct ProductsArgs {
  Format format = Format::q8_0;
  ProductOut outs[kMostProducts];
  int64_t n_in = 0, rows = 0;
  DeviceActivations x;
  uint32_t table[4] = {};  // Codes::table
  bool wide_d = false;     // has_wide_d
  int processors = 1;      // multiprocessors of the device
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

// A pair of elements that turn together: f radians a position, cosine and sine times `scale` (1: as
// they are). It is of a RopeSpec that has n pairs, the first of them number `first` of all specs'.
struct RotaryPair {
  double f = 0;
  float scale = 1.0f;
  int32_t first = 0, n = 0;
};
struct RotaryRowsArgs {
  const RotaryPair* pairs = nullptr;
  int64_t n_pairs = 0;  // of all specs
  const int64_t* positions = nullptr;
  int64_t rows = 0;
  float* out = nullptr;  // of each spec cosines, then sines [rows][n]
};

// Rows of an embedding table as the file has them, row_bytes apart, to binary32 and scaled.
struct EmbedRowsArgs {
  const std::byte* encoded = nullptr;  // [rows][row_bytes]
  TensorType type = TensorType::f32;
  int64_t rows = 0, width = 0, row_bytes = 0;
  float scale = 1.0f;
  float* out = nullptr;  // [rows][width]
};
// Either may have no rows.
struct InputsArgs {
  RotaryRowsArgs rotary;
  EmbedRowsArgs embed;
  unsigned embed_from = 0;  // the launch's own: its block with the first embedding row
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

// Where a pass's first row stands, in device memory, since a recorded pass is replayed at other
// positions.
struct PassPlace {
  int64_t first_position = 0;
};

struct KvWriteDeviceArgs {
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t rows = 0;
  const PassPlace* place = nullptr;
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

// A row of logits is cut into stretches of equal length, as many as a block has room for.
inline constexpr int kMostStretches = 256;
constexpr int64_t logits_stretch(int64_t width) {
  constexpr int64_t kWhole = 128;
  const int64_t least = (width + kMostStretches - 1) / kMostStretches;
  return (least + kWhole - 1) / kWhole * kWhole;
}
constexpr int64_t logits_stretches(int64_t width) {
  return (width + logits_stretch(width) - 1) / logits_stretch(width);
}
struct CheckLogitsDeviceArgs {
  const float* x = nullptr;
  int64_t rows = 0, width = 0;
  uint8_t* faults = nullptr;
  float* maxima = nullptr;  // [rows][logits_stretches(width)]; null: not wanted
};

// The greatest elements of a row: all that are no less than some bound, in no order. More than
// there is room for are counted alone.
inline constexpr int kGreatestRoom = 512;
struct GreatestLogits {
  int32_t count = 0;
  int32_t unused[3] = {};
  Candidate list[kGreatestRoom];
};
struct GreatestLogitsArgs {
  const float* x = nullptr;       // finite
  const float* maxima = nullptr;  // of check_logits
  int64_t rows = 0, width = 0;
  int64_t wanted = 0;  // the bound is the wanted-th greatest of the maxima, or the least number
  GreatestLogits* out = nullptr;  // [rows]
};

// --- several ops in one launch -------------------------------------------------------------------

// h = source row (+ branch, normed first where it has a norm), then x = norm(h), then x quantised:
// what stands between two products. Each part may be missing.
struct RowChainArgs {
  int64_t rows = 0, width = 0;
  const float* source = nullptr;
  const int64_t* select = nullptr;  // row r is source row select[r]; null: r
  const float* branch = nullptr;
  const float* branch_norm = nullptr;
  float branch_eps = 0.0f;
  uint8_t* branch_faults = nullptr;
  float* h = nullptr;  // may be source when select is null
  const float* norm = nullptr;
  float eps = 0.0f;
  uint8_t* norm_faults = nullptr;
  float* x = nullptr;  // null: only its codes are wanted
  bool forms[2] = {};  // q32, q256
  DeviceActivations out[2];
  uint8_t* out_faults = nullptr;
};

struct ActQuantizeArgs {
  GatedActDeviceArgs act;  // act.out null: only the codes are wanted
  bool superblocks = false;
  DeviceActivations out;
  uint8_t* out_faults = nullptr;
};

// Heads of q, k and v as the products left them: norms, rotation; q goes back to its place, k and v
// to the cache.
struct HeadsArgs {
  float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t rows = 0, n_head = 0, head_dim = 0, n_rot = 0;
  bool halves = false;
  const float* cos = nullptr;
  const float* sin = nullptr;
  const float* q_norm = nullptr;  // null: none
  const float* k_norm = nullptr;
  float q_eps = 0.0f, k_eps = 0.0f;
  const PassPlace* place = nullptr;
  DeviceKv kv;
  uint8_t *q_faults = nullptr, *k_faults = nullptr, *write_faults = nullptr;
};

// Sums over a unit of pages for a query: m, l, then head_dim outputs.
constexpr int64_t partial_floats(int64_t head_dim) {
  return head_dim + 2;
}

// Attention of rows × heads: over units of pages; where these are pages and many, the pages of each
// span; then the merge of what there is.
struct AttentionUnitsArgs {
  const float* q = nullptr;  // heads.k null: turned already, and this pass's k and v are written
  int64_t rows = 0, n_head = 0, head_dim = 0;
  float scale = 1.0f, softcap = 0.0f;
  int64_t window = 0;
  const PassPlace* place = nullptr;
  DeviceKv kv;
  uint8_t* faults = nullptr;
  int64_t unit_pages = 1;     // 1, or kSpanPages
  int64_t units = 0;          // of the page lists' room; those without a visible key do nothing
  float* partials = nullptr;  // [rows][n_head][units][partial_floats]
  HeadsArgs heads;            // else all that `heads` would do; q may stay as it is
  int processors = 1;         // multiprocessors of the device
  // The launch's own choices: queries of a block, and whether its shared memory has room for a
  // page's values beside its keys.
  int queries = 0;
  bool values_apart = false;
};
// Heads that the units' launch turns itself, or by a launch before it.
constexpr bool turns_heads(int64_t unit_pages, int64_t head_dim) {
  return unit_pages == 1 && head_dim <= 256;
}
struct AttentionJoinArgs {
  const float* partials = nullptr;  // of pages: [rows][n_head][pages][partial_floats]
  int64_t rows = 0, n_head = 0, head_dim = 0;
  int64_t window = 0;
  const PassPlace* place = nullptr;
  int64_t pages = 0, spans = 0;
  float* out = nullptr;  // of spans: [rows][n_head][spans][partial_floats]
};
struct AttentionMergeArgs {
  const float* partials = nullptr;  // of the pages of one span, or of spans
  int64_t rows = 0, n_head = 0, head_dim = 0;
  int64_t window = 0;
  const PassPlace* place = nullptr;
  int64_t unit_pages = 1, units = 0;
  float* out = nullptr;  // null: only the codes are wanted
  bool forms[2] = {};    // q32, q256
  DeviceActivations quantized[2];
  uint8_t* out_faults = nullptr;
};

// `rows` stretches of `bytes`, `pitch` bytes apart.
struct FillPlace {
  std::byte* at = nullptr;
  int64_t bytes = 0, pitch = 0, rows = 0;
};
// Sets each place to the byte; the list is in device memory. Places don't overlap, or need not be
// filled in order.
struct FillArgs {
  const FillPlace* places = nullptr;
  int64_t n = 0;
  int value = 0;
};

// Reads n 16-byte words and leaves something that depends on all of them: for read bandwidth.
struct ReadArgs {
  const void* from = nullptr;
  int64_t words = 0;
  uint32_t* sink = nullptr;  // [1]
};

// A stream of the device: cudaStream_t.
using Stream = void*;

// None is called without rows. The launch of one begins when the one before it in the stream has
// ended, whatever it fetches of the weights earlier.
struct DeviceKernels {
  void (*quantize)(const QuantizeArgs&, Stream);
  void (*products)(const ProductsArgs&, Stream);
  void (*matmul_float)(const FloatMatmulArgs&, Stream);
  void (*rms_norm)(const RmsNormDeviceArgs&, Stream);
  void (*inputs)(const InputsArgs&, Stream);
  void (*rope)(const RopeDeviceArgs&, Stream);
  void (*kv_write)(const KvWriteDeviceArgs&, Stream);
  void (*add)(const AddDeviceArgs&, Stream);
  void (*gated_act)(const GatedActDeviceArgs&, Stream);
  void (*softcap)(const SoftcapDeviceArgs&, Stream);
  void (*select_rows)(const SelectRowsDeviceArgs&, Stream);
  void (*check_logits)(const CheckLogitsDeviceArgs&, Stream);
  void (*row_chain)(const RowChainArgs&, Stream);
  void (*act_quantize)(const ActQuantizeArgs&, Stream);
  void (*heads)(const HeadsArgs&, Stream);
  void (*attention_units)(const AttentionUnitsArgs&, Stream);
  void (*attention_join)(const AttentionJoinArgs&, Stream);
  void (*attention_merge)(const AttentionMergeArgs&, Stream);
  void (*greatest_logits)(const GreatestLogitsArgs&, Stream);
  void (*fill)(const FillArgs&, Stream);
  void (*read)(const ReadArgs&, Stream);
};

}  // namespace lockstep::kernels::cuda
