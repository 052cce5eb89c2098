#include "bench/profile.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "base/temporary_file.h"
#include "cli.h"
#include "output_file.h"

namespace lockstep::app {
namespace {

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double microseconds(int64_t ns) {
  return static_cast<double>(ns) / 1e3;
}

}  // namespace

double OpProfile::ops_ms() const {
  double sum = 0;
  for (const OpTotal& op : ops) sum += op.ms;
  return sum;
}

void OpTrace::add_pass(const std::string& name, int threads, const kernels::PassShape& shape,
                       int64_t bytes, int64_t start_ns, int64_t duration_ns) {
  events_.push_back(
      {{"name", name},
       {"cat", "pass"},
       {"ph", "X"},
       {"ts", microseconds(start_ns)},
       {"dur", microseconds(duration_ns)},
       {"pid", 1},
       {"tid", 1},
       {"args",
        {{"rows", shape.rows}, {"depth", shape.depth}, {"threads", threads}, {"bytes", bytes}}}});
}

void OpTrace::add_op(const kernels::Op& op, int64_t rows, int64_t bytes, int64_t start_ns,
                     int64_t duration_ns) {
  Json args{{"rows", rows}, {"bytes", bytes}};
  if (op.layer >= 0) args["layer"] = op.layer;
  if (duration_ns > 0) {
    args["gb_s"] = static_cast<double>(bytes) / static_cast<double>(duration_ns);
  }
  events_.push_back({{"name", op.name},
                     {"cat", kernels::op_kind_name(op.args)},
                     {"ph", "X"},
                     {"ts", microseconds(start_ns)},
                     {"dur", microseconds(duration_ns)},
                     {"pid", 1},
                     {"tid", 1},
                     {"args", std::move(args)}});
}

OpTrace::OpTrace() {
  for (const auto& [what, name] :
       {std::pair{"process_name", "lockstep bench"}, std::pair{"thread_name", "passes"}}) {
    events_.push_back(
        {{"name", what}, {"ph", "M"}, {"pid", 1}, {"tid", 1}, {"args", {{"name", name}}}});
  }
}

void OpTrace::write(const std::string& path, const Json& about) && {
  const Json trace{
      {"traceEvents", std::move(events_)}, {"displayTimeUnit", "ms"}, {"otherData", about}};
  write_file(path, trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

void OpTrace::check_path(const std::string& path) {
  if (path.empty()) bad_use("--trace: the name is empty; name a file to write");
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error && error != std::errc::no_such_file_or_directory) {
    bad_use(fmt::format("--trace {}: {}; name another", shorten(path), error.message()));
  }
  char magic[4] = {};
  if (std::ifstream(path, std::ios::binary).read(magic, 4) &&
      std::string_view(magic, 4) == "GGUF") {
    bad_use(fmt::format("--trace {}: is a model file; name another", shorten(path)));
  }
  struct stat file {
  }, output{};
  if (::stat(path.c_str(), &file) == 0 && ::fstat(STDOUT_FILENO, &output) == 0 &&
      file.st_dev == output.st_dev && file.st_ino == output.st_ino) {
    bad_use(fmt::format("--trace {}: is where the result goes; name another", shorten(path)));
  }
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    bad_use(fmt::format("--trace {}: is there and is not a regular file; name another", path));
  }
  const TemporaryFile probe(path, 1);  // never kept
}

OpRecorder::OpRecorder(const kernels::Graph& graph) : graph_(graph) {
  for (const kernels::Op& op : graph.ops) {
    const std::string kind(kernels::op_kind_name(op.args));
    const auto same = [&](const OpTotal& t) { return t.kind == kind && t.name == op.name; };
    auto found = std::find_if(profile_.ops.begin(), profile_.ops.end(), same);
    if (found == profile_.ops.end()) {
      found = profile_.ops.insert(found, OpTotal{kind, op.name, 0, 0, {}});
    }
    total_of_.push_back(static_cast<size_t>(found - profile_.ops.begin()));
  }
}

void OpRecorder::begin_pass() {
  events_.clear();
  events_.reserve(graph_.ops.size());  // no allocation between the ops
  start_ns_ = now_ns();
}

// Ops come in order when their pass has run; several may have shared a phase. They are laid end to
// end, and what lies between them in truth comes after the last.
void OpRecorder::on_op(int op_index, double milliseconds, int64_t rows) {
  const int64_t start =
      events_.empty() ? start_ns_ : events_.back().start_ns + events_.back().duration_ns;
  events_.push_back({op_index, rows, start, static_cast<int64_t>(milliseconds * 1e6)});
}

void OpRecorder::end_pass(const BenchTest& test, int threads, const kernels::PassShape& shape,
                          OpTrace* trace) {
  const int64_t duration = now_ns() - start_ns_;
  ++profile_.passes;
  profile_.pass_ms += static_cast<double>(duration) / 1e6;
  std::vector<int64_t> bytes;
  int64_t pass_bytes = 0;
  for (const Event& event : events_) {
    const kernels::OpBytes moved = kernels::op_bytes(graph_, event.op_index, shape);
    OpTotal& total = profile_.ops[total_of_[static_cast<size_t>(event.op_index)]];
    ++total.calls;
    total.ms += static_cast<double>(event.duration_ns) / 1e6;
    total.bytes += moved;
    bytes.push_back(moved.total());
    pass_bytes += moved.total();
  }
  if (!trace) return;
  trace->add_pass(test.name(), threads, shape, pass_bytes, start_ns_, duration);
  for (size_t i = 0; i < events_.size(); ++i) {
    const Event& event = events_[i];
    trace->add_op(graph_.ops[static_cast<size_t>(event.op_index)], event.rows, bytes[i],
                  event.start_ns, event.duration_ns);
  }
}

}  // namespace lockstep::app
