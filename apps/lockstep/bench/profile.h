// Where the time of passes goes, op by op: a table, and a trace.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/plan.h"
#include "kernels/backend.h"
#include "kernels/op_bytes.h"
#include "output.h"

namespace lockstep::app {

// Ops of one kind and name (over all layers), summed over the passes of a profile.
struct OpTotal {
  std::string kind, name;
  int64_t calls = 0;
  double ms = 0;
  kernels::OpBytes bytes;
};

struct OpProfile {
  int64_t passes = 0;
  double pass_ms = 0;        // all passes, from outside
  std::vector<OpTotal> ops;  // in the order of the graph
  double ops_ms() const;
};

// Chrome's trace event format, as Perfetto reads it: complete events, microseconds.
class OpTrace {
 public:
  OpTrace();
  void add_pass(const std::string& name, int threads, const kernels::PassShape& shape,
                int64_t bytes, int64_t start_ns, int64_t duration_ns);
  void add_op(const kernels::Op& op, int64_t rows, int64_t bytes, int64_t start_ns,
              int64_t duration_ns);
  // Appears at path whole or not at all. Throws Error(resource).
  void write(const std::string& path, const Json& about) &&;
  // Throws now what write would: Error(bad_use) where path is something else than a regular file, a
  // model, or the file that standard output goes to; Error(resource) where no file can be made.
  static void check_path(const std::string& path);

 private:
  Json events_ = Json::array();
};

// Watches passes of one graph, one after the other.
class OpRecorder final : public kernels::OpObserver {
 public:
  explicit OpRecorder(const kernels::Graph& graph);

  void begin_pass();
  // The pass is over; its shape gives the ops their bytes. trace null: not traced.
  void end_pass(const BenchTest& test, int threads, const kernels::PassShape& shape,
                OpTrace* trace);
  void on_op(int op_index, double milliseconds, int64_t rows) override;

  const OpProfile& profile() const { return profile_; }

 private:
  struct Event {
    int op_index;
    int64_t rows, start_ns, duration_ns;
  };
  const kernels::Graph& graph_;
  std::vector<size_t> total_of_;  // [ops], index in profile_.ops
  OpProfile profile_;
  std::vector<Event> events_;  // of the pass that runs
  int64_t start_ns_ = 0;
};

}  // namespace lockstep::app
