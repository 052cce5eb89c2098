// The kernels of one CPU instruction set, as a table. Every table gives the same bits: the scalar
// one is the definition (docs/numerics.md), the others are faster builds or versions of it.
#pragma once

#include <span>
#include <string_view>

#include "kernels/ops/add.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/check_logits.h"
#include "kernels/ops/embed.h"
#include "kernels/ops/gated_act.h"
#include "kernels/ops/kv_write.h"
#include "kernels/ops/matmul_float.h"
#include "kernels/ops/matmul_quantized.h"
#include "kernels/ops/quantize_activations.h"
#include "kernels/ops/rms_norm.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/select_rows.h"
#include "kernels/ops/softcap.h"
#include "kernels/types.h"

namespace lockstep::kernels {

// A form of quantised matrices other than the file's, made once at load.
struct Packing {
  // Bytes of the packed matrix; 0: this type is read as the file has it.
  int64_t (*bytes)(const Weight&);
  // Packs tiles [tiles.begin, tiles.end) of 16 columns into `packed`, the 64-byte aligned start of
  // the whole matrix. Different tiles may be packed at once.
  void (*pack)(const Weight&, Range tiles, std::byte* packed);
};

// Each runs items [items.begin, items.end) of its op. Any partition of [0, args.items()) among
// workers, in any order, gives the same bits.
struct CpuKernels {
  const char* isa;
  void (*embed)(const EmbedArgs&, Range items);
  void (*rms_norm)(const RmsNormArgs&, Range items);
  void (*quantize_activations)(const QuantizeActivationsArgs&, Range items);
  // How matmul_quantized wants the q of `rows` rows (ops/quantize_activations.h).
  int64_t (*rows_together)(ActivationForm form, int64_t rows);
  const Packing* packing;  // how it wants a matrix; null: as the file has it
  void (*matmul_quantized)(const MatmulQuantizedArgs&, Range items);
  void (*matmul_float)(const MatmulFloatArgs&, Range items);
  void (*rope)(const RopeArgs&, Range items);
  void (*kv_write)(const KvWriteArgs&, Range items);
  // scratch: attention_scratch_bytes, one per worker.
  void (*attention)(const AttentionArgs&, Range items, std::byte* scratch);
  void (*add)(const AddArgs&, Range items);
  void (*gated_act)(const GatedActArgs&, Range items);
  void (*softcap)(const SoftcapArgs&, Range items);
  void (*select_rows)(const SelectRowsArgs&, Range items);
  void (*check_logits)(const CheckLogitsArgs&, Range items);
};

// All tables of this build, slowest first: "scalar", "scalar-v3", "avx2", "avx512", "amx".
std::span<const CpuKernels* const> all_cpu_kernels();

// Whether this machine has what the table's code needs; if not, missing names the features.
bool cpu_can_run(const CpuKernels& kernels, std::string* missing = nullptr);

// The table named isa, or for "" the fastest this machine can run. Error(bad_use) when there is no
// such table or the CPU lacks what it needs.
const CpuKernels& select_cpu_kernels(std::string_view isa);

}  // namespace lockstep::kernels
