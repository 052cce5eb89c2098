// Runs passes of a graph. A pass is some rows of one or several sequences; nothing about a row's
// result depends on the other rows (contract E1).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/candidate.h"
#include "kernels/graph.h"
#include "kernels/page_memory.h"
#include "kernels/types.h"

namespace lockstep::kernels {

// Consecutive rows of one sequence. Row i is token tokens[i] at position first_position + i; its
// keys and values go to kv[layer] before any row's attention of that layer.
struct PassSegment {
  std::span<const int32_t> tokens;
  int64_t first_position = 0;
  std::span<const KvLayerView> kv;  // one per layer; pages cover first_position + tokens.size()
  int64_t first_logits_row =
      0;  // rows of this segment from here on want logits; tokens.size(): none
};

// A deliberate fault for the negative control of `prove --corrupt`: after op `op` has run, one bit
// of one element of its output (for KvWrite: of the written K or V row) is flipped.
struct Plant {
  int op = -1;            // index in Graph::ops
  int64_t position = -1;  // absolute position of the row (segment 0)
  int64_t element = 0;    // binary32 element of the output row (of several outputs: through them
                          // in order); for KvWrite a byte of the K row (then of the V row),
                          // heads in order
  int bit = 0;            // 0..31 (KvWrite: 0..7)
  bool done = false;      // set by every run: whether this pass applied it
};

struct PassFault {
  int64_t row = -1;  // in the pass
  int op = -1;       // index in Graph::ops
};

struct Pass {
  std::vector<PassSegment> segments;
  Plant* plant = nullptr;  // usually null
  // Above 0: only so many of the greatest logits of each wanted row matter. A backend that finds
  // them where the logits are may leave them in `greatest`, and the rows as they were.
  int64_t greatest_wanted = 0;
  // Results:
  std::span<float> logits;        // [wanted rows][n_vocab], in row order; caller's memory
  std::vector<PassFault> faults;  // at most one per row: the first op that faulted
  // Of each wanted row all logits from some bound on, by ascending id, at least greatest_wanted of
  // them or all there are; none where the row is in `logits`. Empty: all rows are.
  std::vector<std::vector<Candidate>> greatest;
};

// For profiles: called for each op, in order, when its pass has run, with the op's part of the time
// that the pass's phases took. Null is usual.
class OpObserver {
 public:
  virtual ~OpObserver() = default;
  virtual void on_op(int op_index, double milliseconds, int64_t rows) = 0;
};

struct BackendInfo {
  std::string device;  // "cpu", "cuda"
  std::string isa;     // of cpu_isas(); of a CUDA device its architecture, "sm_90"
  int threads = 1;     // of the CPU
  // Of a CUDA device: its name, and the highest CUDA version its driver knows.
  std::string name = {}, driver = {};

  // As a result's identity has it: "cpu", "cuda: NVIDIA H200, driver for CUDA 13.0".
  std::string text() const {
    return name.empty() ? device : device + ": " + name + ", driver for CUDA " + driver;
  }
};

// What preparing a graph cost.
struct LoadReport {
  double milliseconds = 0;
  int64_t packed_bytes = 0;  // weights copied into the kernels' own order, or to the device
  int64_t huge_bytes = 0;    // of these, in huge pages
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual BackendInfo info() const = 0;
  // Makes what the kernels need of the graph's weights; run() does it when nobody has. Throws
  // Error(resource).
  virtual LoadReport prepare(const Graph& graph) = 0;
  // Another backend with its own workers that shares what was made for graphs. isa as in
  // make_cpu_backend.
  virtual std::unique_ptr<Backend> sibling(const std::string& isa, int threads) const = 0;
  // graph must outlive the call. Throws only for resources; arithmetic faults are in
  // pass.faults.
  virtual void run(const Graph& graph, Pass& pass) = 0;
  virtual void set_observer(OpObserver* observer) = 0;
  // Where the pages of sequences that this backend runs have to lie; null: in main memory. May
  // outlive the backend.
  virtual std::shared_ptr<PageMemory> page_memory() const { return nullptr; }
  // How fast the device reads its own memory now, in 1e9 bytes a second; 0: the memory is the CPU's
  // (base/memory_bandwidth.h measures it).
  virtual double read_gb_s() { return 0; }
  // Bytes that the device's own memory has left, for KV pages; none: the memory is the CPU's.
  virtual std::optional<int64_t> free_memory() const { return std::nullopt; }
  // Memory for a pass's logits that a device writes by itself; null where any memory is as good.
  // May outlive the backend.
  virtual std::shared_ptr<float[]> logits_memory(int64_t /*floats*/) { return nullptr; }
};

// Names of the instruction sets that this build has kernels for and this CPU can run, slowest
// first: "scalar", "scalar-v3" (the scalar reference, built for plain x86-64 and for x86-64-v3),
// "avx2", "avx512" (with VNNI), "amx" (AVX-512 and AMX).
std::vector<std::string> cpu_isas();

// isa: "" picks the best this CPU has, or one of cpu_isas(). Error(bad_use) names what the CPU
// lacks.
std::unique_ptr<Backend> make_cpu_backend(const std::string& isa, int threads);

// Whether this build has kernels for CUDA devices.
bool has_cuda();

// Code for CUDA devices: the device's own, or what any from sm_80 on can run, compiled by the
// driver at start and without what came later. Equal bits.
enum class CudaCode : uint8_t { own, portable };

// The backend of CUDA device number `index`. The first one made in a process decides for all which
// code runs. Throws Error(bad_use) when the build has none, and
// Error(resource) when the device can't be used: no driver, one that is too old, no such device,
// one that the build has no code for.
std::unique_ptr<Backend> make_cuda_backend(int index, CudaCode code = CudaCode::own);

}  // namespace lockstep::kernels
