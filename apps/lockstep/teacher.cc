#include "teacher.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace lockstep::app {

Teacher::Teacher(std::shared_ptr<const model::Model> model,
                 std::shared_ptr<kernels::Backend> backend, kernels::KvType k_type,
                 kernels::KvType v_type, int64_t context)
    : model_(std::move(model)),
      backend_(std::move(backend)),
      kv_(model_->kv_spec(k_type, v_type, context), nullptr) {}

void Teacher::run(std::span<const int32_t> tokens, int64_t width, const OnRow& on_row,
                  const OnPass& on_pass) {
  const kernels::Graph& graph = model_->graph();
  while (!tokens.empty()) {
    const auto rows = std::min<int64_t>(width, static_cast<int64_t>(tokens.size()));
    const int64_t first = kv_.size();
    logits_.resize(static_cast<size_t>(rows * graph.n_vocab));
    kernels::Pass pass;
    pass.segments.push_back({.tokens = tokens.first(static_cast<size_t>(rows)),
                             .first_position = first,
                             .kv = kv_.append(rows),
                             .first_logits_row = 0});
    pass.logits = logits_;
    backend_->run(graph, pass);
    if (!pass.faults.empty()) {
      const kernels::PassFault& fault = pass.faults.front();
      const kernels::Op& op = graph.ops[static_cast<size_t>(fault.op)];
      throw Error(ExitCode::check_failed,
                  fmt::format("{}: op {} of layer {} gave a non-finite value at position {}",
                              model_->file().name(), op.name, op.layer, first + fault.row));
    }
    kv_.commit(rows);
    for (int64_t row = 0; row < rows; ++row) {
      on_row(first + row + 1, std::span<const float>(logits_).subspan(
                                  static_cast<size_t>(row * graph.n_vocab),
                                  static_cast<size_t>(graph.n_vocab)));
    }
    if (on_pass) on_pass(rows, kv_);
    tokens = tokens.subspan(static_cast<size_t>(rows));
  }
}

}  // namespace lockstep::app
